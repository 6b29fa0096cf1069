//! Messages about the interaction of clients with running calls: progress, logs, requests for input, and tasks.

use std::fmt;

use bytes::Bytes;
use wardgate_domain::InvalidMessage;
use wardgate_proto::toolrunner::v1 as pb;

use super::{ResultFacts, ToolResult};

/// The interaction that a client supports during a call.
#[derive(Debug, Clone, Default)]
pub struct Interaction<'a> {
    /// MCP `ClientCapabilities`, a JSON object, or `None` if the client cannot be asked for input.
    pub capabilities: Option<&'a str>,
    /// The lowest MCP level of log messages that the client asks for, or `None` for no log messages.
    pub log_level: Option<&'a str>,
    /// The continuation of a call that waited for the client, or `None` for a new call.
    pub resumption: Option<Resumption>,
    /// The metadata that is passed on to an MCP server as the client sent it.
    pub passthrough: PassthroughMeta,
    /// Whether the client uses a version before 2026-07-28.
    pub is_legacy: bool,
}

/// The parts of a request that are passed on to an MCP server unchanged, apart from the call itself.
#[derive(Clone, Default)]
pub struct PassthroughMeta {
    /// The `_meta` of the request, a JSON object, or empty if there is none.
    pub meta: Bytes,
    /// Responses to input requests that the gateway was not waiting for, a JSON object, or empty if there are none.
    pub unsolicited_responses: Bytes,
}

impl fmt::Debug for PassthroughMeta {
    /// Formats the value without its contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassthroughMeta")
    }
}

/// The continuation of a call that waited for the client, or a request about a task.
#[derive(Debug, Clone)]
pub struct Resumption {
    /// The state from [`InputRequired`] or [`Task`].
    pub state: Bytes,
    /// The responses of the client, a JSON object.
    pub responses: Bytes,
    /// The requested step of a task, or `None` if the state is from [`InputRequired`].
    pub task_step: Option<TaskStep>,
}

/// A request about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStep {
    /// Get the status of the task.
    Get,
    /// Send responses of the client to the task.
    Update,
    /// Cancel the task.
    Cancel,
}

/// The progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// The progress so far.
    pub done: f64,
    /// The progress at the end, or `None` if it is unknown.
    pub total: Option<f64>,
    /// A description of the progress, or empty.
    pub message: String,
}

/// A log message of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMessage {
    /// MCP `level`.
    pub level: String,
    /// The name of the logger, or `None` if the server did not specify it.
    pub logger: Option<String>,
    /// The data, any JSON value.
    pub data_json: String,
}

/// A call that waits for input of the client.
#[derive(Debug, Clone)]
pub struct InputRequired {
    /// MCP `inputRequests`: a JSON object, which may be empty.
    pub requests: String,
    /// The state to resume the call once. It is opaque to everyone except the tool-runner.
    pub state: Bytes,
    /// The facts about the call so far, for the audit record.
    pub facts: ResultFacts,
    /// The connection that the user has to grant, so that the source can act on their behalf. There are no requests and no state
    /// then; after the grant, the client repeats the call.
    pub connect: Option<ConnectTarget>,
}

/// The source that a user is asked to connect, so that it can act on their behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTarget {
    /// The name of the source.
    pub source: String,
    /// Scopes in addition to those that are always requested, separated by spaces.
    pub scope: Option<String>,
    /// The tool-runner's proof that a permitted call of the user required the connection. It is opaque to everyone else.
    pub caller_proof: Bytes,
}

/// A task of an MCP server that a call became, or that a request was about.
#[derive(Debug, Clone)]
pub struct Task {
    /// The state for further requests about the task. It is opaque to everyone except the tool-runner.
    pub state: Bytes,
    /// MCP `Task`, a JSON object, without its id, `result`, `error` and `inputRequests`. Empty in the response to an
    /// update or a cancellation.
    pub about: String,
    /// MCP `inputRequests` of the task, a JSON object, or empty if there are none.
    pub requests: String,
    /// The result of a completed task.
    pub result: Option<ToolResult>,
    /// The error of a failed task, a JSON object, or empty if there is none.
    pub error: String,
    /// The facts about the task so far, for the audit record.
    pub facts: ResultFacts,
}

impl From<TaskStep> for pb::TaskStep {
    fn from(step: TaskStep) -> Self {
        match step {
            TaskStep::Get => Self::Get,
            TaskStep::Update => Self::Update,
            TaskStep::Cancel => Self::Cancel,
        }
    }
}

impl From<Interaction<'_>> for pb::Interaction {
    fn from(interaction: Interaction<'_>) -> Self {
        let capabilities = interaction.capabilities.unwrap_or_default();
        Self {
            client_capabilities_json: Bytes::copy_from_slice(capabilities.as_bytes()),
            log_level: interaction.log_level.unwrap_or_default().to_owned(),
            resumption: interaction.resumption.map(|resumption| pb::Resumption {
                state: resumption.state,
                input_responses_json: resumption.responses,
                task_step: resumption
                    .task_step
                    .map_or(pb::TaskStep::Unspecified, pb::TaskStep::from)
                    .into(),
            }),
            meta_json: interaction.passthrough.meta,
            unasked_responses_json: interaction.passthrough.unsolicited_responses,
            legacy: interaction.is_legacy,
        }
    }
}

impl From<pb::Progress> for CallProgress {
    fn from(progress: pb::Progress) -> Self {
        Self {
            done: progress.progress,
            total: Some(progress.total).filter(|total| *total != 0.0),
            message: progress.message,
        }
    }
}

impl From<CallProgress> for pb::Progress {
    fn from(progress: CallProgress) -> Self {
        Self {
            progress: progress.done,
            total: progress.total.unwrap_or_default(),
            message: progress.message,
        }
    }
}

impl From<LogMessage> for pb::LogMessage {
    fn from(log: LogMessage) -> Self {
        Self {
            level: log.level,
            logger: log.logger.unwrap_or_default(),
            data_json: log.data_json.into(),
        }
    }
}

impl TryFrom<pb::LogMessage> for LogMessage {
    type Error = InvalidMessage;

    fn try_from(log: pb::LogMessage) -> Result<Self, Self::Error> {
        Ok(Self {
            level: log.level,
            logger: Some(log.logger).filter(|logger| !logger.is_empty()),
            data_json: text(log.data_json, "log.data_json")?,
        })
    }
}

impl TryFrom<pb::InputRequired> for InputRequired {
    type Error = InvalidMessage;

    fn try_from(waits: pb::InputRequired) -> Result<Self, Self::Error> {
        let missing = || InvalidMessage::field("input_required.facts", "is missing");
        Ok(Self {
            requests: text(
                waits.input_requests_json,
                "input_required.input_requests_json",
            )?,
            state: waits.state,
            facts: waits.facts.ok_or_else(missing)?.try_into()?,
            connect: waits.connect.map(ConnectTarget::from),
        })
    }
}

impl From<InputRequired> for pb::InputRequired {
    fn from(required: InputRequired) -> Self {
        Self {
            input_requests_json: required.requests.into(),
            state: required.state,
            facts: Some(required.facts.into()),
            connect: required.connect.as_ref().map(Into::into),
        }
    }
}

impl From<&ConnectTarget> for pb::Connect {
    fn from(connect: &ConnectTarget) -> Self {
        Self {
            source: connect.source.clone(),
            scope: connect.scope.clone().unwrap_or_default(),
            caller_proof: connect.caller_proof.clone(),
        }
    }
}

impl From<pb::Connect> for ConnectTarget {
    fn from(connect: pb::Connect) -> Self {
        Self {
            source: connect.source,
            scope: Some(connect.scope).filter(|scope| !scope.is_empty()),
            caller_proof: connect.caller_proof,
        }
    }
}

impl From<Task> for pb::Task {
    fn from(task: Task) -> Self {
        Self {
            state: task.state,
            task_json: task.about.into(),
            input_requests_json: task.requests.into(),
            result: task.result.map(Into::into),
            error_json: task.error.into(),
            facts: Some(task.facts.into()),
        }
    }
}

impl From<pb::Resumption> for Resumption {
    fn from(resumption: pb::Resumption) -> Self {
        Self {
            task_step: match resumption.task_step() {
                pb::TaskStep::Unspecified => None,
                pb::TaskStep::Get => Some(TaskStep::Get),
                pb::TaskStep::Update => Some(TaskStep::Update),
                pb::TaskStep::Cancel => Some(TaskStep::Cancel),
            },
            state: resumption.state,
            responses: resumption.input_responses_json,
        }
    }
}

impl TryFrom<pb::Task> for Task {
    type Error = InvalidMessage;

    fn try_from(task: pb::Task) -> Result<Self, Self::Error> {
        let missing = || InvalidMessage::field("task.facts", "is missing");
        Ok(Self {
            state: task.state,
            about: text(task.task_json, "task.task_json")?,
            requests: text(task.input_requests_json, "task.input_requests_json")?,
            result: task.result.map(ToolResult::try_from).transpose()?,
            error: text(task.error_json, "task.error_json")?,
            facts: task.facts.ok_or_else(missing)?.try_into()?,
        })
    }
}

pub(super) fn text(bytes: Bytes, field: &'static str) -> Result<String, InvalidMessage> {
    String::from_utf8(bytes.into()).map_err(|_| InvalidMessage::field(field, "is not UTF-8"))
}
