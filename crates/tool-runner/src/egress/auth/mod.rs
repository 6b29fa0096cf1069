//! The credentials a service is called with.
//!
//! ```text
//!   none ∣ bearer ∣ basic ──────────────────────────────▶ a fixed `Authorization`
//!   client_credentials ── TokenCell ─────────┐
//!   token_exchange ── a TokenCell a caller ──┴─ grant ──▶ token_url, by an Egress of its own
//! ```

mod client;
mod grant;
mod secret;
mod token;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, Digest, Timestamp};

pub(crate) use client::{ClientKey, ClientProof, OAuthClient};
pub(crate) use secret::Secret;

use super::{EgressError, EgressSettings};
use grant::TokenEndpoint;
use token::TokenCell;

/// How many callers' exchanged tokens one source keeps.
const CALLERS: usize = 4_096;

/// What `auth` of a source says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum AuthSettings {
    /// No credentials.
    #[default]
    None,
    /// One fixed token.
    Bearer { token: Secret },
    /// HTTP Basic (RFC 7617).
    Basic { username: String, password: Secret },
    /// OAuth 2.0 client credentials (RFC 6749 §4.4): a token of our own.
    ClientCredentials(OAuthClient),
    /// OAuth 2.0 token exchange (RFC 8693): a token that stands for the caller, for this service only.
    TokenExchange(OAuthClient),
}

/// The caller's own token, to be exchanged and never to be sent on.
#[derive(Clone, Copy)]
pub(crate) struct CallerToken<'a> {
    pub(crate) token: &'a str,
    pub(crate) expires_at: Timestamp,
}

/// Why there are no credentials. Nothing was sent to the service itself.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("the caller's token did not come with the call, and this source exchanges it")]
    NoCallerToken,
    #[error("the token endpoint: {0}")]
    Endpoint(Box<EgressError>),
    #[error("the token endpoint refused with status {status}{}", .code.map(|code| format!(" ({code})")).unwrap_or_default())]
    Refused {
        status: u16,
        /// One of RFC 6749 §5.2.
        code: Option<&'static str>,
    },
    #[error("the token endpoint's answer {0}")]
    BadAnswer(&'static str),
    #[error("the client's key does not sign")]
    NotSigned,
    #[error("the credentials cannot be written as a header")]
    NotAHeader,
}

/// Gives the `Authorization` header of a service.
pub(crate) enum Auth {
    Fixed(Option<HeaderValue>),
    ClientCredentials {
        endpoint: TokenEndpoint,
        token: TokenCell,
    },
    /// One cell a caller's token. Source, audience and scope need no part in the key: this cache is the
    /// source's own.
    TokenExchange {
        endpoint: TokenEndpoint,
        tokens: Cache<Digest, Arc<TokenCell>>,
    },
}

impl Auth {
    /// The token endpoint is reached with the limits of `egress`, at its own host.
    pub(crate) fn open(
        settings: &AuthSettings,
        egress: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        Ok(match settings {
            AuthSettings::None => Self::Fixed(None),
            AuthSettings::Bearer { token } => Self::Fixed(Some(bearer(token.expose())?)),
            AuthSettings::Basic { username, password } => {
                Self::Fixed(Some(basic(username, password.expose())?))
            }
            AuthSettings::ClientCredentials(client) => Self::ClientCredentials {
                endpoint: TokenEndpoint::open(client, egress, ambient)?,
                token: TokenCell::default(),
            },
            AuthSettings::TokenExchange(client) => Self::TokenExchange {
                endpoint: TokenEndpoint::open(client, egress, ambient)?,
                tokens: Cache::new(CALLERS),
            },
        })
    }

    /// Whether another try can have other credentials.
    pub(crate) fn renews(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }

    /// The header's value, if there is one, and another than `rejected` if it can be renewed.
    pub(crate) async fn authorization(
        &self,
        caller: Option<CallerToken<'_>>,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::ClientCredentials { endpoint, token } => {
                let granted = token.get(endpoint.ambient(), rejected, || endpoint.own_token());
                granted.await.map(Some)
            }
            Self::TokenExchange { endpoint, tokens } => {
                let caller = caller.ok_or(AuthError::NoCallerToken)?;
                let key = Digest::of(caller.token.as_bytes());
                let cell =
                    tokens.get_or_insert_with::<_, AuthError>(&key, || Ok(Arc::default()))?;
                let granted = cell.get(endpoint.ambient(), rejected, || endpoint.exchange(caller));
                granted.await.map(Some)
            }
        }
    }
}

fn bearer(token: &str) -> Result<HeaderValue, AuthError> {
    header(&format!("Bearer {token}"))
}

fn basic(username: &str, password: &str) -> Result<HeaderValue, AuthError> {
    header(&format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    ))
}

fn header(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| AuthError::NotAHeader)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
