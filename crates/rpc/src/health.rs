//! Readiness over a wire: `grpc.health.v1`, both ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
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
/// How often one is asked that says nothing new, and when it counts as silent. Together no longer than it may take until
/// a process that hangs is told from one that is ready.
const ASK_EVERY: Duration = Duration::from_millis(500);
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Who is silent for so long more is given up, with its connection.
const LOST_LIMIT: Duration = Duration::from_secs(5);

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

/// The health of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServiceHealth {
    /// The readiness that it reports.
    Reported(Readiness),
    /// It reported something before, and does not answer now.
    Silent,
}

/// Tells what the service `name` behind `channel` says of itself, until it says no more; and why that ended.
///
/// A stream on which nothing comes may be one of a service that hangs. So it is asked as well, again and again.
pub(crate) async fn follow(
    channel: Channel,
    name: &str,
    mut told: impl FnMut(ServiceHealth),
) -> String {
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    let mut asking = HealthClient::new(channel);
    let mut watching = asking.clone();
    // Who says nothing at all is as good as away.
    let first = timeout(FIRST, async {
        let mut statuses = watching.watch(request.clone()).await?.into_inner();
        let first = statuses.message().await?;
        Ok::<_, Status>((statuses, first))
    });
    let (mut statuses, mut next) = match first.await {
        Ok(Ok(begun)) => begun,
        Ok(Err(status)) => return format!("cannot reach {name}: {}", status.message()),
        Err(_) => return format!("{name} does not answer"),
    };
    while let Some(status) = next {
        let says = readiness(status.status(), name);
        told(ServiceHealth::Reported(says.clone()));
        let unless_silent = async {
            loop {
                sleep(ASK_EVERY).await;
                // Any answer will do; what it says comes on the stream.
                if timeout(ANSWER_LIMIT, asking.check(request.clone()))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        };
        let message = tokio::select! {
            message = statuses.message() => message,
            () = unless_silent => {
                told(ServiceHealth::Silent);
                let answered = timeout(LOST_LIMIT, asking.check(request.clone()));
                let answers_again = async { matches!(answered.await, Ok(Ok(_))) };
                tokio::select! {
                    message = statuses.message() => message,
                    answers = answers_again => {
                        if !answers {
                            return format!("{name} does not answer");
                        }
                        // Unchanged, or the stream would have said so.
                        next = Some(status);
                        continue;
                    }
                }
            }
        };
        next = match message {
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
