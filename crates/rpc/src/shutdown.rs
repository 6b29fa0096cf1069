//! How a process ends, so that nobody notices.
//!
//! ```text
//!   told ──── delay ────▶ closes ──── grace ────▶ gone
//!    │                     │
//!    not ready, and        no new connections, GOAWAY;
//!    serves as before      what is in flight is finished
//! ```
//!
//! The delay is for those who send: balancers and neighbours hear of a process that stops a while after it was told to.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// Seconds to go on serving, as not ready, once told to stop.
    pub delay_seconds: u64,
    /// Seconds to finish what is in flight then.
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
    /// Where nobody has to hear of it first.
    pub fn at_once() -> Self {
        Self {
            delay_seconds: 0,
            ..Self::default()
        }
    }
}

/// The end of a process, before and while it comes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown {
    told: CancellationToken,
    closes: CancellationToken,
    grace: Duration,
}

impl Shutdown {
    /// One that begins with `signal`.
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

    /// One that closes with `signal`, at once.
    pub fn when(signal: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::at(signal, Drain::at_once())
    }

    /// Waits until the process is told to stop.
    pub async fn is_told(self) {
        self.told.cancelled().await;
    }

    /// Whether it was.
    pub fn was_told(&self) -> bool {
        self.told.is_cancelled()
    }

    /// Waits until nothing new is taken.
    pub async fn closes(self) {
        self.closes.cancelled().await;
    }

    /// How long what is in flight may take from then on.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// `readiness`, until the process is told to stop: then it is not ready, whatever else it is.
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
                        // What it was last stays true once nobody says otherwise.
                        if changed.is_err() {
                            stopping.as_mut().await;
                            break;
                        }
                        tell.send_replace(readiness.borrow_and_update().clone());
                    }
                }
            }
            tell.send_replace(Readiness::NotReady("it was told to stop".to_owned()));
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

    fn stopping() -> (oneshot::Sender<()>, Shutdown) {
        let (stop, stopped) = oneshot::channel();
        let signal = async { drop(stopped.await) };
        (stop, Shutdown::at(signal, Drain::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_to_stop_closes_a_while_later() {
        let (stop, shutdown) = stopping();
        drop(stop);
        shutdown.clone().is_told().await;
        assert!(shutdown.was_told());
        let told = Instant::now();
        shutdown.closes().await;
        assert_eq!(told.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_to_stop_is_not_ready_whatever_else_it_is() {
        let (stop, shutdown) = stopping();
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
