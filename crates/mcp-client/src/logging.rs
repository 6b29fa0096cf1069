//! How loud a legacy server logs: a level for the whole connection, as loud as anybody on it has needed.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::era::Handshake;
use super::error::UpstreamError;
use super::message::{MemberValue, UpstreamRequest};
use super::participation::LogLevel;

/// How long a server may take to note a level.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ServerLogLevel {
    /// The server takes a level.
    is_offered: bool,
    /// None before anybody needed one.
    level: Mutex<Option<LogLevel>>,
}

impl ServerLogLevel {
    pub(super) fn of(handshake: Handshake) -> Self {
        Self {
            is_offered: handshake.logs,
            level: Mutex::default(),
        }
    }

    /// Has the server log at `level` and above, by `set`. It is not asked again for what it refused.
    pub(super) async fn make_at_least<F>(
        &self,
        level: LogLevel,
        set: impl FnOnce(UpstreamRequest<'static>) -> F,
    ) where
        F: Future<Output = Result<Box<RawValue>, UpstreamError>>,
    {
        if !self.is_offered {
            return;
        }
        let mut current = self.level.lock().await;
        if current.is_none_or(|current| level < current) {
            *current = Some(level);
            let members = vec![("level", MemberValue::Json(level.as_str().into()))];
            let setting = set(UpstreamRequest::new("logging/setLevel", members));
            // Without it the call goes on; it only has less to tell.
            let _ = timeout(LIMIT, setting).await;
        }
    }
}
