//! The log level of a legacy server. It applies to the whole connection, and is the lowest level that any client has needed.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::era::Handshake;
use super::error::UpstreamError;
use super::message::{MemberValue, UpstreamRequest};
use super::participation::LogLevel;

/// Maximum time for the response to a request that sets the level.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ServerLogLevel {
    /// Whether the server accepts a level.
    is_offered: bool,
    /// The current level, or `None` before a client needed one.
    level: Mutex<Option<LogLevel>>,
}

impl ServerLogLevel {
    pub(super) fn from_handshake(handshake: Handshake) -> Self {
        Self {
            is_offered: handshake.logs,
            level: Mutex::default(),
        }
    }

    /// Makes the server log at `level` and above, by `set`. A level that the server refused is not requested again.
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
            // The call continues after a failure, with fewer log messages.
            let _ = timeout(LIMIT, setting).await;
        }
    }
}
