//! What a person granted a source to do in their name (OAuth 2.1 authorization code), kept for their calls.
//!
//! ```text
//!   no token ─▶ NotConnected ─▶ the person's browser ─▶ start ─▶ authorization server ─▶ finish ─▶ store
//!   a call ── store ─▶ fresh? ─▶ `Authorization`
//!                      └ no: refresh, by one replica at a time; refused: forgotten
//! ```
//!
//! Tokens are read from the store for each call, so that who is disconnected is so at once and everywhere. Then their
//! server is told to take them back.

mod finish;
mod grant_store;
mod register;
mod revoke;
mod start;
mod tokens;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;
use tracing::warn;
use url::Url;
use wardgate_domain::{Ambient, Timestamp};

use super::client::{ClientProof, ServerSettings};
use super::{AuthError, OnBehalf};
use crate::EgressSettings;
use crate::auth::code::AuthorizationServer;

pub use finish::GrantCallback;
pub use grant_store::{
    ConnectionKey, GrantStore, Person, StoreFuture, StoreUnavailable, StoredTokens,
};
pub use revoke::Grant;
pub use start::{GrantDescription, GrantRequest, StartedGrant};
use tokens::{HeldTokens, Tokens};

/// How long one replica alone may refresh.
const REFRESH: Duration = Duration::from_secs(20);

/// How often another looks whether it has, and for how long.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOKS: u32 = 150;

/// What `auth` of type `authorization_code` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSettings {
    /// Where codes become tokens.
    pub server: ServerSettings,
    /// Where the person is sent; found by discovery without it.
    pub authorization_url: Option<Url>,
    /// Without it the client is registered by itself.
    pub client: Option<RegisteredClient>,
    /// What the person is asked for, separated by spaces.
    pub scope: Option<String>,
    /// The service that tokens are for (RFC 8707); its URL without it.
    pub resource: Option<String>,
}

/// A client that somebody registered by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// By which the server knows it.
    pub id: String,
    /// That it is us.
    pub proof: ClientProof,
}

/// Why a person's grant could not be begun or finished.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The server is not known, or did not grant it.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Nothing was kept.
    #[error("the connections cannot be read or kept now; try again later")]
    Store,
    /// OAuth 2.1 §7.5.2 wants it.
    #[error("the authorization server does not support PKCE with S256, so it is not used")]
    NoPkce,
    /// There is none, and no way to get one.
    #[error(
        "the authorization server registers no client by itself; add `client_id` to `auth` of the source"
    )]
    NoClient,
    /// It took too long, or is none of ours.
    #[error("what was begun is no longer open; begin again")]
    Lapsed,
    /// RFC 9207 §2.4.
    #[error("the answer came from another authorization server than the one that was asked")]
    OtherIssuer,
}

/// The grants by which users let one source act in their name.
pub struct UserGrants {
    source: String,
    service: Url,
    settings: CodeSettings,
    limits: EgressSettings,
    store: Arc<dyn GrantStore>,
    ambient: Ambient,
    /// With the time until which they are believed.
    facts: Mutex<Option<(Arc<AuthorizationServer>, Timestamp)>>,
}

impl UserGrants {
    /// `limits` are those of the source.
    pub fn open(
        source: &str,
        service: &Url,
        settings: &CodeSettings,
        limits: &EgressSettings,
        store: Arc<dyn GrantStore>,
        ambient: &Ambient,
    ) -> Self {
        Self {
            source: source.to_owned(),
            service: service.clone(),
            settings: settings.clone(),
            limits: limits.clone(),
            store,
            ambient: ambient.clone(),
            facts: Mutex::default(),
        }
    }

    /// Another one than `rejected`.
    pub async fn authorization(
        self: &Arc<Self>,
        caller: Option<OnBehalf<'_>>,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        let person = person(caller)?;
        self.of_person(person, rejected).await.map(Some)
    }

    /// Only the person can widen what they granted; what they were asked for before, another time would not give.
    pub(super) async fn step_up(
        &self,
        caller: Option<OnBehalf<'_>>,
        scope: &str,
    ) -> Result<bool, AuthError> {
        let kept = self.kept(&person(caller)?).await?;
        let held = kept.and_then(|kept| kept.tokens.scope).unwrap_or_default();
        let is_held = |wanted: &str| held.split_ascii_whitespace().any(|it| it == wanted);
        if scope.split_ascii_whitespace().all(is_held) {
            return Ok(false);
        }
        Err(AuthError::NotConnected {
            scope: Some(scope.to_owned()),
        })
    }

    async fn of_person(
        self: &Arc<Self>,
        person: Person,
        rejected: Option<&HeaderValue>,
    ) -> Result<HeaderValue, AuthError> {
        for _ in 0..LOOKS {
            let kept = self.kept(&person).await?;
            let kept = kept.ok_or(AuthError::NotConnected { scope: None })?;
            let authorization = kept.tokens.authorization()?;
            let is_rejected = rejected == Some(&authorization);
            if kept.tokens.is_fresh(self.ambient.now()) && !is_rejected {
                return Ok(authorization);
            }
            if is_rejected && self.has_moved(&kept.tokens).await {
                let ended = self.store.end(&self.key(&person), kept.version).await;
                ended.map_err(|_| AuthError::NoStore)?;
                return Err(AuthError::NotConnected { scope: None });
            }
            if kept.tokens.refresh_token.is_none() {
                return Err(AuthError::NotConnected { scope: None });
            }
            let until = self.ambient.now().plus(REFRESH);
            let key = self.key(&person);
            let claimed = self.store.claim_refresh(&key, kept.version, until).await;
            if claimed.map_err(|_| AuthError::NoStore)? {
                let refreshing = Arc::clone(self);
                // Its own task: what the server gave to a caller who hangs up meanwhile is not lost.
                let refreshed =
                    tokio::spawn(async move { refreshing.refresh(&person, kept).await });
                return refreshed.await.unwrap_or(Err(AuthError::NoStore));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(AuthError::NoStore)
    }

    /// Whether the service, which takes these no longer, trusts another server by now. What cannot be found out is as it
    /// was.
    async fn has_moved(&self, tokens: &Tokens) -> bool {
        self.forget_facts().await;
        let facts = self.facts().await;
        facts.is_ok_and(|facts| facts.issuer != tokens.at.issuer)
    }

    /// Asks for new tokens, which the server may give once only.
    async fn refresh(&self, person: &Person, kept: HeldTokens) -> Result<HeaderValue, AuthError> {
        let key = self.key(person);
        let refreshed = match self.endpoint_of(&kept.tokens) {
            Ok(endpoint) => kept.tokens.refresh(&endpoint, &self.ambient).await,
            Err(error) => Err(error),
        };
        match refreshed {
            Ok(tokens) => {
                let authorization = tokens.authorization()?;
                let replaced = self
                    .store
                    .replace(&key, kept.version, &tokens.to_bytes())
                    .await;
                match replaced {
                    // Who was disconnected meanwhile stays so, also at the server.
                    Ok(false) => {
                        self.revoke(Grant::of(tokens)).await;
                        Err(AuthError::NotConnected { scope: None })
                    }
                    Ok(true) => Ok(authorization),
                    Err(_) => Err(AuthError::NoStore),
                }
            }
            Err(error) if self.is_over(&error) => {
                warn!(
                    source = self.source,
                    "an authorization server takes a person's grant no longer; it is forgotten"
                );
                // It is no good, whether or not it can be forgotten now.
                let _ = self.store.end(&key, kept.version).await;
                Err(AuthError::NotConnected { scope: None })
            }
            Err(error) => {
                // Otherwise the next waits for the end of the claim.
                let _ = self.store.release(&key, kept.version).await;
                Err(error)
            }
        }
    }

    /// Whether the server will never take a grant again that it refused so. A client that was registered by
    /// hand can be mended, one that it registered itself it may have forgotten.
    fn is_over(&self, error: &AuthError) -> bool {
        let is_of_grant = matches!(
            error,
            AuthError::Refused {
                code: Some("invalid_grant"),
                ..
            }
        );
        is_of_grant || self.settings.client.is_none() && error.is_of_client()
    }

    async fn kept(&self, person: &Person) -> Result<Option<HeldTokens>, AuthError> {
        let stored = self.store.connection(&self.key(person)).await;
        let stored = stored.map_err(|_| AuthError::NoStore)?;
        let kept = stored.and_then(|stored| {
            let tokens = Tokens::read(&stored.plain)?;
            Some(HeldTokens {
                tokens,
                version: stored.version,
            })
        });
        // A grant of another client is none of ours.
        Ok(kept.filter(|kept| match &self.settings.client {
            Some(client) => kept.tokens.client_id == client.id,
            None => true,
        }))
    }

    fn key<'a>(&'a self, person: &'a Person) -> ConnectionKey<'a> {
        ConnectionKey {
            person,
            source: &self.source,
            service: self.service.as_str(),
        }
    }

    fn now(&self) -> Timestamp {
        self.ambient.now()
    }
}

/// Nobody in particular has granted nothing.
fn person(caller: Option<OnBehalf<'_>>) -> Result<Person, AuthError> {
    let caller = caller.ok_or(AuthError::NotConnected { scope: None })?;
    Ok(Person {
        tenant: caller.tenant.to_owned(),
        issuer: caller.issuer.to_owned(),
        subject: caller.subject.to_owned(),
    })
}

impl fmt::Debug for UserGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserGrants")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
