//! What a client of a chat sends.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A verified caller's own token, passed on to the gateway and shown nowhere; and where it came from.
#[derive(Clone)]
pub struct BearerToken {
    token: Arc<str>,
    peer: Option<SocketAddr>,
}

impl BearerToken {
    /// The token as it stood behind `Bearer`.
    pub fn new(token: &str) -> Self {
        Self {
            token: Arc::from(token),
            peer: None,
        }
    }

    /// The same, of a caller at this address: a gateway in the same process records it.
    #[must_use]
    pub fn of_peer(self, peer: Option<SocketAddr>) -> Self {
        Self { peer, ..self }
    }

    /// For the one header it belongs in.
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
    /// The assistant's public name; `None` is the first one configured.
    pub model: Option<String>,
    /// What the person says.
    pub message: String,
    /// The caller's name for the conversation; `None` begins a new one.
    pub conversation_id: Option<String>,
    /// The client's id for this message. Sent again, it goes on with the same turn and repeats nothing; so it belongs
    /// to a `conversation_id`. `None`: the turn ends when its stream is dropped.
    pub message_id: Option<String>,
    /// The last event the client has of this turn.
    pub after: Option<u64>,
    /// What the client says was said before; used only without a `conversation_id`, and never kept.
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

/// One earlier message, as a client tells it.
#[derive(Clone, PartialEq, Eq)]
pub struct HistoryMessage {
    /// Who said it.
    pub speaker: Speaker,
    /// What.
    pub text: String,
}

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The person.
    User,
    /// The assistant.
    Assistant,
}

/// A person's decision about a call that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Let it run.
    Approve,
    /// Do not; the model is told so.
    Refuse,
}

/// An assistant, as lists of models show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its public name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What has to be set before it can answer; empty when it can.
    pub missing: Vec<String>,
}
