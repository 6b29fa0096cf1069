//! Why a request to a service gave no response, and why it has no credentials.

use std::error::Error as _;
use std::time::Duration;

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
    #[error("more than {0} redirects")]
    TooManyRedirects(usize),
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

/// Why there are no credentials. Nothing was sent to the service itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// The call came without what is exchanged.
    #[error("the caller's token did not come with the call, and this source exchanges it")]
    NoCallerToken,
    /// The person has to grant that first; where the source says so, these scopes besides those they granted.
    #[error("the caller has not connected this source yet")]
    NotConnected {
        /// Separated by spaces.
        scope: Option<String>,
    },
    /// The grants are not to be had; the call may be tried again.
    #[error("the connections of callers cannot be read or kept now")]
    NoStore,
    /// No answer of the token endpoint.
    #[error("the token endpoint: {0}")]
    Endpoint(Box<EgressError>),
    /// The answer of the token endpoint was an error.
    #[error("the token endpoint refused with status {status}{}", .code.map(|code| format!(" ({code})")).unwrap_or_default())]
    Refused {
        /// Of the answer.
        status: u16,
        /// One of RFC 6749 §5.2.
        code: Option<&'static str>,
    },
    /// In words that end the sentence.
    #[error("the token endpoint's answer {0}")]
    BadAnswer(&'static str),
    /// What is missing, in words that end the sentence.
    #[error(
        "the authorization server of the source is not known: {0}; name it by `issuer` or `token_url` of `auth`"
    )]
    NotFound(&'static str),
    /// The configured key is none for its algorithm.
    #[error("the client's key does not sign")]
    NotSigned,
    /// They hold characters that no header has.
    #[error("the credentials cannot be written as a header")]
    NotAHeader,
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
