//! The tools that a server listed over one connection. A pinned tool is only called over a connection whose
//! list was compared with the pin.
//!
//! ```text
//!   pinned call ─▶ is there a list of this connection that holds? ─ no ─▶ tools/list, one for all waiting calls
//!                    └ yes ─▶ is the tool as it was approved?     ─ no ─▶ ToolChanged: nothing is sent
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use wardgate_mcp::mirrored_header::MirroredHeader;

use super::definition::ToolDefinition;
use crate::fingerprint::ToolFingerprint;

/// Time for which the list of a server without sessions is valid. When a new version of such a server takes over, this is only
/// noticed if its name or version changes.
const SESSIONLESS_LIST_HOLDS: Duration = Duration::from_secs(5);

/// The properties of a tool that are needed to call it.
#[derive(Debug)]
pub(super) struct ListedTool {
    /// The arguments that are repeated as headers.
    pub(super) headers: Vec<MirroredHeader>,
    /// Whether the tool only runs as a task.
    pub(super) is_task: bool,
    /// The fingerprint, or `None` if the definition cannot be pinned.
    fingerprint: Option<ToolFingerprint>,
}

/// The tools in the response to a `tools/list` request.
#[derive(Debug)]
pub(super) struct ListedTools {
    tools: HashMap<String, ListedTool>,
    request: ListRequest,
    /// The `serverInfo` of the response (2026-07-28), byte for byte.
    server: Option<Box<str>>,
}

/// The time and tools revision at which a list was requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListRequest {
    /// The revision of the server's tools at that time.
    pub(super) revision: u64,
    pub(super) at: Instant,
}

/// The most recent list of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionTools {
    current: ArcSwapOption<ListedTools>,
    asking: Mutex<()>,
}

impl ListedTools {
    pub(super) fn new(
        tools: &[ToolDefinition],
        request: ListRequest,
        server: Option<Box<str>>,
    ) -> Self {
        let listed = |tool: &ToolDefinition| ListedTool {
            headers: tool.headers.clone(),
            is_task: tool.is_task,
            fingerprint: tool.fingerprint(),
        };
        let tools = tools.iter();
        Self {
            tools: tools
                .map(|tool| (tool.name.to_string(), listed(tool)))
                .collect(),
            request,
            server,
        }
    }

    pub(super) fn tool(&self, name: &str) -> Option<&ListedTool> {
        self.tools.get(name)
    }

    /// Returns whether the tool `name` matches `pin`.
    pub(super) fn admits(&self, name: &str, pin: &ToolFingerprint) -> bool {
        let offered = self.tool(name).and_then(|tool| tool.fingerprint.as_ref());
        offered.is_some_and(|offered| pin.admits(offered))
    }

    /// Returns whether the list is still valid. `revision` is the current revision of the server's tools.
    pub(super) fn holds(&self, revision: u64, has_session: bool) -> bool {
        let is_of_session = has_session || self.request.at.elapsed() < SESSIONLESS_LIST_HOLDS;
        self.request.revision == revision && is_of_session
    }

    /// Returns whether `result` is from another server, or from another version of this server.
    pub(super) fn is_of_another_server(&self, result: &RawValue) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        server_of(result).is_some_and(|answered| answered != *server)
    }
}

impl ConnectionTools {
    pub(super) fn current(&self) -> Option<Arc<ListedTools>> {
        self.current.load_full()
    }

    pub(super) fn store(&self, listed: ListedTools) {
        self.current.store(Some(Arc::new(listed)));
    }

    pub(super) fn forget(&self) {
        self.current.store(None);
    }

    /// Acquires the lock for a request of the list, so that one request serves all callers.
    pub(super) async fn lock_for_request(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().await
    }
}

/// Returns the `serverInfo` in a result of a server of 2026-07-28.
pub(super) fn server_of(result: &RawValue) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct ListResult<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: ListResultMeta<'a>,
    }
    #[derive(Deserialize)]
    struct ListResultMeta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/serverInfo")]
        server: &'a RawValue,
    }
    let answer: ListResult<'_> = serde_json::from_str(result.get()).ok()?;
    Some(answer.meta.server.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_holds_for_a_session_and_else_for_five_seconds_and_until_a_change_is_announced()
    {
        let request = ListRequest {
            revision: 1,
            at: Instant::now(),
        };
        let listed = ListedTools::new(&[], request, None);
        assert!(listed.holds(1, true) && listed.holds(1, false));
        assert!(!listed.holds(2, true));
        tokio::time::advance(SESSIONLESS_LIST_HOLDS).await;
        assert!(listed.holds(1, true) && !listed.holds(1, false));
    }
}
