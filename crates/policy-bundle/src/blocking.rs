//! Work that blocks its thread: reads of files, and digests of many bytes.

use std::path::PathBuf;

use crate::SourceError;

/// Runs `work` on a thread for blocking work and returns its result.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    // The task is not cancelled, and a panic has no message that an operator could use.
    let ended = |_| SourceError::Io {
        path: PathBuf::new(),
        source: std::io::Error::other("the download did not complete"),
    };
    tokio::task::spawn_blocking(work).await.map_err(ended)
}
