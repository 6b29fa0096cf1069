//! What a server says and asks while it works on a request.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message;
use super::participation::LogLevel;

/// Says that the user has done what they were sent elsewhere for (2025-11-25).
pub(super) const COMPLETED: &str = "notifications/elicitation/complete";

/// The longest id of an elicitation that is passed on, in bytes.
const MAX_ELICITATION_ID: usize = 256;

/// What a client can be asked.
const QUESTIONS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// The longest text of a progress message that is passed on, in characters.
const MAX_PROGRESS_TEXT: usize = 1024;

/// The largest log message that is passed on, in bytes.
const MAX_LOG: usize = 64 * 1024;

/// One thing a server says.
#[derive(Debug)]
pub enum ServerMessage {
    /// How far it is.
    Progress(ProgressNotification),
    /// What it logs.
    Log(LogMessage),
    /// Of a legacy server.
    Question(ServerRequest),
    /// What the user was sent elsewhere for is done; the server's id of that elicitation.
    Completed(String),
    /// A legacy server closed the stream of the request before its answer, to be asked for the rest.
    StreamClosed,
}

impl ServerMessage {
    /// What the server is told where nobody takes it; none where it waits for nothing.
    pub(super) fn refusal(&self) -> Option<Vec<u8>> {
        match self {
            Self::Question(request) => message::answer(&request.id, &request.method).ok(),
            Self::Progress(_) | Self::Log(_) | Self::Completed(_) | Self::StreamClosed => None,
        }
    }
}

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProgressNotification {
    #[serde(rename = "progress")]
    pub done: f64,
    #[serde(default)]
    pub total: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
}

/// What a server logs.
#[derive(Clone)]
pub struct LogMessage {
    /// How severe it is.
    pub level: LogLevel,
    /// Which part of the server says it.
    pub logger: Option<String>,
    /// Any JSON value, byte for byte.
    pub data: Box<RawValue>,
}

impl std::fmt::Debug for LogMessage {
    /// Without a word of the server's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogMessage")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// A request of a legacy server's to the client.
pub struct ServerRequest {
    /// The server's own.
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

impl ServerRequest {
    /// None where the request is nothing that a client is asked.
    pub(super) fn read(id: &RawValue, method: &str, params: Option<&RawValue>) -> Option<Self> {
        QUESTIONS.contains(&method).then(|| Self {
            id: id.to_owned(),
            method: method.to_owned(),
            params: params.map(ToOwned::to_owned),
        })
    }

    /// By what a legacy server says later that it is done; none where it says no such thing.
    pub(super) fn elicitation(&self) -> Option<String> {
        let is_elicitation = self.method == "elicitation/create";
        read_completed(self.params.as_deref()).filter(|_| is_elicitation)
    }
}

impl std::fmt::Debug for ServerRequest {
    /// Without what is asked.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Takes what is said as it comes, and tells whether it did; must not block.
pub(crate) type Listener<'a> = &'a mut (dyn FnMut(ServerMessage) -> bool + Send);

/// Lends a listener.
pub(super) fn lend<'a>(listener: &'a mut Option<Listener<'_>>) -> Option<Listener<'a>> {
    listener
        .as_mut()
        .map(|listener| &mut **listener as Listener<'a>)
}

/// The request a progress notification is of, and what it says.
pub(super) fn read_progress(params: Option<&RawValue>) -> Option<(u64, ProgressNotification)> {
    #[derive(Deserialize)]
    struct ProgressParams {
        #[serde(rename = "progressToken")]
        token: u64,
    }
    let params = params?.get();
    let token: ProgressParams = serde_json::from_str(params).ok()?;
    let mut progress: ProgressNotification = serde_json::from_str(params).ok()?;
    if let Some(message) = &mut progress.message
        && let Some((end, _)) = message.char_indices().nth(MAX_PROGRESS_TEXT)
    {
        message.truncate(end);
    }
    Some((token.token, progress))
}

/// What a log notification says.
pub(super) fn read_log(params: Option<&RawValue>) -> Option<LogMessage> {
    #[derive(Deserialize)]
    struct LogParams {
        level: String,
        #[serde(default)]
        logger: Option<String>,
        data: Box<RawValue>,
    }
    let params = params?.get();
    if params.len() > MAX_LOG {
        return None;
    }
    let log: LogParams = serde_json::from_str(params).ok()?;
    Some(LogMessage {
        level: log.level.parse().ok()?,
        logger: log.logger,
        data: log.data,
    })
}

/// The elicitation that is over.
pub(super) fn read_completed(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct CompletedElicitation {
        #[serde(rename = "elicitationId")]
        id: String,
    }
    let completed: CompletedElicitation = serde_json::from_str(params?.get()).ok()?;
    Some(completed.id).filter(|id| id.len() <= MAX_ELICITATION_ID)
}
