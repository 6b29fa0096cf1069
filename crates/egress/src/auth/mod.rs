//! The credentials with which a service is called.
//!
//! ```text
//!   none ∣ bearer ∣ basic ──────────────────────────────▶ a fixed `Authorization`
//!   client_credentials ── TokenCell ─────────┐
//!   token_exchange ── a TokenCell a caller ──┴─ server ─▶ token endpoint, by an Egress of its own
//!                                               └ found by discovery unless it is configured
//!   authorization_code ── store ── per_user: what the caller granted in their browser ─┐
//!   (sign-in of a browser's user) ─────────────────────────────────────────────────────┼─ code
//!   (tokens for clients of our own) ── provider ───────────────────────────────────────┘
//! ```

mod bound;
mod challenge;
mod client;
mod code;
mod connect_error;
mod discovery;
mod enterprise;
mod grant;
mod login;
mod per_user;
mod provider;
mod server;
mod token;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode};
use quick_cache::sync::Cache;
use url::Url;
use wardgate_domain::{Ambient, Caller, Digest, Timestamp};

pub use bound::BoundCredentials;
pub use challenge::BearerChallenge;
pub use client::{ClientKey, ClientProof, OAuthClient, ServerSettings};
pub use code::CodeRequest;
pub use connect_error::ConnectError;
pub use enterprise::{EnterpriseSettings, SubjectToken};
pub use login::{DeviceCode, LoginClient, LoginServer, LoginTokens};
pub use per_user::{
    CodeSettings, ConnectionKey, Grant, GrantCallback, GrantDescription, GrantRequest, GrantStore,
    Person, RegisteredClient, StartedGrant, StoreFuture, StoreUnavailable, StoredTokens,
    UserGrants,
};
pub use provider::{ProviderClient, ProviderSettings, ProviderSettingsError, ProviderTokens};

use super::{AuthError, EgressError, EgressSettings, Secret};
use enterprise::EnterpriseAuthorization;
use server::TokenEndpointClient;
use token::TokenCell;

/// Maximum number of callers whose exchanged tokens one source caches.
const CALLERS: usize = 4_096;

/// The settings of `auth` of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AuthSettings {
    /// No credentials.
    #[default]
    None,
    /// A fixed bearer token.
    Bearer {
        /// The token, as it is sent.
        token: Secret,
    },
    /// HTTP Basic (RFC 7617).
    Basic {
        /// The user name, which must not contain a colon.
        username: String,
        /// The password, as it is sent.
        password: Secret,
    },
    /// OAuth 2.0 client credentials (RFC 6749 §4.4): a token for the gateway itself.
    ClientCredentials(OAuthClient),
    /// OAuth 2.0 token exchange (RFC 8693): a token that represents the caller, for this service only.
    TokenExchange(OAuthClient),
    /// A token that represents the caller, issued by way of the identity provider (ID-JAG).
    Enterprise(Box<EnterpriseSettings>),
    /// OAuth 2.1 authorization code: tokens that the caller granted to the gateway.
    AuthorizationCode(Box<CodeSettings>),
    /// Credentials that have been opened already.
    Open(OpenAuth),
}

/// Open credentials, which are shared by all clients that are opened with them.
#[derive(Clone)]
pub enum OpenAuth {
    /// The grants of all callers.
    PerUser(Arc<UserGrants>),
    /// The credentials of one caller.
    Bound(Arc<BoundCredentials>),
}

impl PartialEq for OpenAuth {
    /// Compares by identity.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::PerUser(one), Self::PerUser(other)) => Arc::ptr_eq(one, other),
            (Self::Bound(one), Self::Bound(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for OpenAuth {}

impl fmt::Debug for OpenAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenAuth")
    }
}

impl AuthSettings {
    /// Sets the service for which the tokens are issued.
    pub fn belong_to(&mut self, service: &Url) {
        let client = match self {
            Self::AuthorizationCode(settings) => {
                settings.server.service = Some(service.clone());
                return;
            }
            Self::None | Self::Bearer { .. } | Self::Basic { .. } | Self::Open(_) => return,
            Self::ClientCredentials(client) | Self::TokenExchange(client) => client,
            Self::Enterprise(settings) => &mut settings.client,
        };
        client.server.service = Some(service.clone());
    }

    /// Returns whether the credentials are derived from the caller's own token.
    pub fn exchange_token(&self) -> bool {
        matches!(self, Self::TokenExchange(_) | Self::Enterprise(_))
    }

    /// Returns whether the credentials represent the caller, so that callers must not share connections or results.
    pub fn stand_for_caller(&self) -> bool {
        let is_per_user = matches!(
            self,
            Self::AuthorizationCode(_) | Self::Open(OpenAuth::PerUser(_))
        );
        is_per_user || self.exchange_token()
    }
}

/// The caller for whom a request is made.
#[derive(Clone, Copy)]
pub struct OnBehalf<'a> {
    tenant: &'a str,
    issuer: &'a str,
    subject: &'a str,
    token: Option<CallerToken<'a>>,
}

impl<'a> OnBehalf<'a> {
    /// Creates the context of `caller`. `token` is the caller's own token, for credentials that are derived from it.
    pub fn from_caller(caller: &'a Caller, token: Option<&'a str>) -> Self {
        Self {
            tenant: caller.tenant(),
            issuer: caller.issuer(),
            subject: caller.subject(),
            token: token.map(|token| CallerToken {
                token,
                expires_at: caller.expires_at(),
            }),
        }
    }
}

/// The caller's own token. It is exchanged and must never be forwarded.
#[derive(Clone, Copy)]
struct CallerToken<'a> {
    token: &'a str,
    expires_at: Timestamp,
}

/// Provides the `Authorization` header of a service.
pub struct Auth(Credentials);

enum Credentials {
    Fixed(Option<HeaderValue>),
    OwnToken {
        server: TokenEndpointClient,
        token: TokenCell,
    },
    /// One cell for each caller's token. The key does not need source, audience or scope, because each source has its
    /// own cache.
    TokenExchange {
        server: TokenEndpointClient,
        tokens: Cache<Digest, Arc<TokenCell>>,
    },
    Enterprise {
        servers: Box<EnterpriseAuthorization>,
        tokens: Cache<Digest, Arc<TokenCell>>,
    },
    PerUser(Arc<UserGrants>),
    Bound(Arc<BoundCredentials>),
}

impl Auth {
    /// Opens the credentials. The token endpoint is reached at its own host only, with the network limits of `egress`.
    pub fn open(
        settings: &AuthSettings,
        egress: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        Ok(Self(match settings {
            // Tokens of callers are in a store, which listing a catalogue does not need.
            AuthSettings::None | AuthSettings::AuthorizationCode(_) => Credentials::Fixed(None),
            AuthSettings::Bearer { token } => Credentials::Fixed(Some(bearer(token.expose())?)),
            AuthSettings::Basic { username, password } => {
                Credentials::Fixed(Some(basic(username, password.expose())?))
            }
            AuthSettings::ClientCredentials(client) => Credentials::OwnToken {
                server: TokenEndpointClient::open(client, egress, ambient)?,
                token: TokenCell::default(),
            },
            AuthSettings::TokenExchange(client) => Credentials::TokenExchange {
                server: TokenEndpointClient::open(client, egress, ambient)?,
                tokens: Cache::new(CALLERS),
            },
            AuthSettings::Enterprise(settings) => Credentials::Enterprise {
                servers: Box::new(EnterpriseAuthorization::open(settings, egress, ambient)?),
                tokens: Cache::new(CALLERS),
            },
            AuthSettings::Open(OpenAuth::PerUser(per_user)) => {
                Credentials::PerUser(Arc::clone(per_user))
            }
            AuthSettings::Open(OpenAuth::Bound(bound)) => Credentials::Bound(Arc::clone(bound)),
        }))
    }

    /// Returns whether a retry can use other credentials.
    pub fn renews(&self) -> bool {
        match &self.0 {
            Credentials::Fixed(_) => false,
            Credentials::Bound(bound) => bound.renews(),
            _ => true,
        }
    }

    /// Adds `scope` to the requests for the caller's next tokens. Returns `false` if that is not possible. What a
    /// person granted, only that person can widen.
    async fn step_up(&self, caller: Option<OnBehalf<'_>>, scope: &str) -> Result<bool, AuthError> {
        match &self.0 {
            Credentials::Fixed(_) => Ok(false),
            Credentials::OwnToken { server, token } => Ok(server.may_widen() && token.widen(scope)),
            Credentials::TokenExchange { server, tokens } => {
                let (_, cell) = of_caller(caller, tokens)?;
                Ok(server.may_widen() && cell.widen(scope))
            }
            Credentials::Enterprise { servers, tokens } => {
                let (_, cell) = of_caller(caller, tokens)?;
                Ok(servers.may_widen() && cell.widen(scope))
            }
            Credentials::PerUser(per_user) => per_user.step_up(caller, scope).await,
            Credentials::Bound(bound) => bound.step_up(scope).await,
        }
    }

    /// Returns whether a request with this response may be retried once with other credentials. The service has not
    /// acted on such a request, and it may have revoked the credentials or require more scopes.
    pub async fn may_do(
        &self,
        caller: Option<OnBehalf<'_>>,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<bool, AuthError> {
        match status {
            StatusCode::UNAUTHORIZED => Ok(self.renews()),
            StatusCode::FORBIDDEN => {
                let challenge = BearerChallenge::from_headers(headers)
                    .filter(BearerChallenge::is_insufficient_scope);
                match challenge.as_ref().and_then(BearerChallenge::scope) {
                    Some(scope) => self.step_up(caller, scope).await,
                    None => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    /// Returns the value of the header, if there is one. If the credentials can be renewed, it differs from `rejected`.
    pub async fn authorization(
        &self,
        caller: Option<OnBehalf<'_>>,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        match &self.0 {
            Credentials::Fixed(value) => Ok(value.clone()),
            Credentials::OwnToken { server, token } => {
                let granted =
                    token.get(server.ambient(), rejected, |wider| server.own_token(wider));
                granted.await.map(Some)
            }
            Credentials::TokenExchange { server, tokens } => {
                let (caller, cell) = of_caller(caller, tokens)?;
                let granted = cell.get(server.ambient(), rejected, |wider| {
                    server.exchange(caller, wider)
                });
                granted.await.map(Some)
            }
            Credentials::Enterprise { servers, tokens } => {
                let (caller, cell) = of_caller(caller, tokens)?;
                let granted = cell.get(servers.ambient(), rejected, |wider| {
                    servers.token(caller, wider)
                });
                granted.await.map(Some)
            }
            Credentials::PerUser(per_user) => per_user.authorization(caller, rejected).await,
            Credentials::Bound(bound) => bound.authorization(rejected).await,
        }
    }
}

/// Returns the caller's token, and the cell with the token that represents the caller.
fn of_caller<'a>(
    caller: Option<OnBehalf<'a>>,
    tokens: &Cache<Digest, Arc<TokenCell>>,
) -> Result<(CallerToken<'a>, Arc<TokenCell>), AuthError> {
    let caller = caller.and_then(|caller| caller.token);
    let caller = caller.ok_or(AuthError::NoCallerToken)?;
    let key = Digest::compute(caller.token.as_bytes());
    let cell = tokens.get_or_insert_with::<_, AuthError>(&key, || Ok(Arc::default()))?;
    Ok((caller, cell))
}

impl AuthError {
    fn endpoint(error: EgressError) -> Self {
        Self::Endpoint(Box::new(error))
    }

    /// Returns whether the server rejected the client itself, independent of the caller.
    fn is_of_client(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: Some("invalid_client" | "unauthorized_client"),
                ..
            }
        )
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
