//! Readiness over a wire: `grpc.health.v1`, both ends.

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Wire;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

use crate::readiness::Readiness;

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
    let mut statuses = match HealthClient::new(channel).watch(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return format!("cannot reach {name}: {}", status.message()),
    };
    loop {
        match statuses.message().await {
            Ok(Some(status)) => told(readiness(status.status(), name)),
            Ok(None) => return format!("{name} closed the connection"),
            Err(status) => return format!("lost {name}: {}", status.message()),
        }
    }
}

fn readiness(status: Wire, name: &str) -> Readiness {
    match status {
        Wire::Serving => Readiness::Ready,
        _ => Readiness::NotReady(format!("{name} says it is not ready")),
    }
}
