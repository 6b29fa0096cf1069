//! Work that blocks its thread: reads of files, and digests of many bytes.

use crate::SourceError;

/// Runs `work` on a thread for blocking work and returns its result. Fails if `work` panics, or if the runtime stops before it
/// began.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    let worked = tokio::task::spawn_blocking(work).await;
    // A panic has no message that an operator could use.
    worked.map_err(|_| SourceError::Interrupted)
}
