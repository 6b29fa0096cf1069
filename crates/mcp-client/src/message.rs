//! JSON-RPC messages with raw members: parameters and results are never parsed here, so that all digits, unknown members and the
//! order of members are kept.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_mcp::error_code::{INTERNAL_ERROR, METHOD_NOT_FOUND};
use wardgate_mcp::message::{Envelope, OutgoingMessage};
use wardgate_mcp::{Era, Version};
use wardgate_telemetry::trace_context::TraceContext;

use super::error::{UpstreamError, UpstreamRpcError};
use super::participation::{LogLevel, Participation};
use super::passthrough_members::PassthroughMembers;
use crate::fingerprint::ToolFingerprint;

/// Maximum size of a message from a server in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Maximum nesting depth of a message from a server. Code that parses the members of a message has its own
/// limit, or does not need one.
const MAX_DEPTH: usize = 10_000;

/// The version without a handshake and sessions.
pub(super) const MODERN: &str = Version::V2026_07_28.as_str();

/// Time for which the server is asked to keep a task, in milliseconds.
const TASK_TTL: u64 = 15 * 60 * 1000;

/// A request without an id. `members` are those of `params` without `_meta`.
#[derive(Debug)]
pub(super) struct UpstreamRequest<'a> {
    pub(super) method: &'static str,
    pub(super) members: Vec<(&'static str, MemberValue<'a>)>,
    /// The arguments that 2026-07-28 repeats as headers over HTTP.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The fingerprint of the approved definition of the tool to call, or `None` to call any tool of that name.
    pub(super) pin: Option<&'a ToolFingerprint>,
    /// The interaction that the client supports, or `None` if it supports none.
    pub(super) participation: Option<&'a Participation>,
    /// Whether the request begins a task of 2025-11-25, which has to be followed to its end.
    pub(super) is_task: bool,
    /// Whether the request may become a task, if the client supports tasks.
    pub(super) offers_tasks: bool,
}

/// The value of one member.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum MemberValue<'a> {
    Text(&'a str),
    Raw(&'a RawValue),
    Json(Value),
}

struct Params<'a> {
    members: &'a [(&'static str, MemberValue<'a>)],
    meta: OutgoingMeta<'a>,
}

/// The `_meta` of a request.
#[derive(Default, Serialize)]
struct OutgoingMeta<'a> {
    #[serde(rename = "progressToken", skip_serializing_if = "Option::is_none")]
    progress_token: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    modern: Option<ModernMeta<'a>>,
    /// The other members that the client sent.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    others: Option<&'a PassthroughMembers>,
    /// The trace context if calls are traced. It is in the message because a program receives no headers.
    #[serde(flatten)]
    trace: TraceContext,
}

/// The members of `_meta` that every request of 2026-07-28 has.
#[derive(Serialize)]
struct ModernMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'static str,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    client: Value,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: MemberValue<'a>,
    #[serde(
        rename = "io.modelcontextprotocol/logLevel",
        skip_serializing_if = "Option::is_none"
    )]
    log_level: Option<&'static str>,
}

impl Params<'_> {
    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.meta.is_empty()
    }
}

impl OutgoingMeta<'_> {
    fn is_empty(&self) -> bool {
        self.progress_token.is_none()
            && self.modern.is_none()
            && self.others.is_none()
            && self.trace.is_empty()
    }
}

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, part) in self.members {
            map.serialize_entry(name, part)?;
        }
        if !self.meta.is_empty() {
            map.serialize_entry("_meta", &self.meta)?;
        }
        map.end()
    }
}

/// Returns the MCP `Implementation` of this client.
pub(super) fn client_info() -> Value {
    serde_json::json!({ "name": "wardgate", "version": env!("CARGO_PKG_VERSION") })
}

impl<'a> UpstreamRequest<'a> {
    pub(super) fn new(method: &'static str, members: Vec<(&'static str, MemberValue<'a>)>) -> Self {
        Self {
            method,
            members,
            headers: Vec::new(),
            pin: None,
            participation: None,
            is_task: false,
            offers_tasks: false,
        }
    }

    /// Sets the client that can take part in the request.
    pub(super) fn with(self, participation: &'a Participation) -> Self {
        Self {
            participation: Some(participation),
            ..self
        }
    }

    /// Makes the request begin a task if `is_task`.
    pub(super) fn task_if(mut self, is_task: bool) -> Self {
        self.is_task = is_task;
        let ttl = || {
            (
                "task",
                MemberValue::Json(serde_json::json!({ "ttl": TASK_TTL })),
            )
        };
        self.members.extend(is_task.then(ttl));
        self
    }

    /// Allows the request to become a task, or marks it as being about one, if `offers_tasks`.
    pub(super) fn offering_tasks(self, offers_tasks: bool) -> Self {
        Self {
            offers_tasks,
            ..self
        }
    }

    /// Returns the lowest level of the log messages that the client asks for.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        self.participation?.log_level
    }

    /// Returns the name, URI or task id in the request, for methods that have one.
    pub(super) fn subject(&self) -> Option<&'a str> {
        let member = match self.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        self.members.iter().find_map(|(name, part)| match part {
            MemberValue::Text(text) if *name == member => Some(*text),
            _ => None,
        })
    }

    /// Returns whether a message outside of responses can be about this request. Lists are not requested on behalf of a client.
    pub(super) fn is_talked_about(&self) -> bool {
        let is_of_connection = matches!(self.method, "logging/setLevel" | "subscriptions/listen");
        !self.opens() && !is_of_connection && !self.method.ends_with("/list")
    }

    /// Returns whether the request opens a connection. Such requests are never cancelled.
    pub(super) fn opens(&self) -> bool {
        matches!(self.method, "server/discover" | "initialize")
    }

    /// Encodes the request. The id is also the progress token.
    pub(super) fn encode(
        &self,
        id: u64,
        era: Era,
        wants_progress: bool,
    ) -> Result<Vec<u8>, UpstreamError> {
        let modern = (era == Era::Modern).then(|| ModernMeta {
            version: MODERN,
            client: client_info(),
            capabilities: match self.participation {
                Some(client) => MemberValue::Raw(client.capabilities.as_json(self.offers_tasks)),
                None => MemberValue::Json(Value::Object(serde_json::Map::new())),
            },
            log_level: self
                .participation
                .and_then(|client| client.log_level)
                .map(LogLevel::as_str),
        });
        let meta = OutgoingMeta {
            progress_token: wants_progress.then_some(id),
            modern,
            others: self
                .participation
                .map(|client| &client.others)
                .filter(|others| !others.is_empty()),
            trace: TraceContext::current(),
        };
        encode(Some(id), self.method, &self.members, meta)
    }
}

/// Encodes a notification, for a legacy server or over stdio.
pub(super) fn notification(
    method: &str,
    members: &[(&'static str, MemberValue<'_>)],
) -> Result<Vec<u8>, UpstreamError> {
    encode(None, method, members, OutgoingMeta::default())
}

/// Encodes the notification that request `id` is cancelled.
pub(super) fn cancelled_notification(id: u64) -> Result<Vec<u8>, UpstreamError> {
    let members = [("requestId", MemberValue::Json(id.into()))];
    notification("notifications/cancelled", &members)
}

fn encode(
    id: Option<u64>,
    method: &str,
    members: &[(&'static str, MemberValue<'_>)],
    meta: OutgoingMeta<'_>,
) -> Result<Vec<u8>, UpstreamError> {
    let params = Some(Params { members, meta }).filter(|params| !params.is_empty());
    let message = OutgoingMessage::new(id, method, params);
    serde_json::to_vec(&message)
        .map_err(|_| UpstreamError::Unreachable("the request cannot be written as JSON".to_owned()))
}

/// A message of a server.
#[derive(Debug)]
pub(super) enum IncomingMessage<'a> {
    /// A response, with the id if it has the form of ids of this client.
    Response {
        id: Option<u64>,
        outcome: Result<&'a RawValue, UpstreamError>,
    },
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
}

/// Reads the messages in `text`: one, or those of a batch (2025-03-26). The error describes the problem
/// without any part of the text.
pub(super) fn read_messages(text: &[u8]) -> Result<Vec<IncomingMessage<'_>>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    if depth(text) > MAX_DEPTH {
        return Err("it is nested too deeply");
    }
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => Ok(vec![read_one(text)?]),
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(text)
            .map_err(|_| "it is not JSON")?
            .into_iter()
            .map(|message| read_one(message.get()))
            .collect(),
        _ => Err("it is not a JSON object"),
    }
}

fn read_one(text: &str) -> Result<IncomingMessage<'_>, &'static str> {
    let envelope = Envelope::parse(text).ok_or("it is not a JSON-RPC message")?;
    if let Some(method) = envelope.method {
        return Ok(match envelope.id {
            Some(id) => IncomingMessage::Request {
                id,
                method,
                params: envelope.params,
            },
            None => IncomingMessage::Notification {
                method,
                params: envelope.params,
            },
        });
    }
    let outcome = match (envelope.result, envelope.error) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) => Err(
            serde_json::from_str::<UpstreamRpcError>(error.get()).map_or(
                UpstreamError::BadResult("its error is not a JSON-RPC error"),
                UpstreamError::Rpc,
            ),
        ),
        _ => Err(UpstreamError::BadResult(
            "it must contain either a result or an error",
        )),
    };
    let id = envelope.id.and_then(|id| id.get().parse().ok());
    Ok(IncomingMessage::Response { id, outcome })
}

/// Returns the maximum nesting depth of brackets in `text`.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Encodes the client's response to a request of a server.
pub(super) fn encode_response(id: &RawValue, result: &RawValue) -> Result<Vec<u8>, UpstreamError> {
    own_message(&OutgoingResponse {
        jsonrpc: "2.0",
        id,
        result: Some(MemberValue::Raw(result)),
        error: None,
    })
}

/// Encodes the response to a request of a server that no client can respond to.
pub(super) fn unavailable(id: &RawValue) -> Result<Vec<u8>, UpstreamError> {
    not_asked(id, "the client cannot be asked for input now")
}

/// Encodes the response to a request of a server that cannot be assigned to a client.
pub(super) fn unclear(id: &RawValue) -> Result<Vec<u8>, UpstreamError> {
    not_asked(
        id,
        "several requests are in progress: send the request on the stream of the request to which it belongs",
    )
}

fn not_asked(id: &RawValue, why: &str) -> Result<Vec<u8>, UpstreamError> {
    own_message(&OutgoingResponse {
        jsonrpc: "2.0",
        id,
        result: None,
        error: Some(serde_json::json!({ "code": INTERNAL_ERROR, "message": why })),
    })
}

/// A response to a request of a server.
#[derive(Serialize)]
struct OutgoingResponse<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<MemberValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

fn own_message(answer: &OutgoingResponse<'_>) -> Result<Vec<u8>, UpstreamError> {
    serde_json::to_vec(answer)
        .map_err(|_| UpstreamError::BadResult("its request has an invalid id"))
}

/// Encodes the response to any other request of a server: an empty result for `ping`, and an error for
/// methods that were not offered.
pub(crate) fn answer(id: &RawValue, method: &str) -> Result<Vec<u8>, UpstreamError> {
    let is_ping = method == "ping";
    own_message(&OutgoingResponse {
        jsonrpc: "2.0",
        id,
        result: is_ping.then(|| MemberValue::Json(serde_json::json!({}))),
        error: (!is_ping).then(|| {
            serde_json::json!({ "code": METHOD_NOT_FOUND, "message": "this client does not support the method" })
        }),
    })
}

/// Returns `message` on one line. A line break outside of JSON strings is only white space, and a JSON string cannot contain one.
pub(super) fn one_line(mut message: Vec<u8>) -> Vec<u8> {
    for byte in &mut message {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    message.push(b'\n');
    message
}
