//! What clients hear of their calls and are asked while they run, as the tool-runner's callers see it.

use std::fmt;

use bytes::Bytes;
use wardgate_domain::InvalidMessage;
use wardgate_proto::toolrunner::v1 as pb;

use super::{ConnectTarget, ResultFacts, ToolResult};

/// What a client can take part in while something runs for it.
#[derive(Debug, Clone, Default)]
pub struct Interaction<'a> {
    /// MCP `ClientCapabilities`, a JSON object; none: it can be asked for nothing.
    pub capabilities: Option<&'a str>,
    /// The MCP level from which on it wants log messages.
    pub log_level: Option<&'a str>,
    /// Where something goes on that waited for the client.
    pub resumption: Option<Resumption>,
    /// What goes on to an MCP server as the client wrote it.
    pub passthrough: PassthroughMeta,
    /// It speaks a version before 2026-07-28.
    pub is_legacy: bool,
}

/// What a request carries for an MCP server apart from what it asks for, each as the client wrote it.
#[derive(Clone, Default)]
pub struct PassthroughMeta {
    /// Its `_meta`, a JSON object; empty: none.
    pub meta: Bytes,
    /// Responses to input requests that nobody was waiting for, a JSON object; empty: none.
    pub unsolicited_responses: Bytes,
}

impl fmt::Debug for PassthroughMeta {
    /// Without its contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassthroughMeta")
    }
}

/// Where something goes on that waited for the client.
#[derive(Debug, Clone)]
pub struct Resumption {
    /// That of [`InputRequired`], or of a [`Task`].
    pub state: Bytes,
    /// What the client answered: one JSON object.
    pub responses: Bytes,
    /// What is wanted of a task; none with the state of [`InputRequired`].
    pub task_step: Option<TaskStep>,
}

/// What is wanted of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStep {
    /// How it stands.
    Get,
    /// That it takes the client's answers.
    Update,
    /// That it ends.
    Cancel,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// Steps done.
    pub done: f64,
    /// Of how many, where that is known.
    pub total: Option<f64>,
    /// In words; it may be empty.
    pub message: String,
}

/// A log message of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMessage {
    /// MCP `level`.
    pub level: String,
    /// Who says so, where that is told.
    pub logger: Option<String>,
    /// Any JSON value.
    pub data_json: String,
}

/// What waits for the client.
#[derive(Debug, Clone)]
pub struct InputRequired {
    /// MCP `inputRequests`: a JSON object, which may be empty.
    pub requests: String,
    /// To be brought back, once. It says nothing to anybody else.
    pub state: Bytes,
    /// What the record says of it so far.
    pub facts: ResultFacts,
    /// It waits for the client's user, who has to let this source act in their name: there are no requests and no
    /// state, and once they did, the same is asked for anew.
    pub connect: Option<ConnectTarget>,
}

/// A task of an MCP server, which a call became, or that was looked after.
#[derive(Debug, Clone)]
pub struct Task {
    /// For whoever looks after it again. It says nothing to anybody else.
    pub state: Bytes,
    /// MCP `Task`, a JSON object, without its id, `result`, `error` and `inputRequests`. Empty once it was updated or
    /// cancelled.
    pub about: String,
    /// What it asks its client, MCP `inputRequests`: a JSON object. Empty: nothing.
    pub requests: String,
    /// Of one that is completed.
    pub result: Option<ToolResult>,
    /// Of one that failed, a JSON object; empty: none.
    pub error: String,
    /// What the record says of it so far.
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
