//! Why a request to a service gave no response.

use std::error::Error as _;
use std::time::Duration;

use super::auth::AuthError;

/// Shown in logs: names hosts, never a path, a query, a header or a body.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EgressError {
    /// Nothing was sent.
    #[error("the URL is not an http(s) URL without user info")]
    NotHttp,
    /// Nothing was sent to that host.
    #[error("the host {0} is not listed; add it to `hosts` of the source if it is right")]
    HostNotListed(String),
    /// Nothing was sent to that host.
    #[error(
        "{0} has only addresses off the public internet; list their network under `private` of the source if that is right"
    )]
    AddressRefused(String),
    /// A redirect would have given up encryption.
    #[error("a redirect leads from https to http")]
    Downgrade,
    /// Redirects in a circle, most likely.
    #[error("more than {} redirects", super::redirect::MOST)]
    TooManyRedirects,
    /// No connection was made, so nothing was sent.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// It took too long; whether the service acted is open.
    #[error("no complete response within {0:?}; see `timeout` of the source")]
    Timeout(Duration),
    /// The connection broke; whether the service acted is open.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The response body is larger than this many bytes.
    #[error("the response is larger than {0} bytes; see `max_response_bytes` of the source")]
    TooLarge(usize),
    /// Compressed, most likely.
    #[error("the response has a content encoding, though none was accepted")]
    Encoded,
    /// Nothing was sent for want of credentials.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The settings do not make a client.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
}

impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        // A URL can hold what a caller passed.
        let error = error.without_url();
        let mut causes = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(ours) = error.downcast_ref::<Self>() {
                return ours.clone();
            }
            causes.push(error.to_string());
            cause = error.source();
        }
        let text = causes.join(": ");
        if error.is_builder() {
            Self::Setup(text)
        } else if error.is_connect() || error.is_dns() {
            Self::Unreachable(text)
        } else {
            Self::Broken(text)
        }
    }
}
