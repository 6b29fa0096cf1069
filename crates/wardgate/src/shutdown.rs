//! Shutdown of the process: the first SIGTERM or SIGINT drains, the second exits immediately. On Windows, the signal is Ctrl-C.

use std::io;

use wardgate_rpc::{Drain, Shutdown};

use crate::Failure;

/// Returns the shutdown of this process, which begins with the first signal.
pub(crate) fn shutdown(drain: Drain) -> Result<Shutdown, Failure> {
    Ok(Shutdown::at(signals()?, drain))
}

/// Returns a future that resolves at the first signal. After that, a second signal exits the process immediately.
pub(crate) fn signals() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    Ok(async move {
        signals.next().await;
        tracing::info!("shutting down: waiting for the requests in flight");
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(1);
        });
    })
}

/// The signals that end the process.
#[cfg(unix)]
struct ShutdownSignals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl ShutdownSignals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

#[cfg(windows)]
struct ShutdownSignals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl ShutdownSignals {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}
