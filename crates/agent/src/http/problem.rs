//! What a client reads where there is no answer: an HTTP status and OpenAI's error object, on every path alike.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use wardgate_edge::{BodyRefusal, TokenRefusal};

use crate::event::{ErrorKind, EventBody};

/// OpenAI's clients send a request again after most failures, unless this header says no.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A request that is refused, or failed before anything of its answer was sent.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    param: Option<&'static str>,
    message: String,
    header: Option<Header>,
}

/// The one header that belongs to a problem.
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

    /// A field of the body that cannot be used as it is.
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
        Self::of(ErrorKind::UnknownModel, message)
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

    /// A turn that ended without an answer. `events` are those so far.
    pub(super) fn of_failed_turn<'a>(events: impl IntoIterator<Item = &'a EventBody>) -> Self {
        let failure = events.into_iter().filter_map(|event| match event {
            EventBody::Error { kind, message } => Some((*kind, message)),
            _ => None,
        });
        match failure.last() {
            Some((kind, message)) => Self::of(kind, message),
            None => Self::of(ErrorKind::ModelFailed, "the answer ended early"),
        }
    }

    fn of(kind: ErrorKind, message: &str) -> Self {
        let (status, code) = response_to(kind);
        let problem = Self::new(status, code, message);
        match kind {
            ErrorKind::UnknownModel => Self {
                param: Some("model"),
                ..problem
            },
            // Nothing was begun: the one failure that is worth another try as it is.
            ErrorKind::TooManyTurns => problem,
            // Tools may have run; a second turn would run them once more.
            _ => Self {
                header: Some(Header::NoRetry),
                ..problem
            },
        }
    }

    /// The word for metrics.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// `{"error": …}`, as it also stands in a stream that fails on its way.
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

/// The status and the `code` of a failure before the answer begins.
fn response_to(kind: ErrorKind) -> (StatusCode, &'static str) {
    let status = match kind {
        ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorKind::UnknownModel => return (StatusCode::NOT_FOUND, "model_not_found"),
        ErrorKind::TooManyTurns => StatusCode::TOO_MANY_REQUESTS,
        // Not 503: the same request fails until somebody changes the configuration, and clients, proxies and load
        // balancers send a request again that got a 5xx.
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

/// The status and the `code` of every failure before the answer begins, for the reference.
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
