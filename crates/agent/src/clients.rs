//! The clients of a turn: that of a model, and that of the gateway with the caller's token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use wardgate_arguments::InputSchema;
use wardgate_domain::AgentRefusal;

use crate::model::{Function, ModelError, ModelEvent, ModelRequest, ModelStream};

/// A model provider.
pub(crate) trait ModelClient: Send + Sync {
    /// Begins an answer.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;

    /// Whether its wire carries functions; with others, tools are described in the prompt.
    fn carries_calls(&self) -> bool;
}

/// A whole answer in words, or the first `max` bytes of it and a little more.
pub(crate) async fn in_words(
    client: &dyn ModelClient,
    request: ModelRequest,
    max: usize,
) -> Result<String, ModelError> {
    let mut events = client.stream(request).await?;
    let mut words = String::new();
    let mut is_over = false;
    while let Some(event) = events.next().await {
        match event? {
            ModelEvent::Text(text) if words.len() < max => words.push_str(&text),
            ModelEvent::Finished(_) => is_over = true,
            _ => {}
        }
    }
    // A stream that does not say that it is over was cut.
    if is_over {
        Ok(words)
    } else {
        Err(ModelError::Cut)
    }
}

/// What comes of a request to the gateway.
pub(crate) type GatewayFuture<'a, T> = BoxFuture<'a, Result<T, GatewayFailure>>;

/// The gateway, as one caller sees it.
pub(crate) trait GatewayClient: Send + Sync {
    /// The tools this caller may use, of these toolsets; none: all.
    fn tools<'a>(&'a self, toolsets: &'a [String]) -> GatewayFuture<'a, Vec<GatewayTool>>;

    /// Runs a tool in `conversation`. The same key never runs one with effects twice. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        conversation: &'a str,
    ) -> GatewayFuture<'a, ToolAnswer>;

    /// Puts on record that a call of `tool` is not made, and why. The same key is put on record once.
    fn record_refused<'a>(
        &'a self,
        tool: &'a str,
        refusal: AgentRefusal,
        key: &'a str,
    ) -> GatewayFuture<'a, ()>;

    /// A `memory/…` method.
    fn memory<'a>(&'a self, method: &'static str, params: Value) -> GatewayFuture<'a, Value>;
}

/// A tool of the caller's list.
#[derive(Debug, Clone)]
pub(crate) struct GatewayTool {
    /// The gateway's name for it.
    pub(crate) name: String,
    /// As models are told of it, under its own name.
    pub(crate) function: Function,
    /// Of its arguments, as the tool defines them.
    pub(crate) schema: Arc<InputSchema>,
    /// It says that it changes nothing.
    pub(crate) read_only: bool,
    /// It says that a person has to agree to each call.
    pub(crate) needs_approval: bool,
}

/// What a tool gave.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ToolAnswer {
    /// For the model and the conversation.
    pub(crate) text: String,
    /// The tool itself says that it failed.
    pub(crate) is_error: bool,
}

impl fmt::Debug for ToolAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolAnswer")
            .field("bytes", &self.text.len())
            .field("is_error", &self.is_error)
            .finish()
    }
}

/// Why the gateway did not do what was asked. Its texts are the gateway's own, fit to be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GatewayFailure {
    /// It answered with an error: for a tool, nothing ran or the record says what did.
    #[error("{message}")]
    Refused {
        code: i64,
        /// The kind, for programs, where the gateway says it.
        reason: Option<String>,
        message: String,
    },
    /// A policy demands somebody's approval first; nothing ran.
    #[error("{message}")]
    NeedsApproval {
        /// What approvers decide with.
        request_id: String,
        /// Until when, RFC 3339.
        expires_at: String,
        message: String,
    },
    /// It has no room for it now, or the caller no right to more, and it did nothing of it.
    #[error("{message}")]
    Busy {
        /// When to try again, where it says so.
        retry_after: Option<Duration>,
        message: String,
    },
    /// The platform failed, or a time limit passed. Whether a tool ran is for its key to tell: the same call under it is
    /// safe.
    #[error("{message}")]
    Unavailable { message: String },
    #[error("the gateway cannot be reached")]
    Unreachable,
    #[error("the gateway did not answer in time")]
    Late,
    #[error("the gateway's answer cannot be read")]
    Unreadable,
}

impl GatewayFailure {
    /// Whether a tool may have run all the same.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::NeedsApproval { .. } | Self::Busy { .. } => false,
            Self::Unavailable { .. } | Self::Unreachable | Self::Late | Self::Unreadable => true,
        }
    }
}
