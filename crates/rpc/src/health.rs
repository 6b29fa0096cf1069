//! Readiness over a wire: `grpc.health.v1`, both ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Wire;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

use crate::readiness::Readiness;

/// A server that works says within this how it is.
const FIRST: Duration = Duration::from_secs(3);

/// Reports `readiness` as the status of the service `name`, until its sender is gone.
pub(crate) async fn report(
    reporter: HealthReporter,
    name: &'static str,
    mut readiness: watch::Receiver<Readiness>,
) {
    loop {
        let status = if readiness.borrow_and_update().is_ready() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        reporter.set_service_status(name, status).await;
        if readiness.changed().await.is_err() {
            return;
        }
    }
}

/// Tells what the service `name` behind `channel` says of itself, until it says no more; and why that ended.
pub(crate) async fn follow(
    channel: Channel,
    name: &str,
    mut told: impl FnMut(Readiness),
) -> String {
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    // Who says nothing at all is as good as away.
    let first = timeout(FIRST, async {
        let mut statuses = HealthClient::new(channel)
            .watch(request)
            .await?
            .into_inner();
        let first = statuses.message().await?;
        Ok::<_, Status>((statuses, first))
    });
    let (mut statuses, mut next) = match first.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(status)) => return format!("cannot reach {name}: {}", status.message()),
        Err(_) => return format!("{name} does not answer"),
    };
    while let Some(status) = next {
        told(readiness(status.status(), name));
        next = match statuses.message().await {
            Ok(next) => next,
            Err(status) => return format!("lost {name}: {}", status.message()),
        };
    }
    format!("{name} closed the connection")
}

fn readiness(status: Wire, name: &str) -> Readiness {
    match status {
        Wire::Serving => Readiness::Ready,
        _ => Readiness::NotReady(format!("{name} says it is not ready")),
    }
}
