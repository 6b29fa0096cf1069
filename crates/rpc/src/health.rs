//! Readiness over gRPC: the server and the client of `grpc.health.v1`.

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

/// Maximum time until a working server sends its first health status.
const FIRST: Duration = Duration::from_secs(3);
/// Interval of health checks of a server whose watch stream is quiet. The sum with [`ANSWER_LIMIT`] is at most the time within
/// which a process that hangs must be distinguished from a ready one.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Maximum time for the response to a health check, after which the server counts as silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Maximum time for the response to a further health check of a silent server, after which its connection is given up.
const LOST_LIMIT: Duration = Duration::from_secs(5);

/// Reports `readiness` as the status of the service `name`, until the sender of `readiness` is dropped.
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
    /// The service reported its readiness before, and does not respond now.
    Silent,
}

/// Calls `told` with the health of the service `name` behind `channel`, until the connection fails. Returns the reason.
///
/// A quiet watch stream may belong to a service that hangs, so the service also gets periodic health checks.
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
    // A server that does not send a first status counts as unreachable.
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
                // Any response is enough, because changes of the status arrive on the stream.
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
                        // The status is unchanged, because a change would have arrived on the stream.
                        next = Some(status);
                        continue;
                    }
                }
            }
        };
        next = match message {
            Ok(next) => next,
            Err(status) => return format!("lost the connection to {name}: {}", status.message()),
        };
    }
    format!("{name} closed the connection")
}

fn readiness(status: Wire, name: &str) -> Readiness {
    match status {
        Wire::Serving => Readiness::Ready,
        _ => Readiness::NotReady(format!("{name} reports that it is not ready")),
    }
}
