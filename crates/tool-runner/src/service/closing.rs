//! The end of the service: what it started ends with it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use tracing::warn;

use super::Runner;

/// A server that is asked to end is killed after six seconds; this is for those that cannot even be killed.
const LONGEST: Duration = Duration::from_secs(10);

/// Ends what a service started. Without it the programs of MCP servers are killed when the process ends.
pub struct ServiceCloser(Arc<Runner>);

impl ServiceCloser {
    pub(super) fn new(runner: &Arc<Runner>) -> Self {
        Self(Arc::clone(runner))
    }

    /// Takes leave of every MCP server: programs are asked to end, and ended if they do not; sessions are
    /// closed. Call it once nothing is served any more.
    pub async fn close(self) {
        self.0.end_waiting();
        let upstreams = self.0.upstreams();
        let closing = join_all(upstreams.iter().map(|upstream| upstream.close()));
        if timeout(LONGEST, closing).await.is_err() {
            warn!("some upstream servers have not ended in time");
        }
    }
}
