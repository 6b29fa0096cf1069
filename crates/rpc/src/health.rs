//! Readiness over a wire: `grpc.health.v1`, both ends.

use std::time::Duration;

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Wire;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

use crate::link::Link;
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

/// Follows the status of the service `name` behind `link`. A lost connection reads as not ready at once,
/// so that callers can refuse before they start what they could not record.
pub(crate) fn watch(link: Link, name: &'static str) -> watch::Receiver<Readiness> {
    let (sender, receiver) =
        watch::channel(Readiness::NotReady(format!("not connected to {name} yet")));
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = follow(link, name, &sender) => {}
        }
    });
    receiver
}

async fn follow(link: Link, name: &'static str, sender: &watch::Sender<Readiness>) {
    let mut client = HealthClient::new(link);
    let mut pause = Pause::default();
    loop {
        let request = HealthCheckRequest {
            service: name.to_owned(),
        };
        let lost = match client.watch(request).await {
            Ok(response) => {
                let mut statuses = response.into_inner();
                loop {
                    match statuses.message().await {
                        Ok(Some(status)) => {
                            pause = Pause::default();
                            sender.send_replace(readiness(status.status(), name));
                        }
                        Ok(None) => break format!("{name} closed the connection"),
                        Err(status) => break format!("lost {name}: {}", status.message()),
                    }
                }
            }
            Err(status) => format!("cannot reach {name}: {}", status.message()),
        };
        sender.send_replace(Readiness::NotReady(lost));
        tokio::time::sleep(pause.next()).await;
    }
}

fn readiness(status: Wire, name: &str) -> Readiness {
    match status {
        Wire::Serving => Readiness::Ready,
        _ => Readiness::NotReady(format!("{name} says it is not ready")),
    }
}

/// How long to wait before the next attempt: doubling from 50 ms to 1 s.
#[derive(Default)]
struct Pause {
    attempts: u32,
}

impl Pause {
    fn next(&mut self) -> Duration {
        let pause = Duration::from_millis(50 << self.attempts.min(5)).min(Duration::from_secs(1));
        self.attempts += 1;
        pause
    }
}
