//! OAuth errors (RFC 6749 §4.1.2.1 and §5.2, RFC 7591 §3.2.2).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error of the facade. It contains nothing of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {description}")]
pub(crate) struct OAuthError {
    pub(crate) status: StatusCode,
    /// The OAuth `error` code.
    pub(crate) code: &'static str,
    pub(crate) description: &'static str,
}

impl OAuthError {
    pub(crate) const fn new(code: &'static str, description: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code,
            description,
        }
    }

    pub(crate) const fn invalid_request(description: &'static str) -> Self {
        Self::new("invalid_request", description)
    }

    pub(crate) const fn invalid_grant(description: &'static str) -> Self {
        Self::new("invalid_grant", description)
    }

    /// Creates an error after which clients register again.
    pub(crate) const fn invalid_client(description: &'static str) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            ..Self::new("invalid_client", description)
        }
    }

    /// Creates an error for a required service that is unavailable.
    pub(crate) const fn unavailable() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::new(
                "temporarily_unavailable",
                "the service is not available now; try again later",
            )
        }
    }

    /// Creates an error for settings that do not fit the provider. The log contains the details.
    pub(crate) const fn misconfiguration() -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            ..Self::new(
                "server_error",
                "the identity provider's answer cannot be used; inform the operator of this gateway, whose log contains the cause",
            )
        }
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.code, "error_description": self.description });
        let mut response = json_response(self.status, &body);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let soon = HeaderValue::from_static("5");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        response
    }
}

/// Creates a JSON response that must not be cached.
pub(crate) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, body.to_string()).into_response()
}
