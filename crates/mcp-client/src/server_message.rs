//! Messages and requests of a server while it works on a request.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message;
use super::participation::LogLevel;

/// Notification that the user has completed an elicitation at an external URL (2025-11-25).
pub(super) const COMPLETED: &str = "notifications/elicitation/complete";

/// Maximum length of an elicitation id in bytes.
const MAX_ELICITATION_ID: usize = 256;

/// The methods of requests to clients.
const QUESTIONS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Maximum length of a progress message in characters. Longer messages are truncated.
const MAX_PROGRESS_TEXT: usize = 1024;

/// Maximum size of a log message in bytes. Larger messages are dropped.
const MAX_LOG: usize = 64 * 1024;

/// A message of a server.
#[derive(Debug)]
pub enum ServerMessage {
    /// The progress of the request.
    Progress(ProgressNotification),
    /// A log message.
    Log(LogMessage),
    /// A request of a legacy server.
    Question(ServerRequest),
    /// The user has completed the elicitation with this id at an external URL.
    Completed(String),
    /// A legacy server closed the stream of the request before the response, which has to be resumed to get it.
    StreamClosed,
}

impl ServerMessage {
    /// Returns the response to the server if no listener accepts this message, or `None` if the server expects none.
    pub(super) fn refusal(&self) -> Option<Vec<u8>> {
        match self {
            Self::Question(request) => message::answer(&request.id, &request.method).ok(),
            Self::Progress(_) | Self::Log(_) | Self::Completed(_) | Self::StreamClosed => None,
        }
    }
}

/// The progress of a request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProgressNotification {
    #[serde(rename = "progress")]
    pub done: f64,
    #[serde(default)]
    pub total: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
}

/// A log message of a server.
#[derive(Clone)]
pub struct LogMessage {
    /// The severity.
    pub level: LogLevel,
    /// The name of the logger.
    pub logger: Option<String>,
    /// The data, any JSON value, byte for byte.
    pub data: Box<RawValue>,
}

impl std::fmt::Debug for LogMessage {
    /// Formats the level without text of the server.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogMessage")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// A request of a legacy server to the client.
pub struct ServerRequest {
    /// The id that the server assigned.
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

impl ServerRequest {
    /// Reads a request, or returns `None` if it is not one that a client can be asked.
    pub(super) fn from_parts(
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Self> {
        QUESTIONS.contains(&method).then(|| Self {
            id: id.to_owned(),
            method: method.to_owned(),
            params: params.map(ToOwned::to_owned),
        })
    }

    /// Returns the id by which a legacy server later announces the completion of this elicitation, or `None` if it has none.
    pub(super) fn elicitation(&self) -> Option<String> {
        let is_elicitation = self.method == "elicitation/create";
        read_completed(self.params.as_deref()).filter(|_| is_elicitation)
    }
}

impl std::fmt::Debug for ServerRequest {
    /// Formats the method without the parameters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// A listener that receives messages as they arrive, and returns whether it accepted them. It must not block.
pub(crate) type Listener<'a> = &'a mut (dyn FnMut(ServerMessage) -> bool + Send);

/// Reborrows a listener.
pub(super) fn lend<'a>(listener: &'a mut Option<Listener<'_>>) -> Option<Listener<'a>> {
    listener
        .as_mut()
        .map(|listener| &mut **listener as Listener<'a>)
}

/// Reads a progress notification. Returns the id of its request and the progress.
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

/// Reads a log notification.
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

/// Reads the id of a completed elicitation.
pub(super) fn read_completed(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct CompletedElicitation {
        #[serde(rename = "elicitationId")]
        id: String,
    }
    let completed: CompletedElicitation = serde_json::from_str(params?.get()).ok()?;
    Some(completed.id).filter(|id| id.len() <= MAX_ELICITATION_ID)
}
