//! One round of a request whose client can take part: from its start, or from the client's answers, up to its result or
//! to what the client is asked next.
//!
//! ```text
//!   modern server:  a request of its own ─▶ result ∣ task ∣ input_required       ─▶ state of the server's
//!   legacy server:  an open exchange, kept going by a task ─▶ result ∣ questions ─▶ the exchange itself, still open
//! ```

mod open_exchange;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_mcp::error_code::URL_ELICITATION_REQUIRED;

use self::open_exchange::MAX_QUESTIONS;
use crate::error::{UpstreamError, UpstreamRpcError};
use crate::fingerprint::ToolFingerprint;
use crate::members::object;
use crate::message::{MemberValue, UpstreamRequest};
use crate::participation::{ClientProfile, Participation};
use crate::responses::Responses;
use crate::result::{RequestOutcome, read_outcome};
use crate::server_task::ServerTask;

pub use self::open_exchange::OpenExchange;

/// What is asked of a server.
#[derive(Debug, Clone)]
pub enum UpstreamOperation {
    /// `tools/call`
    Tool {
        /// Of the tool.
        name: String,
        /// A JSON object.
        arguments: Box<RawValue>,
        /// The approved definition; none: whatever has the name is called.
        pin: Option<Arc<ToolFingerprint>>,
        /// It may become a task, where its client takes one.
        may_be_task: bool,
    },
    /// `prompts/get`
    Prompt {
        /// Of the prompt.
        name: String,
        /// A JSON object.
        arguments: Box<RawValue>,
    },
    /// `resources/read`
    Resource {
        /// Of the resource.
        uri: String,
    },
    /// `skills/get`
    Skill {
        /// Of the skill.
        uri: String,
    },
    /// `resources/list` below a directory
    Directory {
        /// Of the directory.
        uri: String,
        /// Where the page begins.
        cursor: Option<String>,
    },
}

/// Where a round begins.
#[derive(Debug)]
pub enum RoundStart {
    /// From the start.
    Beginning,
    /// With answers that nobody here asked for: of use to a modern server alone, which may know them by their keys.
    Answered(Responses),
    /// A modern server's own state, exactly as it gave it, if it gave any.
    Retry {
        /// As the server sent it.
        state: Option<String>,
        /// To what the server asked.
        responses: Responses,
    },
    /// Goes on in an exchange that is still open.
    Open {
        /// The exchange.
        exchange: OpenExchange,
        /// To what the server asked.
        responses: Responses,
    },
}

/// What a round ends in.
#[derive(Debug)]
pub enum Round {
    /// The result.
    Done(Box<RawValue>),
    /// The server asks the client something first.
    Waits {
        /// MCP `inputRequests`: one JSON object.
        requests: String,
        /// How to go on.
        then: Continuation,
    },
    /// It goes on as a task.
    Task(ServerTask),
}

/// How it goes on once the client has answered.
#[derive(Debug)]
pub enum Continuation {
    /// By the same request again, with the server's own state if it gave any.
    Retry(Option<String>),
    /// Where it stopped.
    Open(OpenExchange),
    /// From the beginning, as nothing was done.
    Again,
}

impl UpstreamOperation {
    pub(super) fn request(&self) -> UpstreamRequest<'_> {
        match self {
            Self::Tool {
                name,
                arguments,
                pin,
                may_be_task,
            } => UpstreamRequest {
                pin: pin.as_deref(),
                offers_tasks: *may_be_task,
                ..UpstreamRequest::new(
                    "tools/call",
                    vec![
                        ("name", MemberValue::Text(name)),
                        ("arguments", MemberValue::Raw(arguments)),
                    ],
                )
            },
            Self::Prompt { name, arguments } => UpstreamRequest::new(
                "prompts/get",
                vec![
                    ("name", MemberValue::Text(name)),
                    ("arguments", MemberValue::Raw(arguments)),
                ],
            ),
            Self::Resource { uri } => {
                UpstreamRequest::new("resources/read", vec![("uri", MemberValue::Text(uri))])
            }
            Self::Skill { uri } => {
                UpstreamRequest::new("skills/get", vec![("uri", MemberValue::Text(uri))])
            }
            Self::Directory { uri, cursor } => {
                let cursor = cursor.iter().map(|at| ("cursor", MemberValue::Text(at)));
                let members = [("uri", MemberValue::Text(uri))].into_iter().chain(cursor);
                UpstreamRequest::new("resources/directory/read", members.collect())
            }
        }
    }
}

/// What becomes of the answer to a request.
pub(super) fn end(
    outcome: Result<Box<RawValue>, UpstreamError>,
    client: &Participation,
    may_be_task: bool,
) -> Result<Round, UpstreamError> {
    match outcome {
        Ok(result) => Ok(match read_outcome(result, client, may_be_task)? {
            RequestOutcome::Complete(result) => Round::Done(result),
            RequestOutcome::Task(task) => Round::Task(ServerTask::begun(&task)?),
            RequestOutcome::InputRequired { requests, state } => Round::Waits {
                requests,
                then: Continuation::Retry(state),
            },
        }),
        Err(UpstreamError::Rpc(error)) => match urls(&error, client.capabilities.profile) {
            Some(requests) => Ok(Round::Waits {
                requests,
                then: Continuation::Again,
            }),
            None => Err(UpstreamError::Rpc(error)),
        },
        Err(error) => Err(error),
    }
}

/// The elicitations that a server asks for by an error, where the client takes part in them.
fn urls(error: &UpstreamRpcError, profile: ClientProfile) -> Option<String> {
    #[derive(Deserialize)]
    struct ElicitationData {
        elicitations: Vec<Box<RawValue>>,
    }
    if error.code != URL_ELICITATION_REQUIRED {
        return None;
    }
    let data: ElicitationData = serde_json::from_str(error.data.as_deref()?.get()).ok()?;
    let elicitations = &data.elicitations;
    let is_of_mode = |params: &RawValue| {
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        params["mode"] == "url" && params["url"].is_string()
    };
    let is_covered = (1..=MAX_QUESTIONS).contains(&elicitations.len())
        && elicitations
            .iter()
            .all(|one| is_of_mode(one) && profile.covers("elicitation/create", Some(one)));
    let numbered = (1..).zip(elicitations);
    let requests =
        numbered.map(|(number, params)| (number, written("elicitation/create", Some(params))));
    is_covered.then(|| by_number(requests))
}

/// A request to the client, as one of `inputRequests`.
pub(super) fn written(method: &str, params: Option<&RawValue>) -> String {
    let params = params.map(|params| ("params", params.get().to_owned()));
    let method = ("method", Value::from(method).to_string());
    object([method].into_iter().chain(params))
}

/// `inputRequests`, their keys the numbers.
pub(super) fn by_number(requests: impl Iterator<Item = (u64, String)>) -> String {
    let requests: Vec<_> = requests
        .map(|(number, request)| (number.to_string(), request))
        .collect();
    let requests = requests.iter();
    object(requests.map(|(key, request)| (key.as_str(), request.clone())))
}
