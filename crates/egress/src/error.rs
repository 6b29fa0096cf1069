//! The errors of requests to a service and of its credentials.

use std::error::Error as _;
use std::time::Duration;

/// An error of a request. Its text is logged, so it names hosts but never a path, a query, a header or a body.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EgressError {
    /// The URL is not supported. Nothing was sent.
    #[error("the URL is not an http(s) URL without user info")]
    NotHttp,
    /// The host is not allowed. Nothing was sent to it.
    #[error("the host {0} is not listed; if it is correct, add it to `hosts` of the source")]
    HostNotListed(String),
    /// The host has no allowed address. Nothing was sent to it.
    #[error(
        "{0} has only addresses outside the public internet; if this is intended, add their network to `private` of the source"
    )]
    AddressRefused(String),
    /// A redirect leads from https to http.
    #[error("a redirect leads from https to http")]
    Downgrade,
    /// There were too many redirects, most likely a loop.
    #[error("more than {0} redirects")]
    TooManyRedirects(usize),
    /// No connection could be made, so nothing was sent.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The time limit passed. Whether the service acted on the request is unknown.
    #[error("no complete response within {0:?}; see `timeout` of the source")]
    Timeout(Duration),
    /// The connection broke. Whether the service acted on the request is unknown.
    #[error("the connection failed: {0}")]
    Broken(String),
    /// The response body is larger than this many bytes.
    #[error("the response is larger than {0} bytes; see `max_response_bytes` of the source")]
    TooLarge(usize),
    /// The response has a content encoding, most likely compression.
    #[error("the response has a content encoding, but none was accepted")]
    Encoded,
    /// There are no credentials. Nothing was sent.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The HTTP client cannot be created from the settings.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
}

/// The reason why there are no credentials. Nothing was sent to the service itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// The call came without the caller's token, which is to be exchanged.
    #[error("this source exchanges the caller's token, which was not sent with the call")]
    NoCallerToken,
    /// The person has not granted access, or the source requires more scopes than the person granted.
    #[error("the caller has not authorized this source yet")]
    NotConnected {
        /// The additional scopes that the source requires, separated by spaces, if it names them.
        scope: Option<String>,
    },
    /// The store of grants is unavailable. The call may be retried.
    #[error("the authorizations of callers cannot be read or stored now")]
    NoStore,
    /// There is no response from the token endpoint.
    #[error("the token endpoint: {0}")]
    Endpoint(Box<EgressError>),
    /// The token endpoint returned an error.
    #[error("the token endpoint responded with status {status}{}", .code.map(|code| format!(" ({code})")).unwrap_or_default())]
    Refused {
        /// The status of the response.
        status: u16,
        /// The error code, if it is a known one of RFC 6749, RFC 8693 or RFC 8628.
        code: Option<&'static str>,
    },
    /// The response of the token endpoint is invalid. The text completes the sentence.
    #[error("the response of the token endpoint {0}")]
    BadAnswer(&'static str),
    /// The authorization server could not be discovered. The text says what is missing.
    #[error(
        "the authorization server of the source cannot be determined: {0}; set it by `issuer` or `token_url` of `auth`"
    )]
    NotFound(&'static str),
    /// The configured key does not fit its algorithm.
    #[error("signing with the client's key failed")]
    NotSigned,
    /// The credentials contain characters that are not allowed in headers.
    #[error("the credentials are not valid in a header")]
    NotAHeader,
}

impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        // A URL can contain data of a caller.
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
