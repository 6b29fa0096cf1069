//! Shutdown of the process: the first SIGTERM or SIGINT drains, the second exits immediately.

use tokio::signal::unix::{SignalKind, signal};
use wardgate_rpc::{Drain, Shutdown};

use crate::Failure;

/// Returns the shutdown of this process, which begins with the first signal.
pub(crate) fn shutdown(drain: Drain) -> Result<Shutdown, Failure> {
    Ok(Shutdown::at(signals()?, drain))
}

/// Returns a future that resolves at the first signal. After that, a second signal exits the process immediately.
pub(crate) fn signals() -> Result<impl Future<Output = ()>, Failure> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("shutting down: waiting for the requests in flight");
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            std::process::exit(1);
        });
    })
}
