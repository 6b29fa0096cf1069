//! The result of a call as the server gave it.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_mcp::meta;

use super::error::UpstreamError;
use super::members::members_except;
use super::participation::{ClientProfile, Participation};

/// What a tool of an upstream server answered; each part byte for byte.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// A JSON array; none when there is structured content alone.
    pub content: Option<Box<RawValue>>,
    /// `structuredContent`
    pub structured: Option<Box<RawValue>>,
    /// `isError`
    pub is_error: bool,
    /// `_meta`
    pub meta: Option<Box<RawValue>>,
}

/// Members of a result that are written anew for the client, or mean something on the hop to the server alone.
const OF_RESULT: [&str; 7] = [
    "content",
    "structuredContent",
    "isError",
    "resultType",
    "_meta",
    "inputRequests",
    "requestState",
];

/// Members of the `_meta` of a result that are of the hop to the server.
const META_OF_HOP: [&str; 2] = [meta::SERVER_INFO, meta::RELATED_TASK];

/// The members of `result` besides those that [`CallResult`] has, as one JSON object; none where there are none. Each is
/// there byte for byte.
pub fn other_members(result: &RawValue) -> Result<Option<String>, UpstreamError> {
    members_but(result, |name| OF_RESULT.contains(&name))
}

/// The members of the `_meta` of a result that are for the client, as one JSON object.
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
        .map_err(|_| UpstreamError::BadResult("its result cannot be read"))
}

impl CallResult {
    /// Reads the result of a call that is complete.
    pub fn read(result: &RawValue) -> Result<Self, UpstreamError> {
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
            .map_err(|_| UpstreamError::BadResult("its result cannot be read"))?;
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

/// Structured content may be any JSON, `null` among it.
fn even_if_null<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Most requests of one `input_required`.
const MAX_REQUESTS: usize = 32;

/// What the result of a request with a client is.
pub(super) enum RequestOutcome {
    Complete(Box<RawValue>),
    InputRequired {
        /// One JSON object, byte for byte where the server gave one.
        requests: String,
        state: Option<String>,
    },
    /// What was asked for goes on as a task.
    Task(Box<RawValue>),
}

/// Takes the final result, or what the server needs of the client first; where `may_be_task`, a task too. Nothing else,
/// and nothing of that which the client did not offer.
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
            "its `input_required` says neither what it needs nor how to go on",
        ));
    }
    let requests = requests.map_or_else(|| "{}".to_owned(), |requests| requests.get().to_owned());
    check_asked(&requests, client.capabilities.profile)?;
    Ok(RequestOutcome::InputRequired { requests, state })
}

const UNREADABLE: UpstreamError =
    UpstreamError::BadResult("what it asks its client for cannot be read");

/// Refuses `inputRequests` of which the client did not offer everything.
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
        return Err(UpstreamError::BadResult("it asks for too much at once"));
    }
    let mut requests = requests.values();
    if !requests.all(|one| profile.covers(&one.method, one.params.as_deref())) {
        return Err(UpstreamError::BadResult(
            "it asks its client for what the client did not offer",
        ));
    }
    Ok(())
}

/// Refuses a result that is not the final one.
pub(crate) fn check_complete(result: &RawValue) -> Result<(), UpstreamError> {
    check_kind(kind(result)?.as_deref())
}

fn check_kind(kind: Option<&str>) -> Result<(), UpstreamError> {
    match kind {
        None | Some("complete") => Ok(()),
        Some("input_required") => Err(UpstreamError::InputRequired),
        Some(_) => Err(UpstreamError::BadResult(
            "its result is of a kind that was not asked for",
        )),
    }
}

/// What it says of itself that it is.
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
    let read = read.map_err(|_| UpstreamError::BadResult("its result cannot be read"))?;
    Ok(read.kind)
}
