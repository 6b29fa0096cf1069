//! The requests of chat clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The token of a verified caller, and the caller's address. The token is passed on to the gateway and never shown.
#[derive(Clone)]
pub struct BearerToken {
    token: Arc<str>,
    peer: Option<SocketAddr>,
}

impl BearerToken {
    /// Creates a token from the text after `Bearer`.
    pub fn new(token: &str) -> Self {
        Self {
            token: Arc::from(token),
            peer: None,
        }
    }

    /// Sets the caller's address, which a gateway in the same process records.
    #[must_use]
    pub(crate) fn of_peer(self, peer: Option<SocketAddr>) -> Self {
        Self { peer, ..self }
    }

    /// Returns the token for use in the `Authorization` header.
    pub fn as_str(&self) -> &str {
        &self.token
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}

/// A message to an assistant.
#[derive(Clone, Default)]
pub struct ChatRequest {
    /// The public name of the assistant. `None` selects the first configured assistant.
    pub model: Option<String>,
    /// The text of the user's message.
    pub message: String,
    /// The caller's id of the conversation. `None` starts a new conversation.
    pub conversation_id: Option<String>,
    /// The client's id of this message, which requires a `conversation_id`. Sending the same id again continues the same turn
    /// and repeats nothing. With `None`, the turn ends when its stream is dropped.
    pub message_id: Option<String>,
    /// The id of the last event of this turn that the client received.
    pub after: Option<u64>,
    /// Earlier messages according to the client. They are used only without a `conversation_id` and are never stored.
    pub history: Vec<HistoryMessage>,
}

impl fmt::Debug for ChatRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest")
            .field("model", &self.model)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// An earlier message, as reported by the client.
#[derive(Clone, PartialEq, Eq)]
pub struct HistoryMessage {
    /// The author of the message.
    pub speaker: Speaker,
    /// The text of the message.
    pub text: String,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The assistant.
    Assistant,
}

/// The user's decision on a pending tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Run the call.
    Approve,
    /// Do not run the call, and tell the model.
    Refuse,
}

/// An assistant as it appears in lists of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The public name.
    pub name: String,
    /// A description of the assistant's purpose.
    pub description: String,
    /// The settings that are missing before the assistant can answer; empty if it can.
    pub missing: Vec<String>,
}
