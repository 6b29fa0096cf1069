//! Errors of JSON-RPC: the one place that knows their codes.

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

/// A JSON-RPC error and the HTTP status it rides on.
#[derive(Debug, Clone)]
pub struct RpcError {
    /// The HTTP status of the response.
    pub http: StatusCode,
    /// The JSON-RPC code.
    pub code: i64,
    /// The message for the client.
    pub message: Box<str>,
    /// A JSON object, or nothing.
    pub data: Option<String>,
    /// The resource that it is about, as the client named it.
    uri: Option<Box<str>>,
    /// The kind, for records and metrics.
    pub reason: Reason,
    /// It ended a call of a tool, which has a record of its own.
    pub of_call: bool,
    /// It says that there is no such thing, also where there is one that the caller may not know of.
    pub is_of_unknown: bool,
    /// What would do instead. Boxed, because few say so, and every error travels through every step.
    pub remedy: Option<Box<Remedy>>,
}

/// What a client could do about it.
#[derive(Debug, Clone)]
pub enum Remedy {
    /// Try again after so many seconds.
    Wait(u64),
    /// Be able to do this, a JSON object.
    Declare(Cow<'static, str>),
    /// Have it approved: a JSON object that says under which id, by whom and until when.
    Approve(String),
    /// Come with another token: a `WWW-Authenticate`.
    StepUp(String),
}

/// The JSON-RPC code `code` of an upstream, as clients of `version` know it: some mean something else in other versions, or
/// nothing (MCP 2026-07-28, changelog).
pub fn code_in(version: Version, code: i64) -> i64 {
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

    /// The same as an answer of what there is not, which leaves when time does not tell why.
    #[must_use]
    pub fn of_unknown(self) -> Self {
        Self {
            is_of_unknown: true,
            ..self
        }
    }

    /// Not JSON, or JSON that parsers read differently.
    pub fn parse(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, PARSE_ERROR, reason, message)
    }

    /// Refused before the body was read: who asks, or how, is not welcome.
    pub fn unread(http: StatusCode, reason: Reason, message: &str) -> Self {
        let data = Some(serde_json::json!({ "reason": reason.as_str() }).to_string());
        Self {
            data,
            ..Self::new(http, INVALID_REQUEST, reason, message)
        }
    }

    /// The token was not given what the request needs; `scope` is all of that (RFC 6750 §3.1).
    pub fn insufficient_scope(scope: &str, metadata: &str) -> Self {
        let message = format!("The token lacks a scope. Get one with: {scope}");
        let challenge = format!(
            r#"Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{metadata}", error_description="the token lacks a scope that this request needs""#
        );
        Self {
            remedy: Some(Box::new(Remedy::StepUp(challenge))),
            ..Self::unread(StatusCode::FORBIDDEN, Reason::INSUFFICIENT_SCOPE, &message)
        }
    }

    /// The token was good when the request came, and is not any more (RFC 6750 §3.1).
    pub fn token_refused() -> Self {
        let message = "The token is not accepted any more. Come again with another.";
        let challenge = r#"Bearer error="invalid_token", error_description="the token is not accepted any more""#;
        Self {
            remedy: Some(Box::new(Remedy::StepUp(challenge.to_owned()))),
            ..Self::unread(StatusCode::UNAUTHORIZED, Reason::TOKEN_REFUSED, message)
        }
    }

    /// JSON, but no JSON-RPC request.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            INVALID_REQUEST,
            Reason::INVALID_REQUEST,
            message,
        )
    }

    /// A request whose parameters do not fit its method.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::OK,
            INVALID_PARAMS,
            Reason::INVALID_PARAMS,
            message,
        )
    }

    /// A modern request whose `_meta` lacks what it must have.
    pub fn invalid_meta(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            INVALID_PARAMS,
            Reason::INVALID_META,
            message,
        )
    }

    /// No such method in this version: 404 for modern clients, 200 for those before.
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

    /// A header that is missing, repeated, or says something else than the body.
    pub fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            HEADER_MISMATCH,
            Reason::HEADER_MISMATCH,
            message,
        )
    }

    /// A protocol version that is not spoken, at least not in this way: modern requests name theirs in
    /// `_meta`, older ones in a header.
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

    /// A `requestState` that was made for another, for another request or by nobody, is too old or was used: all alike.
    pub fn unknown_state() -> Self {
        Self::invalid_params("unknown `requestState`").because(Reason::UNKNOWN_STATE)
    }

    /// It can be done only for a client that can do more: what, says `required`, a JSON object.
    pub fn missing_capability(required: impl Into<Cow<'static, str>>) -> Self {
        let required = required.into();
        let message = "This needs something that the client did not say it can do.";
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

    /// A tool nobody configured, or one the caller may not see: the same answer.
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

    /// The same of a prompt.
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

    /// The agent that sends a call says itself that it does not make it.
    pub fn refused_by_agent() -> Self {
        let message = "The agent refused this call. It is on record, and nothing ran.";
        Self::invalid_params(message).because(Reason::REFUSED_BY_AGENT)
    }

    /// A resource that there is not, or not for this caller.
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

    /// The same, with the URI that the client sent, in `data`.
    #[must_use]
    pub fn about(self, uri: &str) -> Self {
        Self {
            uri: Some(cut(uri, 2_048).into()),
            ..self
        }
    }

    /// A path to an upstream that there is not, or not for this caller.
    pub fn unknown_route() -> Self {
        let message = "No such path; MCP is served at /mcp.";
        Self::unread(StatusCode::NOT_FOUND, Reason::UNKNOWN_UPSTREAM, message).of_unknown()
    }

    /// A session that ended, or is somebody else's: 404 has the client begin another.
    pub fn unknown_session() -> Self {
        let message = "Session not found. Initialize again, without Mcp-Session-Id.";
        Self::unread(StatusCode::NOT_FOUND, Reason::UNKNOWN_SESSION, message)
    }

    /// What must be kept cannot be kept now.
    pub fn store_unavailable() -> Self {
        let message = "The gateway's store cannot be reached; try again later.";
        Self::unread(
            StatusCode::SERVICE_UNAVAILABLE,
            Reason::STORE_UNAVAILABLE,
            message,
        )
    }

    /// Whether what was kept may still be given is not known.
    pub fn undecided() -> Self {
        let message = "It cannot be decided now whether you may still hear this; try again later.";
        Self::unread(
            StatusCode::SERVICE_UNAVAILABLE,
            Reason::POLICY_UNAVAILABLE,
            message,
        )
    }

    /// A place in a stream that is none of this session's.
    pub fn unknown_event() -> Self {
        let message = "Last-Event-ID is no event of this session. Listen without it.";
        Self::unread(StatusCode::BAD_REQUEST, Reason::UNKNOWN_EVENT, message)
    }

    /// A request of a version whose requests say all of themselves, and that does not.
    pub fn without_meta(version: Version) -> Self {
        Self::invalid_meta(format!(
            "requests of {version} carry `_meta` with io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities"
        ))
    }

    /// A call by method name that may not be: hidden, unknown and refused tools alike.
    pub fn forbidden(requested: &str) -> Self {
        let shown = cut(requested, 128);
        Self::new(
            StatusCode::FORBIDDEN,
            INVALID_PARAMS,
            Reason::FORBIDDEN,
            format!("Forbidden: {shown}"),
        )
        .of_unknown()
    }

    /// The platform failed, not the caller.
    pub fn internal(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, INTERNAL_ERROR, reason, message)
    }

    /// Nobody can say what the caller may do or see.
    pub fn not_decided() -> Self {
        let message = "The request could not be decided. Try again later.";
        Self::internal(Reason::POLICY_UNAVAILABLE, message)
    }

    /// What an operator wanted could not be recorded, and so was not done.
    pub fn not_recorded() -> Self {
        let message = "This cannot be recorded durably now, and was not done. Try again later.";
        Self::internal(Reason::NOT_DURABLE, message)
    }

    /// The caller calls too often (RFC 6585, section 4).
    pub fn rate_limited(wait: Duration) -> Self {
        let message = "The tool is called too often. Wait, then try again.";
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

    /// The caller makes more requests than one caller may (RFC 6585, section 4). Nothing was done.
    pub fn too_many_requests(wait: Duration) -> Self {
        let message = "You make more requests than one caller may. Wait, then try again.";
        Self::refused_for_rate(message.to_owned(), wait)
    }

    /// The quota of this name is used up (RFC 6585, section 4). Nothing was done.
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

    /// There is more to do than can be done: for this caller alone, or for everyone. Nothing was done.
    pub fn overloaded(is_over_share: bool, wait: Duration) -> Self {
        let (http, reason, message) = if is_over_share {
            let words = "You have more requests under way than your share. Wait, then try again.";
            (StatusCode::TOO_MANY_REQUESTS, Reason::OVER_SHARE, words)
        } else {
            let words = "There is more to do than can be done now. Wait, then try again.";
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

    /// The same with what says how it can be approved, an object.
    #[must_use]
    pub fn with_approval(self, approval: &serde_json::Value) -> Self {
        Self {
            remedy: Some(Box::new(Remedy::Approve(approval.to_string()))),
            ..self
        }
    }

    /// The same under a closer reason.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// As many streams are open as there may be, of the caller's or of all.
    pub fn too_many_streams() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            INTERNAL_ERROR,
            Reason::TOO_MANY_STREAMS,
            "Too many streams of changes are open. Close some, or list again from time to time.",
        )
    }

    /// As many messages of one session are under way as there may be.
    pub fn too_many_messages() -> Self {
        Self::unread(
            StatusCode::TOO_MANY_REQUESTS,
            Reason::TOO_MANY_MESSAGES,
            "Too many requests of this session are under way. Wait for answers.",
        )
    }

    /// Says the reason to the client too.
    #[must_use]
    pub fn with_reason(self) -> Self {
        let data = serde_json::json!({ "reason": self.reason.as_str() }).to_string();
        Self {
            data: Some(data),
            ..self
        }
    }

    /// Adds the call's id, and its receipt when the refusal was recorded.
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

    /// The kind, for records.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The message for the client.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Rounded up: a client that comes back then is let in.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// What a client sent, as far as an answer repeats it.
fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// The message of an error as a sentence: errors are worded without a capital letter and a full stop.
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
            RpcError::undecided(),
            RpcError::not_decided(),
            RpcError::unknown_event(),
            RpcError::rate_limited(wait),
            RpcError::too_many_requests(wait),
            RpcError::quota_reached("exports", wait),
            RpcError::overloaded(true, wait),
            RpcError::overloaded(false, wait),
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
