//! HTTP responses to JSON-RPC messages. The formats of results in all protocol versions are defined here only.

use std::fmt::Write;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{CallId, DecisionId, Reason};
use wardgate_mcp::Version;
use wardgate_mcp::header::{EVENT_STREAM, JSON, SESSION_ID};
use wardgate_rpc::client::ToolResult;

use crate::call_meta::{RecordStatus, write_call, write_dropped};
use crate::event_stream::format_event;
use crate::older_content;
use crate::rpc_error::{Remedy, RpcError};

/// Header that tells proxies not to buffer a stream.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// MCP `Implementation` of the gateway.
pub const SERVER_INFO: &str = concat!(
    r#"{"name":"wardgate","title":"Wardgate","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);

/// Returns the MCP `Implementation` of the gateway for `version`: before 2025-06-18, it has no title.
pub fn server_info(version: Version) -> &'static str {
    if version.has_titles() {
        SERVER_INFO
    } else {
        concat!(
            r#"{"name":"wardgate","version":""#,
            env!("CARGO_PKG_VERSION"),
            r#""}"#
        )
    }
}

/// The format in which a client wants the result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// The result format of MCP.
    Mcp,
    /// The structured content as the result, and errors as JSON-RPC errors, for clients that call a tool as a method.
    Direct,
}

/// A complete HTTP response to a JSON-RPC message or to a batch.
#[derive(Debug)]
pub struct McpResponse {
    http: StatusCode,
    body: McpResponseBody,
    /// The reasons why the message, or messages of the batch, were refused before they became a call.
    refused: Vec<&'static str>,
    /// What the client could do about an error. Some remedies add a header.
    remedy: Option<Box<Remedy>>,
    /// The value of `Mcp-Session-Id`, if the response begins a session.
    session: Option<HeaderValue>,
    /// Whether the response says that something does not exist.
    is_of_unknown: bool,
}

/// The body of a response.
#[derive(Debug)]
enum McpResponseBody {
    /// No body, because the messages expect no response.
    Nothing,
    Json(String),
    /// A stream of messages.
    Events(Body),
}

impl McpResponse {
    /// Creates the response to notifications: 202 without a body.
    pub fn accepted_without_body() -> Self {
        Self {
            http: StatusCode::ACCEPTED,
            body: McpResponseBody::Nothing,
            refused: Vec::new(),
            remedy: None,
            session: None,
            is_of_unknown: false,
        }
    }

    /// Creates a response with status 200 and `body`.
    fn ok(body: String) -> Self {
        Self {
            http: StatusCode::OK,
            body: McpResponseBody::Json(body),
            refused: Vec::new(),
            remedy: None,
            session: None,
            is_of_unknown: false,
        }
    }

    /// Creates a response with status 200 and a stream of messages.
    pub fn events(stream: Body) -> Self {
        Self {
            body: McpResponseBody::Events(stream),
            ..Self::ok(String::new())
        }
    }

    /// Creates a result. `members` are the members of the result object without braces; before 2026-07-28, at least one.
    pub fn result(id: &RawValue, version: Version, members: &str) -> Self {
        Self::result_with_meta(id, version, members, "")
    }

    /// Creates a result like [`Self::result`] with `meta` in its `_meta`: one member, or an empty string.
    pub fn result_with_meta(id: &RawValue, version: Version, members: &str, meta: &str) -> Self {
        if version.is_modern() {
            return Self::modern_result(id, "complete", members, meta);
        }
        let mut body = String::with_capacity(members.len() + meta.len() + 64);
        open(&mut body, Some(id));
        body.push_str(r#","result":{"#);
        if !meta.is_empty() {
            body.push_str(r#""_meta":{"#);
            body.push_str(meta);
            body.push_str("},");
        }
        body.push_str(members);
        body.push_str("}}");
        Self::ok(body)
    }

    /// Creates an `input_required` result, with requests for a client that responds with `state`.
    pub fn input_required(
        id: &RawValue,
        input_requests: Option<&str>,
        state: &str,
        meta: &str,
    ) -> Self {
        let mut members = String::new();
        if let Some(input_requests) = input_requests {
            members.push_str(r#""inputRequests":"#);
            members.push_str(input_requests);
            members.push(',');
        }
        members.push_str(r#""requestState":"#);
        push_json_text(&mut members, state);
        Self::modern_result(id, "input_required", &members, meta)
    }

    /// Creates the result that announces the task that a call became.
    pub fn task(id: &RawValue, members: &str, meta: &str) -> Self {
        Self::modern_result(id, "task", members, meta)
    }

    fn modern_result(id: &RawValue, kind: &str, members: &str, meta: &str) -> Self {
        let mut body = String::with_capacity(members.len() + meta.len() + 192);
        open(&mut body, Some(id));
        body.push_str(r#","result":{"resultType":""#);
        body.push_str(kind);
        body.push_str(r#"","_meta":{"io.modelcontextprotocol/serverInfo":"#);
        body.push_str(SERVER_INFO);
        if !meta.is_empty() {
            body.push(',');
            body.push_str(meta);
        }
        body.push('}');
        if !members.is_empty() {
            body.push(',');
            body.push_str(members);
        }
        body.push_str("}}");
        Self::ok(body)
    }

    /// Creates the empty result of `ping`.
    pub fn empty(id: &RawValue) -> Self {
        let mut body = String::new();
        open(&mut body, Some(id));
        body.push_str(r#","result":{}}"#);
        Self::ok(body)
    }

    /// Creates an error response, without an id if the id of the request could not be read.
    pub fn error(id: Option<&RawValue>, error: &RpcError) -> Self {
        let mut body = String::with_capacity(192);
        open(&mut body, id);
        // Writing to a string cannot fail.
        let _ = write!(body, r#","error":{{"code":{},"message":"#, error.code);
        push_json_text(&mut body, &error.message);
        if let Some(data) = &error.data {
            body.push_str(r#","data":"#);
            body.push_str(data);
        }
        body.push_str("}}");
        Self {
            http: error.http,
            body: McpResponseBody::Json(body),
            refused: if error.of_call {
                Vec::new()
            } else {
                vec![error.reason.as_str()]
            },
            remedy: error.remedy.clone(),
            session: None,
            is_of_unknown: error.is_of_unknown,
        }
    }

    /// Creates the result of a call. It requires the status of the audit record because an unrecorded result
    /// must not leave the gateway.
    pub fn call_result(
        id: &RawValue,
        version: Version,
        call_id: CallId,
        recorded: RecordStatus,
        result: &ToolResult,
    ) -> Self {
        let mut body = String::with_capacity(result.content.len() + 512);
        open(&mut body, Some(id));
        body.push_str(r#","result":{"#);
        if version.is_modern() {
            body.push_str(r#""resultType":"complete","#);
        }
        write_tool_result(&mut body, version, result);
        body.push_str(r#","_meta":{"#);
        if version.is_modern() {
            body.push_str(r#""io.modelcontextprotocol/serverInfo":"#);
            body.push_str(SERVER_INFO);
            body.push(',');
        }
        write_call(&mut body, call_id, recorded.receipt(), None);
        write_dropped(&mut body, result.facts.dropped_columns);
        write_members(&mut body, &result.meta);
        body.push_str("}}}");
        Self::ok(body)
    }

    /// Creates the response for a JSON-RPC error, one JSON object, of an upstream, with a code that the version has. The id of
    /// the call is added if `data` of the error is an object or absent.
    pub fn protocol_error(
        id: &RawValue,
        version: Version,
        call_id: CallId,
        recorded: RecordStatus,
        error: &[u8],
    ) -> Self {
        #[derive(serde::Deserialize)]
        struct UpstreamErrorMembers<'a> {
            code: i64,
            #[serde(borrow)]
            message: &'a RawValue,
            #[serde(borrow, default)]
            data: Option<&'a RawValue>,
        }
        let Ok(said) = serde_json::from_slice::<UpstreamErrorMembers<'_>>(error) else {
            let error = RpcError::internal(Reason::TOOL_ERROR, "The tool reported an error.");
            return Self::error(Some(id), &error.of_call(call_id, recorded.receipt()));
        };
        let code = crate::rpc_error::code_in(version, said.code);
        let mut body = String::with_capacity(error.len() + 256);
        open(&mut body, Some(id));
        let message = said.message;
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            r#","error":{{"code":{code},"message":{message},"data":"#
        );
        match said.data {
            Some(data) if !data.get().starts_with('{') => body.push_str(data.get()),
            data => {
                body.push('{');
                write_call(&mut body, call_id, recorded.receipt(), None);
                write_members(&mut body, data.map_or(b"", |data| data.get().as_bytes()));
                body.push('}');
            }
        }
        body.push_str("}}");
        Self::ok(body)
    }

    /// Creates the result of a call by method name: `{"data":[…],"_meta":{…}}`, or an error with the message of the tool.
    pub fn direct(
        id: &RawValue,
        call_id: CallId,
        recorded: RecordStatus,
        result: &ToolResult,
    ) -> Self {
        if result.is_error {
            let content: Vec<Value> = serde_json::from_slice(&result.content).unwrap_or_default();
            let text = content.first().and_then(|block| block["text"].as_str());
            let error = RpcError::internal(Reason::TOOL_ERROR, text.unwrap_or("The tool failed."));
            return Self::error(Some(id), &error.of_call(call_id, recorded.receipt()));
        }
        let structured = String::from_utf8_lossy(&result.structured_content);
        let content = format!(
            r#"{{"content":{}"#,
            String::from_utf8_lossy(&result.content)
        );
        let members = structured.strip_suffix('}').unwrap_or(&content);
        let mut body = String::with_capacity(members.len() + 256);
        open(&mut body, Some(id));
        body.push_str(r#","result":"#);
        body.push_str(members);
        if members != "{" {
            body.push(',');
        }
        body.push_str(r#""_meta":{"#);
        write_call(&mut body, call_id, recorded.receipt(), None);
        write_dropped(&mut body, result.facts.dropped_columns);
        body.push_str("}}}");
        Self::ok(body)
    }

    /// Creates the result of a call that the policy refused though the tool is visible to the caller. The model can read the kind
    /// of reason and the decision id, but not the policy rule.
    pub fn denial_result(
        id: &RawValue,
        version: Version,
        call_id: CallId,
        recorded: RecordStatus,
        reason: &'static str,
        decision: DecisionId,
    ) -> Self {
        let words = format!("Not permitted with these arguments ({reason}). Decision {decision}.");
        Self::call_failed(id, version, &words, |meta| {
            write_call(meta, call_id, recorded.receipt(), Some(decision));
        })
    }

    /// Creates the result of a call that failed in a way that the model can handle.
    pub fn failure_result(
        id: &RawValue,
        version: Version,
        call_id: CallId,
        recorded: RecordStatus,
        words: &str,
    ) -> Self {
        Self::call_failed(id, version, words, |meta| {
            write_call(meta, call_id, recorded.receipt(), None);
        })
    }

    fn call_failed(
        id: &RawValue,
        version: Version,
        words: &str,
        write_meta: impl FnOnce(&mut String),
    ) -> Self {
        let mut body = String::with_capacity(words.len() + 512);
        open(&mut body, Some(id));
        body.push_str(r#","result":{"#);
        if version.is_modern() {
            body.push_str(r#""resultType":"complete","#);
        }
        write_called(&mut body, version, &text_content(words), "", true);
        body.push_str(r#","_meta":{"#);
        if version.is_modern() {
            body.push_str(r#""io.modelcontextprotocol/serverInfo":"#);
            body.push_str(SERVER_INFO);
            body.push(',');
        }
        write_meta(&mut body);
        body.push_str("}}}");
        Self::ok(body)
    }

    /// Combines several responses into one, for the batches of 2025-03-26. Messages that expect no response are left out.
    pub fn batch(answers: Vec<Self>) -> Self {
        let refused = answers
            .iter()
            .flat_map(|answer| answer.refused.clone())
            .collect();
        let bodies: Vec<String> = answers
            .into_iter()
            .filter_map(|answer| match answer.body {
                McpResponseBody::Json(body) => Some(body),
                // No version with batches has methods that respond with a stream.
                McpResponseBody::Nothing | McpResponseBody::Events(_) => None,
            })
            .collect();
        if bodies.is_empty() {
            return Self::accepted_without_body();
        }
        Self {
            http: StatusCode::OK,
            body: McpResponseBody::Json(format!("[{}]", bodies.join(","))),
            refused,
            remedy: None,
            session: None,
            is_of_unknown: false,
        }
    }

    /// Converts the response to a stream of one event, for a client that prefers streams. A status other
    /// than 200 is left as it is.
    #[must_use]
    pub fn into_events(self) -> Self {
        match self.body {
            McpResponseBody::Json(message) if self.http == StatusCode::OK => {
                let event = format_event(None, None, &message);
                let body = McpResponseBody::Events(Body::from(event));
                Self { body, ..self }
            }
            body => Self { body, ..self },
        }
    }

    /// Sets the session id of a response that begins a session.
    #[must_use]
    pub fn in_session(self, session: Option<HeaderValue>) -> Self {
        Self { session, ..self }
    }

    /// Returns the body if it is a single message.
    pub fn into_text(self) -> Option<String> {
        match self.body {
            McpResponseBody::Json(body) => Some(body),
            McpResponseBody::Nothing | McpResponseBody::Events(_) => None,
        }
    }

    /// Returns whether the response says that something does not exist. It may exist without the caller being allowed to see it.
    pub fn is_of_unknown(&self) -> bool {
        self.is_of_unknown
    }

    /// Returns the reasons why the message, or messages of the batch, were refused before they became a call.
    pub fn refusal_reasons(&self) -> &[&'static str] {
        &self.refused
    }
}

impl From<McpResponse> for Response {
    fn from(answer: McpResponse) -> Self {
        answer.into_response()
    }
}

impl IntoResponse for McpResponse {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            McpResponseBody::Nothing => return self.http.into_response(),
            McpResponseBody::Json(body) => {
                let json = HeaderValue::from_static(JSON);
                (self.http, [(header::CONTENT_TYPE, json)], body).into_response()
            }
            McpResponseBody::Events(stream) => {
                let headers = [
                    (header::CONTENT_TYPE, EVENT_STREAM),
                    (header::CACHE_CONTROL, "no-store"),
                    // Proxies must not buffer events.
                    (UNBUFFERED, "no"),
                ];
                (self.http, headers, stream).into_response()
            }
        };
        if let Some(session) = self.session {
            response.headers_mut().insert(SESSION_ID, session);
        }
        let header = match self.remedy.as_deref() {
            Some(Remedy::Wait(seconds)) => Some((header::RETRY_AFTER, HeaderValue::from(*seconds))),
            // The conversion does not fail because scopes and URLs are checked when they are configured.
            Some(Remedy::StepUp(challenge)) => HeaderValue::try_from(challenge)
                .ok()
                .map(|challenge| (header::WWW_AUTHENTICATE, challenge)),
            Some(Remedy::Declare(_) | Remedy::Approve(_)) | None => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// Returns the members of the result of a call, for the result within a task.
pub fn task_result_members(version: Version, result: &ToolResult) -> String {
    let mut members = String::from(r#""resultType":"complete","#);
    write_tool_result(&mut members, version, result);
    if !result.meta.is_empty() {
        members.push_str(r#","_meta":"#);
        members.push_str(&String::from_utf8_lossy(&result.meta));
    }
    members
}

/// Appends the members of the result of a call, except `_meta`.
fn write_tool_result(to: &mut String, version: Version, result: &ToolResult) {
    let content = String::from_utf8_lossy(&result.content);
    let structured = String::from_utf8_lossy(&result.structured_content);
    write_called(to, version, &content, &structured, result.is_error);
    write_members(to, &result.other_members);
}

/// Appends the members of `object`, a JSON object or empty, after members that were written before.
pub fn write_members(to: &mut String, object: &[u8]) {
    let object = String::from_utf8_lossy(object);
    let members = object.trim_ascii().strip_prefix('{');
    let members = members.and_then(|members| members.strip_suffix('}'));
    if let Some(members) = members.map(str::trim_ascii).filter(|it| !it.is_empty()) {
        to.push(',');
        to.push_str(members);
    }
}

/// Appends the outcome of a call: content, structured content, and whether the tool failed.
fn write_called(
    to: &mut String,
    version: Version,
    content: &str,
    structured: &str,
    is_error: bool,
) {
    to.push_str(r#""content":"#);
    to.push_str(&older_content::tool_content(content, structured, version));
    if let Some(structured) = older_content::tool_structured(structured, version) {
        to.push_str(r#","structuredContent":"#);
        to.push_str(structured);
    }
    to.push_str(r#","isError":"#);
    to.push_str(if is_error { "true" } else { "false" });
}

/// Begins a JSON-RPC message: the version and the id.
fn open(body: &mut String, id: Option<&RawValue>) {
    body.push_str(r#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        body.push_str(r#","id":"#);
        body.push_str(id.get());
    }
}

/// Returns content with a single text block.
fn text_content(text: &str) -> String {
    let mut content = String::from(r#"[{"type":"text","text":"#);
    push_json_text(&mut content, text);
    content.push_str("}]");
    content
}

/// Appends `text` as a JSON string.
fn push_json_text(to: &mut String, text: &str) {
    let _ = write!(to, "{}", Value::from(text));
}
