//! Error responses: an HTTP status and OpenAI's error object, the same for every path.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use wardgate_edge::{BodyRefusal, TokenRefusal};

use crate::event::{ErrorKind, EventBody};

/// The header that tells OpenAI's clients not to retry. By default, they retry most failures.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The response to a request that is refused, or that failed before any part of its answer was sent.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    param: Option<&'static str>,
    message: String,
    header: Option<Header>,
}

/// The additional header of a problem.
#[derive(Debug, Clone)]
enum Header {
    Allow(&'static str),
    Challenge(HeaderValue),
    NoRetry,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            param: None,
            message: message.into(),
            header: None,
        }
    }

    /// Creates a problem for an invalid field of the request.
    pub(super) fn field(param: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param),
            ..Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
        }
    }

    pub(super) fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn unknown_model(message: &str) -> Self {
        Self::from_error_kind(ErrorKind::UnknownModel, message)
    }

    pub(super) fn method_not_allowed(allowed: &'static str) -> Self {
        Self {
            header: Some(Header::Allow(allowed)),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("Send this request by {allowed}."),
            )
        }
    }

    /// Creates a problem for a turn that ended without an answer from the events that it sent.
    pub(super) fn of_failed_turn<'a>(events: impl IntoIterator<Item = &'a EventBody>) -> Self {
        let failure = events.into_iter().filter_map(|event| match event {
            EventBody::Error { kind, message } => Some((*kind, message)),
            _ => None,
        });
        match failure.last() {
            Some((kind, message)) => Self::from_error_kind(kind, message),
            None => Self::from_error_kind(ErrorKind::ModelFailed, "the answer was incomplete"),
        }
    }

    fn from_error_kind(kind: ErrorKind, message: &str) -> Self {
        let (status, code) = response_to(kind);
        let problem = Self::new(status, code, message);
        match kind {
            ErrorKind::UnknownModel => Self {
                param: Some("model"),
                ..problem
            },
            // No turn was started, so this is the only failure that is worth a retry of the same request.
            ErrorKind::TooManyTurns => problem,
            // Tools may have run, and a retry would run them again.
            _ => Self {
                header: Some(Header::NoRetry),
                ..problem
            },
        }
    }

    /// Returns the error code, which also labels metrics.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the body `{"error": …}`, which is also sent inside a stream that fails.
    pub(super) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// Returns the status and the `code` of a failure that occurs before the answer begins.
fn response_to(kind: ErrorKind) -> (StatusCode, &'static str) {
    let status = match kind {
        ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorKind::UnknownModel => return (StatusCode::NOT_FOUND, "model_not_found"),
        ErrorKind::TooManyTurns => StatusCode::TOO_MANY_REQUESTS,
        // Not 503: the same request fails until the configuration is changed, and clients, proxies and load balancers retry
        // requests that fail with a 5xx status.
        ErrorKind::ModelNotConfigured => StatusCode::NOT_FOUND,
        ErrorKind::ModelFailed
        | ErrorKind::EmptyAnswer
        | ErrorKind::ToolNotAvailable
        | ErrorKind::CallInData => StatusCode::BAD_GATEWAY,
        ErrorKind::GuardrailFailed | ErrorKind::GatewayFailed => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::InvalidApproval => StatusCode::FORBIDDEN,
    };
    (status, kind.as_str())
}

/// Returns the status and the `code` of every failure that can occur before the answer begins, for the reference documentation.
pub fn listed_failures() -> Vec<(StatusCode, &'static str)> {
    ErrorKind::ALL.into_iter().map(response_to).collect()
}

impl From<TokenRefusal> for Problem {
    fn from(refusal: TokenRefusal) -> Self {
        Self {
            header: Some(Header::Challenge(refusal.challenge(None, ""))),
            ..Self::new(
                refusal.status(),
                refusal.reason().as_str(),
                refusal.description(),
            )
        }
    }
}

impl From<BodyRefusal> for Problem {
    fn from(refusal: BodyRefusal) -> Self {
        Self::new(
            refusal.status(),
            refusal.reason().as_str(),
            refusal.description(),
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let media = [(header::CONTENT_TYPE, "application/json")];
        let body = self.body().to_string();
        let mut response = (self.status, media, body).into_response();
        let (name, value) = match self.header {
            Some(Header::Allow(method)) => (header::ALLOW, HeaderValue::from_static(method)),
            Some(Header::Challenge(challenge)) => (header::WWW_AUTHENTICATE, challenge),
            Some(Header::NoRetry) => (SHOULD_RETRY, HeaderValue::from_static("false")),
            None => return response,
        };
        response.headers_mut().insert(name, value);
        response
    }
}
