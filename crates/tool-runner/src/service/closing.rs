//! Shutdown of the service and of everything that it started.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use tracing::warn;

use super::Runner;

/// Maximum time for closing all MCP servers. A server that does not exit on request is killed after six seconds, so
/// only a server that cannot be killed takes longer.
const LONGEST: Duration = Duration::from_secs(10);

/// Shuts down what a service started. Without it, the programs of MCP servers are killed when the process ends.
pub struct ServiceCloser(Arc<Runner>);

impl ServiceCloser {
    pub(super) fn new(runner: &Arc<Runner>) -> Self {
        Self(Arc::clone(runner))
    }

    /// Closes the connection to every MCP server. Programs are asked to exit and killed if they do not; sessions are
    /// closed. Call this once the service no longer accepts requests.
    pub async fn close(self) {
        self.0.end_waiting();
        let upstreams = self.0.upstreams();
        let closing = join_all(upstreams.iter().map(|upstream| upstream.close()));
        if timeout(LONGEST, closing).await.is_err() {
            warn!("some upstream servers did not stop in time");
        }
    }
}
