//! The results of calls as the server sent them.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_mcp::meta;

use super::error::UpstreamError;
use super::members::members_except;
use super::participation::{ClientProfile, Participation};

/// The result of a tool call of an upstream server. Each part is byte for byte as sent.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// `content`, a JSON array, or `None` if there is only structured content.
    pub content: Option<Box<RawValue>>,
    /// `structuredContent`
    pub structured: Option<Box<RawValue>>,
    /// `isError`
    pub is_error: bool,
    /// `_meta`
    pub meta: Option<Box<RawValue>>,
}

/// Members of a result that are written again for the client, or that concern only the hop to the server.
const OF_RESULT: [&str; 7] = [
    "content",
    "structuredContent",
    "isError",
    "resultType",
    "_meta",
    "inputRequests",
    "requestState",
];

/// Members of the `_meta` of a result that concern only the hop to the server.
const META_OF_HOP: [&str; 2] = [meta::SERVER_INFO, meta::RELATED_TASK];

/// Returns the members of `result` that are not in [`CallResult`] as a JSON object, each byte for byte, or
/// `None` if there are none.
pub fn other_members(result: &RawValue) -> Result<Option<String>, UpstreamError> {
    members_but(result, |name| OF_RESULT.contains(&name))
}

/// Returns the members of the `_meta` of a result that are for the client as a JSON object, or `None` if there are none.
pub fn meta_for_client(meta: &RawValue) -> Result<Option<String>, UpstreamError> {
    members_but(meta, |name| {
        META_OF_HOP.contains(&name) || name.starts_with(meta::GATEWAY_PREFIX)
    })
}

fn members_but(
    object: &RawValue,
    is_left_out: impl Fn(&str) -> bool,
) -> Result<Option<String>, UpstreamError> {
    members_except(object, is_left_out)
        .map_err(|_| UpstreamError::BadResult("its result is not valid"))
}

impl CallResult {
    /// Reads the complete result of a call.
    pub fn parse(result: &RawValue) -> Result<Self, UpstreamError> {
        #[derive(Deserialize)]
        struct ResultMembers {
            #[serde(default)]
            content: Option<Box<RawValue>>,
            #[serde(
                default,
                rename = "structuredContent",
                deserialize_with = "even_if_null"
            )]
            structured: Option<Box<RawValue>>,
            #[serde(default, rename = "isError")]
            is_error: bool,
            #[serde(default, rename = "_meta")]
            meta: Option<Box<RawValue>>,
        }
        let parts: ResultMembers = serde_json::from_str(result.get())
            .map_err(|_| UpstreamError::BadResult("its result is not valid"))?;
        match &parts.content {
            Some(content) if !content.get().starts_with('[') => {
                return Err(UpstreamError::BadResult("its `content` is not a list"));
            }
            None if parts.structured.is_none() => {
                return Err(UpstreamError::BadResult("its result has no `content`"));
            }
            _ => {}
        }
        Ok(Self {
            content: parts.content,
            structured: parts.structured,
            is_error: parts.is_error,
            meta: parts.meta,
        })
    }
}

/// Deserializes structured content, which may be any JSON value including `null`.
fn even_if_null<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Maximum number of requests in one `input_required` result.
const MAX_REQUESTS: usize = 32;

/// The outcome of a request whose client can take part.
pub(super) enum RequestOutcome {
    Complete(Box<RawValue>),
    InputRequired {
        /// The input requests, a JSON object, byte for byte as sent if the server sent one.
        requests: String,
        state: Option<String>,
    },
    /// The request continues as a task.
    Task(Box<RawValue>),
}

/// Reads a final result, an `input_required` result, or, if `may_be_task`, a task. Any other result is an error, and so are input
/// requests that the client's capabilities do not cover.
pub(super) fn read_outcome(
    result: Box<RawValue>,
    client: &Participation,
    may_be_task: bool,
) -> Result<RequestOutcome, UpstreamError> {
    #[derive(Deserialize)]
    struct InputRequired {
        #[serde(default, rename = "inputRequests")]
        requests: Option<Box<RawValue>>,
        #[serde(default, rename = "requestState")]
        state: Option<String>,
    }
    let kind = kind(&result)?;
    if may_be_task && kind.as_deref() == Some("task") {
        return Ok(RequestOutcome::Task(result));
    }
    match check_kind(kind.as_deref()) {
        Err(UpstreamError::InputRequired) => {}
        complete => return complete.map(|()| RequestOutcome::Complete(result)),
    }
    let InputRequired { requests, state } =
        serde_json::from_str(result.get()).map_err(|_| UNREADABLE)?;
    if requests.is_none() && state.is_none() {
        return Err(UpstreamError::BadResult(
            "its `input_required` contains neither requests for input nor a state",
        ));
    }
    let requests = requests.map_or_else(|| "{}".to_owned(), |requests| requests.get().to_owned());
    check_asked(&requests, client.capabilities.profile)?;
    Ok(RequestOutcome::InputRequired { requests, state })
}

const UNREADABLE: UpstreamError = UpstreamError::BadResult("its requests for input are not valid");

/// Returns an error if `requests`, an MCP object `inputRequests`, contains a request that `profile` does not cover.
pub(super) fn check_asked(requests: &str, profile: ClientProfile) -> Result<(), UpstreamError> {
    #[derive(Deserialize)]
    struct RequestedInput {
        method: String,
        #[serde(default)]
        params: Option<Box<RawValue>>,
    }
    let requests: HashMap<String, RequestedInput> =
        serde_json::from_str(requests).map_err(|_| UNREADABLE)?;
    if requests.len() > MAX_REQUESTS {
        return Err(UpstreamError::BadResult(
            "it requests too much input at once",
        ));
    }
    let mut requests = requests.values();
    if !requests.all(|one| profile.covers(&one.method, one.params.as_deref())) {
        return Err(UpstreamError::BadResult(
            "it requests input that the client does not support",
        ));
    }
    Ok(())
}

/// Returns an error if a result is not final.
pub(crate) fn check_complete(result: &RawValue) -> Result<(), UpstreamError> {
    check_kind(kind(result)?.as_deref())
}

fn check_kind(kind: Option<&str>) -> Result<(), UpstreamError> {
    match kind {
        None | Some("complete") => Ok(()),
        Some("input_required") => Err(UpstreamError::InputRequired),
        Some(_) => Err(UpstreamError::BadResult(
            "its result has a type that was not requested",
        )),
    }
}

/// Returns the `resultType` of a result.
fn kind(result: &RawValue) -> Result<Option<String>, UpstreamError> {
    #[derive(Deserialize)]
    struct ResultKind {
        #[serde(default, rename = "resultType")]
        kind: Option<String>,
    }
    if !result.get().starts_with('{') {
        return Err(UpstreamError::BadResult("its result is not an object"));
    }
    let read = serde_json::from_str::<ResultKind>(result.get());
    let read = read.map_err(|_| UpstreamError::BadResult("its result is not valid"))?;
    Ok(read.kind)
}
