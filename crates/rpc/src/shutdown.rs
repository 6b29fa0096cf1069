//! Graceful shutdown of a process.
//!
//! ```text
//!   told ──── delay ────▶ closes ──── grace ────▶ gone
//!    │                     │
//!    not ready, and        no new connections, GOAWAY;
//!    serves as before      what is in flight is finished
//! ```
//!
//! The delay gives load balancers and other services time to notice that the process stops.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

/// The duration of each step of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// Seconds during which the process continues to serve, as not ready, after the stop signal.
    pub delay_seconds: u64,
    /// Seconds after that to finish the calls in flight.
    pub grace_seconds: u64,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            delay_seconds: 5,
            grace_seconds: 25,
        }
    }
}

impl Drain {
    /// Returns durations without a delay, for a process that no load balancer sends requests to.
    pub fn at_once() -> Self {
        Self {
            delay_seconds: 0,
            ..Self::default()
        }
    }
}

/// The shutdown of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown {
    told: CancellationToken,
    closes: CancellationToken,
    grace: Duration,
}

impl Shutdown {
    /// Creates a shutdown that begins when `signal` completes.
    pub fn at(signal: impl Future<Output = ()> + Send + 'static, drain: Drain) -> Self {
        let shutdown = Self {
            told: CancellationToken::new(),
            closes: CancellationToken::new(),
            grace: Duration::from_secs(drain.grace_seconds),
        };
        let Self { told, closes, .. } = shutdown.clone();
        tokio::spawn(async move {
            signal.await;
            told.cancel();
            tokio::time::sleep(Duration::from_secs(drain.delay_seconds)).await;
            closes.cancel();
        });
        shutdown
    }

    /// Creates a shutdown without a delay that closes when `signal` completes.
    pub fn when(signal: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::at(signal, Drain::at_once())
    }

    /// Waits for the stop signal.
    pub async fn is_told(self) {
        self.told.cancelled().await;
    }

    /// Returns whether the process received the stop signal.
    pub fn was_told(&self) -> bool {
        self.told.is_cancelled()
    }

    /// Waits until the process accepts no new connections or calls.
    pub async fn closes(self) {
        self.closes.cancelled().await;
    }

    /// Returns the time for calls in flight after the process stops accepting new ones.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Returns the value of `readiness` until the stop signal, and not ready after that.
    pub fn over(&self, mut readiness: watch::Receiver<Readiness>) -> watch::Receiver<Readiness> {
        let (tell, told) = watch::channel(readiness.borrow_and_update().clone());
        let stops = self.clone();
        tokio::spawn(async move {
            let stopping = stops.is_told();
            tokio::pin!(stopping);
            loop {
                tokio::select! {
                    biased;
                    () = &mut stopping => break,
                    () = tell.closed() => return,
                    changed = readiness.changed() => {
                        // Without a sender, the last value stays valid until the stop signal.
                        if changed.is_err() {
                            stopping.as_mut().await;
                            break;
                        }
                        tell.send_replace(readiness.borrow_and_update().clone());
                    }
                }
            }
            tell.send_replace(Readiness::NotReady(
                "the service is shutting down".to_owned(),
            ));
            tell.closed().await;
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    fn create_shutdown() -> (oneshot::Sender<()>, Shutdown) {
        let (stop, stopped) = oneshot::channel();
        let signal = async { drop(stopped.await) };
        (stop, Shutdown::at(signal, Drain::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_to_stop_closes_a_while_later() {
        let (stop, shutdown) = create_shutdown();
        drop(stop);
        shutdown.clone().is_told().await;
        assert!(shutdown.was_told());
        let told = Instant::now();
        shutdown.closes().await;
        assert_eq!(told.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_to_stop_is_not_ready_whatever_else_it_is() {
        let (stop, shutdown) = create_shutdown();
        let (say, readiness) = watch::channel(Readiness::NotReady("not yet".to_owned()));
        let mut heard = shutdown.over(readiness);
        assert!(!heard.borrow().is_ready());
        say.send_replace(Readiness::Ready);
        heard.wait_for(Readiness::is_ready).await.unwrap();
        drop(stop);
        heard.wait_for(|it| !it.is_ready()).await.unwrap();
        say.send_replace(Readiness::Ready);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!heard.borrow().is_ready());
    }
}
