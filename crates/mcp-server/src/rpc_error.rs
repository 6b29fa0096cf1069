//! JSON-RPC errors. The codes of all errors are assigned here only.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use axum::http::StatusCode;
use wardgate_domain::{CallId, Reason, Receipt};
use wardgate_mcp::Version;
use wardgate_mcp::error_code::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
    MISSING_CAPABILITY, PARSE_ERROR, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
};

use crate::call_meta::write_call;

/// A JSON-RPC error and the HTTP status of its response.
#[derive(Debug, Clone)]
pub struct RpcError {
    /// The HTTP status of the response.
    pub http: StatusCode,
    /// The JSON-RPC code.
    pub code: i64,
    /// The message for the client.
    pub message: Box<str>,
    /// The member `data`, a JSON object, or `None`.
    pub data: Option<String>,
    /// The URI of the resource that the error is about, as the client sent it.
    uri: Option<Box<str>>,
    /// The reason, for audit records and metrics.
    pub reason: Reason,
    /// Whether the error ended a tool call, which has its own audit record.
    pub of_call: bool,
    /// Whether the error says that something does not exist. It may exist without the caller being allowed to see it.
    pub is_of_unknown: bool,
    /// What the client could do about the error. Boxed because few errors have it, and errors are passed through many functions.
    pub remedy: Option<Box<Remedy>>,
}

/// What a client could do about an error.
#[derive(Debug, Clone)]
pub enum Remedy {
    /// Try again after this number of seconds.
    Wait(u64),
    /// Declare these capabilities, a JSON object.
    Declare(Cow<'static, str>),
    /// Have the call approved. The JSON object has the id of the approval, who may approve, and until when.
    Approve(String),
    /// Send another token, according to this `WWW-Authenticate` challenge.
    StepUp(String),
}

/// Converts a JSON-RPC error code of an upstream for clients of `version`, because some codes have another meaning, or none, in
/// other versions (MCP 2026-07-28, changelog).
pub(crate) fn code_in(version: Version, code: i64) -> i64 {
    match code {
        RESOURCE_NOT_FOUND if version.is_modern() => INVALID_PARAMS,
        URL_ELICITATION_REQUIRED if version.is_modern() || !version.has_url_elicitation() => {
            INTERNAL_ERROR
        }
        code => code,
    }
}

impl RpcError {
    fn new(http: StatusCode, code: i64, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            http,
            code,
            message: message.into().into_boxed_str(),
            data: None,
            uri: None,
            reason,
            of_call: false,
            is_of_unknown: false,
            remedy: None,
        }
    }

    /// Marks the error as one about something that does not exist. Such responses are delayed so that their timing
    /// does not reveal the reason.
    #[must_use]
    fn of_unknown(self) -> Self {
        Self {
            is_of_unknown: true,
            ..self
        }
    }

    /// Creates the error for a body that is not JSON, or is JSON that parsers read differently.
    pub fn parse(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, PARSE_ERROR, reason, message)
    }

    /// Creates the error for a request that is refused before its body is read.
    pub fn for_unread_request(http: StatusCode, reason: Reason, message: &str) -> Self {
        let data = Some(serde_json::json!({ "reason": reason.as_str() }).to_string());
        Self {
            data,
            ..Self::new(http, INVALID_REQUEST, reason, message)
        }
    }

    /// Creates the error for a token without a required scope; `scope` lists all that the request needs (RFC 6750, section 3.1).
    pub fn insufficient_scope(scope: &str, metadata: &str) -> Self {
        let message = format!("The token lacks a scope. Get one with: {scope}");
        let challenge = format!(
            r#"Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{metadata}", error_description="the token lacks a scope that this request requires""#
        );
        Self {
            remedy: Some(Box::new(Remedy::StepUp(challenge))),
            ..Self::for_unread_request(StatusCode::FORBIDDEN, Reason::INSUFFICIENT_SCOPE, &message)
        }
    }

    /// Creates the error for a token that was valid when the request arrived, and no longer is (RFC 6750, section 3.1).
    pub fn token_refused() -> Self {
        let message = "The token is no longer accepted. Get a new token.";
        let challenge =
            r#"Bearer error="invalid_token", error_description="the token is no longer accepted""#;
        Self {
            remedy: Some(Box::new(Remedy::StepUp(challenge.to_owned()))),
            ..Self::for_unread_request(StatusCode::UNAUTHORIZED, Reason::TOKEN_REFUSED, message)
        }
    }

    /// Creates the error for JSON that is not a JSON-RPC request.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            INVALID_REQUEST,
            Reason::INVALID_REQUEST,
            message,
        )
    }

    /// Creates the error for a request whose parameters do not fit its method.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::OK,
            INVALID_PARAMS,
            Reason::INVALID_PARAMS,
            message,
        )
    }

    /// Creates the error for a request in version 2026-07-28 or later whose `_meta` is invalid or incomplete.
    pub fn invalid_meta(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            INVALID_PARAMS,
            Reason::INVALID_META,
            message,
        )
    }

    /// Creates the error for a method that the version does not have. The status is 404 from 2026-07-28 on, 200 before.
    pub fn unknown_method(method: &str, version: Version) -> Self {
        let http = if version.is_modern() {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        let shown = cut(method, 64);
        Self::new(
            http,
            METHOD_NOT_FOUND,
            Reason::UNKNOWN_METHOD,
            format!("Method '{shown}' not found on server 'wardgate'"),
        )
    }

    /// Creates the error for a header that is missing, repeated, or different from the body.
    pub fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            HEADER_MISMATCH,
            Reason::HEADER_MISMATCH,
            message,
        )
    }

    /// Creates the error for a protocol version that is not supported in this form: requests from 2026-07-28 on name it in
    /// `_meta`, older requests in a header.
    pub fn unsupported_version(requested: &str, modern: bool) -> Self {
        let supported: Vec<&str> = Version::ALL
            .iter()
            .filter(|version| version.is_modern() == modern)
            .map(|version| version.as_str())
            .collect();
        let shown = cut(requested, 64);
        Self {
            data: Some(
                serde_json::json!({ "supported": supported, "requested": shown }).to_string(),
            ),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                UNSUPPORTED_VERSION,
                Reason::UNSUPPORTED_VERSION,
                format!(
                    "Unsupported protocol version; use one of {}",
                    supported.join(", ")
                ),
            )
        }
    }

    /// Creates the error for a `requestState` that is not valid: forged, for another caller or request, expired or already used.
    /// The response is the same in all these cases.
    pub fn unknown_state() -> Self {
        Self::invalid_params("unknown `requestState`").because(Reason::UNKNOWN_STATE)
    }

    /// Creates the error for a request that needs client capabilities that were not declared: `required`, a JSON object.
    pub fn missing_capability(required: impl Into<Cow<'static, str>>) -> Self {
        let required = required.into();
        let message = "This requires a capability that the client did not declare.";
        Self {
            data: Some(format!(r#"{{"requiredCapabilities":{required}}}"#)),
            remedy: Some(Box::new(Remedy::Declare(required))),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                MISSING_CAPABILITY,
                Reason::MISSING_CAPABILITY,
                message,
            )
        }
    }

    /// Creates the error for a tool that does not exist, or that the caller may not see. The response is the same in both cases.
    pub fn unknown_tool(requested: &str) -> Self {
        let shown = cut(requested, 128);
        Self::new(
            StatusCode::OK,
            INVALID_PARAMS,
            Reason::UNKNOWN_TOOL,
            format!("Unknown tool: {shown}"),
        )
        .of_unknown()
    }

    /// Creates the error for a prompt that does not exist, or that the caller may not see.
    pub fn unknown_prompt(requested: &str) -> Self {
        let shown = cut(requested, 128);
        Self::new(
            StatusCode::OK,
            INVALID_PARAMS,
            Reason::UNKNOWN_PROMPT,
            format!("Unknown prompt: {shown}"),
        )
        .of_unknown()
    }

    /// Creates the error for a call that the sending agent reported as refused by itself.
    pub fn refused_by_agent() -> Self {
        let message = "The agent refused this call. The call was recorded and did not run.";
        Self::invalid_params(message).because(Reason::REFUSED_BY_AGENT)
    }

    /// Creates the error for a resource that does not exist, or that the caller may not see.
    pub fn unknown_resource(version: Version) -> Self {
        let code = if version.is_modern() {
            INVALID_PARAMS
        } else {
            RESOURCE_NOT_FOUND
        };
        Self::new(
            StatusCode::OK,
            code,
            Reason::UNKNOWN_RESOURCE,
            "Resource not found",
        )
        .of_unknown()
    }

    /// Adds the URI that the client sent to `data` of the error.
    #[must_use]
    pub fn about(self, uri: &str) -> Self {
        Self {
            uri: Some(cut(uri, 2_048).into()),
            ..self
        }
    }

    /// Creates the error for the path of an upstream that does not exist, or that the caller may not see.
    pub fn unknown_route() -> Self {
        let message = "No such path; MCP is served at /mcp.";
        Self::for_unread_request(StatusCode::NOT_FOUND, Reason::UNKNOWN_UPSTREAM, message)
            .of_unknown()
    }

    /// Creates the error for a session that ended or belongs to another caller. The status 404 makes the
    /// client begin another session.
    pub fn unknown_session() -> Self {
        let message = "Session not found. Initialize again, without Mcp-Session-Id.";
        Self::for_unread_request(StatusCode::NOT_FOUND, Reason::UNKNOWN_SESSION, message)
    }

    /// Creates the error for a request that needs the store when the store is unavailable.
    pub fn store_unavailable() -> Self {
        let message = "The gateway's store cannot be reached; try again later.";
        Self::for_unread_request(
            StatusCode::SERVICE_UNAVAILABLE,
            Reason::STORE_UNAVAILABLE,
            message,
        )
    }

    /// Creates the error for stored events when it cannot be decided whether the caller may still see them.
    pub fn undecided_stream() -> Self {
        let message = "The policy service cannot decide now whether you may still receive this stream; try again later.";
        Self::for_unread_request(
            StatusCode::SERVICE_UNAVAILABLE,
            Reason::POLICY_UNAVAILABLE,
            message,
        )
    }

    /// Creates the error for a `Last-Event-ID` that is not an event of the session.
    pub fn unknown_event() -> Self {
        let message = "Last-Event-ID does not belong to this session. Send the request without it.";
        Self::for_unread_request(StatusCode::BAD_REQUEST, Reason::UNKNOWN_EVENT, message)
    }

    /// Creates the error for a request without the `_meta` that its version requires.
    pub fn without_meta(version: Version) -> Self {
        Self::invalid_meta(format!(
            "requests of {version} require `_meta` with io.modelcontextprotocol/protocolVersion and \
             io.modelcontextprotocol/clientCapabilities"
        ))
    }

    /// Creates the error for a tool call by method name that is not allowed. Hidden, unknown and refused
    /// tools get the same response.
    pub fn forbidden_tool(requested: &str) -> Self {
        let shown = cut(requested, 128);
        Self::new(
            StatusCode::FORBIDDEN,
            INVALID_PARAMS,
            Reason::FORBIDDEN,
            format!("Forbidden: {shown}"),
        )
        .of_unknown()
    }

    /// Creates the error for a failure of the platform that the caller did not cause.
    pub fn internal(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, INTERNAL_ERROR, reason, message)
    }

    /// Creates the error for a request that could not be authorized because the policy service is unavailable.
    pub fn not_decided() -> Self {
        let message = "The request could not be decided. Try again later.";
        Self::internal(Reason::POLICY_UNAVAILABLE, message)
    }

    /// Creates the error for an operator's change that was not made because it could not be recorded.
    pub fn not_recorded() -> Self {
        let message = "This cannot be recorded durably now and was not done. Try again later.";
        Self::internal(Reason::NOT_DURABLE, message)
    }

    /// Creates the error for a caller that calls a tool too often (RFC 6585, section 4).
    pub fn rate_limited(wait: Duration) -> Self {
        let message = "The rate limit of the tool is exceeded. Wait, then try again.";
        Self {
            remedy: Some(Box::new(Remedy::Wait(whole_seconds(wait)))),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                INTERNAL_ERROR,
                Reason::RATE_LIMITED,
                message,
            )
        }
    }

    /// Creates the error for a caller that exceeds its request rate (RFC 6585, section 4). Nothing was done.
    pub fn too_many_requests(wait: Duration) -> Self {
        let message = "Your rate limit of requests is exceeded. Wait, then try again.";
        Self::refused_for_rate(message.to_owned(), wait)
    }

    /// Creates the error for a quota that is used up (RFC 6585, section 4). Nothing was done.
    pub fn quota_reached(quota: &str, wait: Duration) -> Self {
        let message = format!("The quota `{quota}` is used up. Wait, then try again.");
        Self::refused_for_rate(message, wait)
    }

    fn refused_for_rate(message: String, wait: Duration) -> Self {
        let reason = Reason::RATE_LIMITED;
        let seconds = whole_seconds(wait);
        let data = serde_json::json!({ "reason": reason.as_str(), "retryAfterSeconds": seconds });
        Self {
            data: Some(data.to_string()),
            remedy: Some(Box::new(Remedy::Wait(seconds))),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                INTERNAL_ERROR,
                reason,
                message,
            )
        }
    }

    /// Creates the error for too many concurrent requests: of this caller if `is_over_share`, otherwise of all
    /// callers. Nothing was done.
    pub fn for_overload(is_over_share: bool, wait: Duration) -> Self {
        let (http, reason, message) = if is_over_share {
            let words = "Your share of concurrent requests is exceeded. Wait, then try again.";
            (StatusCode::TOO_MANY_REQUESTS, Reason::OVER_SHARE, words)
        } else {
            let words = "The gateway is overloaded. Wait, then try again.";
            (StatusCode::SERVICE_UNAVAILABLE, Reason::OVERLOADED, words)
        };
        let seconds = whole_seconds(wait);
        let data = serde_json::json!({ "reason": reason.as_str(), "retryAfterSeconds": seconds });
        Self {
            data: Some(data.to_string()),
            remedy: Some(Box::new(Remedy::Wait(seconds))),
            ..Self::new(http, INTERNAL_ERROR, reason, message)
        }
    }

    /// Adds information on how the call can be approved, a JSON object.
    #[must_use]
    pub fn with_approval(self, approval: &serde_json::Value) -> Self {
        Self {
            remedy: Some(Box::new(Remedy::Approve(approval.to_string()))),
            ..self
        }
    }

    /// Replaces the reason by a more specific one.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Creates the error for a stream that exceeds the number of open streams of the caller or of all callers.
    pub fn too_many_streams() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            INTERNAL_ERROR,
            Reason::TOO_MANY_STREAMS,
            "Too many notification streams are open. Close some, or request the lists periodically.",
        )
    }

    /// Creates the error for a message that exceeds the number of concurrent messages of a session.
    pub fn too_many_messages() -> Self {
        Self::for_unread_request(
            StatusCode::TOO_MANY_REQUESTS,
            Reason::TOO_MANY_MESSAGES,
            "Too many requests of this session are in progress. Wait for responses.",
        )
    }

    /// Adds the reason to `data`, where the client can read it.
    #[must_use]
    pub fn with_reason(self) -> Self {
        let data = serde_json::json!({ "reason": self.reason.as_str() }).to_string();
        Self {
            data: Some(data),
            ..self
        }
    }

    /// Adds the id of the call to `data`, and its receipt if the refusal was recorded.
    #[must_use]
    pub fn of_call(mut self, call_id: CallId, receipt: Option<Receipt>) -> Self {
        let mut data = String::from("{");
        write_call(&mut data, call_id, receipt, None);
        // Writing to a string cannot fail.
        let _ = write!(data, r#","reason":"{}""#, self.reason.as_str());
        if let Some(uri) = &self.uri {
            let _ = write!(data, r#","uri":{}"#, serde_json::json!(uri));
        }
        let _ = match self.remedy.as_deref() {
            Some(Remedy::Wait(seconds)) => write!(data, r#","retryAfterSeconds":{seconds}"#),
            Some(Remedy::Declare(required)) => {
                write!(data, r#","requiredCapabilities":{required}"#)
            }
            Some(Remedy::Approve(approval)) => write!(data, r#","approval":{approval}"#),
            Some(Remedy::StepUp(_)) | None => Ok(()),
        };
        data.push('}');
        self.data = Some(data);
        self.of_call = true;
        self
    }

    /// Returns the reason, for audit records and metrics.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the message for the client.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Returns the duration in seconds, rounded up so that a retry after this time is accepted.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Returns the beginning of a text of the client, for use in a response.
fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Returns the message of an error as a sentence, because errors are worded without a capital letter and a full stop.
pub fn sentence(error: &impl std::fmt::Display) -> String {
    let words = error.to_string();
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_an_http_status_that_the_reference_names_for_its_reason() {
        let wait = Duration::from_secs(1);
        let mut errors = vec![
            RpcError::token_refused(),
            RpcError::insufficient_scope("read", "https://example.org"),
            RpcError::invalid_request("no request"),
            RpcError::invalid_params("no parameters"),
            RpcError::invalid_meta("no `_meta`"),
            RpcError::header_mismatch("no header"),
            RpcError::unsupported_version("1", true),
            RpcError::unknown_state(),
            RpcError::missing_capability("{}"),
            RpcError::unknown_route(),
            RpcError::unknown_session(),
            RpcError::store_unavailable(),
            RpcError::undecided_stream(),
            RpcError::not_decided(),
            RpcError::unknown_event(),
            RpcError::rate_limited(wait),
            RpcError::too_many_requests(wait),
            RpcError::quota_reached("exports", wait),
            RpcError::for_overload(true, wait),
            RpcError::for_overload(false, wait),
            RpcError::too_many_streams(),
            RpcError::too_many_messages(),
        ];
        errors.extend(Version::ALL.map(|version| RpcError::unknown_method("no", version)));
        for error in errors {
            let mut statuses = error.reason.http_statuses();
            assert!(
                statuses.any(|status| status == error.http.as_u16()),
                "{:?} with {}",
                error.reason,
                error.http
            );
        }
    }
}
