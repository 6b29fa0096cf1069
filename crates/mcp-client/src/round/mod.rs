//! One round of a request whose client can take part: from the start, or from the client's responses, to the result or to the
//! next requests for input.
//!
//! ```text
//!   modern server:  a separate request   ─▶ result ∣ task ∣ input_required       ─▶ the server's state
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

/// A request to a server.
#[derive(Debug, Clone)]
pub enum UpstreamOperation {
    /// `tools/call`
    Tool {
        /// The name of the tool.
        name: String,
        /// The arguments, a JSON object.
        arguments: Box<RawValue>,
        /// The fingerprint of the approved definition, or `None` to call any tool of that name.
        pin: Option<Arc<ToolFingerprint>>,
        /// Whether the call may become a task, if the client supports tasks.
        may_be_task: bool,
    },
    /// `prompts/get`
    Prompt {
        /// The name of the prompt.
        name: String,
        /// The arguments, a JSON object.
        arguments: Box<RawValue>,
    },
    /// `resources/read`
    Resource {
        /// The URI of the resource.
        uri: String,
    },
    /// `skills/get`
    Skill {
        /// The URI of the skill.
        uri: String,
    },
    /// `resources/directory/read`
    Directory {
        /// The URI of the directory.
        uri: String,
        /// The cursor of the page, or `None` for the first page.
        cursor: Option<String>,
    },
}

/// The start of a round.
#[derive(Debug)]
pub enum RoundStart {
    /// The beginning of the request.
    Beginning,
    /// The beginning of the request, with unsolicited responses. Only a modern server can use them, if it knows their keys.
    Answered(Responses),
    /// A retry of the request at a modern server.
    Retry {
        /// The state exactly as the server sent it, or `None` if it sent none.
        state: Option<String>,
        /// The responses to the requests of the server.
        responses: Responses,
    },
    /// The continuation of an exchange that is still open.
    Open {
        /// The exchange.
        exchange: OpenExchange,
        /// The responses to the requests of the server.
        responses: Responses,
    },
}

/// The outcome of a round.
#[derive(Debug)]
pub enum Round {
    /// The result.
    Done(Box<RawValue>),
    /// The server requests input from the client first.
    Waits {
        /// MCP `inputRequests`, a JSON object.
        requests: String,
        /// The continuation after the responses.
        then: Continuation,
    },
    /// The request continues as a task.
    Task(ServerTask),
}

/// The continuation of a request after the client has responded.
#[derive(Debug)]
pub enum Continuation {
    /// The same request is sent again, with the state of the server if it sent any.
    Retry(Option<String>),
    /// The open exchange continues.
    Open(OpenExchange),
    /// The request starts again, because nothing was done.
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

/// Converts the outcome of a request to the outcome of a round.
pub(super) fn end(
    outcome: Result<Box<RawValue>, UpstreamError>,
    client: &Participation,
    may_be_task: bool,
) -> Result<Round, UpstreamError> {
    match outcome {
        Ok(result) => Ok(match read_outcome(result, client, may_be_task)? {
            RequestOutcome::Complete(result) => Round::Done(result),
            RequestOutcome::Task(task) => Round::Task(ServerTask::from_result(&task)?),
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

/// Returns the URL elicitations that a server requests by an error, or `None` if the client does not support them.
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
    let requests = numbered
        .map(|(number, params)| (number, input_request("elicitation/create", Some(params))));
    is_covered.then(|| by_number(requests))
}

/// Returns a request to the client as an entry of `inputRequests`.
pub(super) fn input_request(method: &str, params: Option<&RawValue>) -> String {
    let params = params.map(|params| ("params", params.get().to_owned()));
    let method = ("method", Value::from(method).to_string());
    object([method].into_iter().chain(params))
}

/// Returns an object `inputRequests` whose keys are the numbers.
pub(super) fn by_number(requests: impl Iterator<Item = (u64, String)>) -> String {
    let requests: Vec<_> = requests
        .map(|(number, request)| (number.to_string(), request))
        .collect();
    let requests = requests.iter();
    object(requests.map(|(key, request)| (key.as_str(), request.clone())))
}
