//! The clients that a turn uses: a model client, and a gateway client with the caller's token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use wardgate_arguments::InputSchema;
use wardgate_domain::AgentRefusal;

use crate::model::{Function, ModelError, ModelEvent, ModelRequest, ModelStream};

/// A client of a model provider.
pub(crate) trait ModelClient: Send + Sync {
    /// Starts an answer and returns the stream of its events.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;

    /// Returns whether the provider's protocol supports function calls. For other providers, the prompt describes the tools.
    fn carries_calls(&self) -> bool;
}

/// Returns the complete text of an answer. Text that arrives after at least `max` bytes were received is discarded.
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
    // A stream without a `Finished` event was cut off.
    if is_over {
        Ok(words)
    } else {
        Err(ModelError::Cut)
    }
}

/// The pending result of a gateway request.
pub(crate) type GatewayFuture<'a, T> = BoxFuture<'a, Result<T, GatewayFailure>>;

/// A gateway client for one caller.
pub(crate) trait GatewayClient: Send + Sync {
    /// Returns the tools of `toolsets` that the caller may use, or of all toolsets if `toolsets` is empty.
    fn tools<'a>(&'a self, toolsets: &'a [String]) -> GatewayFuture<'a, Vec<GatewayTool>>;

    /// Runs a tool in `conversation`. A tool with effects runs at most once per key. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        conversation: &'a str,
    ) -> GatewayFuture<'a, ToolAnswer>;

    /// Records that a call of `tool` is not made, and why. A refusal is recorded once per key.
    fn record_refused<'a>(
        &'a self,
        tool: &'a str,
        refusal: AgentRefusal,
        key: &'a str,
    ) -> GatewayFuture<'a, ()>;

    /// Calls a `memory/…` method.
    fn memory<'a>(&'a self, method: &'static str, params: Value) -> GatewayFuture<'a, Value>;
}

/// A tool that the gateway lists for the caller.
#[derive(Debug, Clone)]
pub(crate) struct GatewayTool {
    /// The gateway's name of the tool.
    pub(crate) name: String,
    /// The function that models are offered, under its own name.
    pub(crate) function: Function,
    /// The schema of the arguments, as the tool defines it.
    pub(crate) schema: Arc<InputSchema>,
    /// Whether the tool declares that it changes nothing.
    pub(crate) read_only: bool,
    /// Whether the tool declares that a user has to approve each call.
    pub(crate) needs_approval: bool,
}

/// The result of a tool call.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ToolAnswer {
    /// The result text, for the model and the conversation.
    pub(crate) text: String,
    /// Whether the tool itself reported a failure.
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

/// The reason why the gateway did not serve a request. The messages come from the gateway and are safe to show to users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GatewayFailure {
    /// The gateway answered with an error. For a tool call, nothing ran, or the record states what did.
    #[error("{message}")]
    Refused {
        code: i64,
        /// The machine-readable error kind, or `None` if the gateway did not send one.
        reason: Option<String>,
        message: String,
    },
    /// A policy requires an approval first. Nothing ran.
    #[error("{message}")]
    NeedsApproval {
        /// The id that approvers use to decide.
        request_id: String,
        /// The deadline of the approval, in RFC 3339 format.
        expires_at: String,
        message: String,
    },
    /// The gateway has no capacity, or the caller's quota is exhausted. Nothing ran.
    #[error("{message}")]
    Busy {
        /// How long to wait before a retry, or `None` if the gateway did not state it.
        retry_after: Option<Duration>,
        message: String,
    },
    /// The platform failed, or a time limit passed. The tool may have run; repeating the call under the same key is safe.
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
    /// Returns whether the tool may have run in spite of the failure.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::NeedsApproval { .. } | Self::Busy { .. } => false,
            Self::Unavailable { .. } | Self::Unreachable | Self::Late | Self::Unreadable => true,
        }
    }
}
