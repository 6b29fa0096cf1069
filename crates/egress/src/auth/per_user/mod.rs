//! Per-user grants (OAuth 2.1 authorization code): what a person granted to a source, stored for the person's calls.
//!
//! ```text
//!   no token ─▶ NotConnected ─▶ the person's browser ─▶ start ─▶ authorization server ─▶ finish ─▶ store
//!   a call ── store ─▶ fresh? ─▶ `Authorization`
//!                      └ no: refresh, by one replica at a time; refused: removed
//! ```
//!
//! Tokens are read from the store for each call, so that a disconnection takes effect at once and at every replica. The
//! authorization server is then asked to revoke them.

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

/// Time for which one replica has the exclusive claim to refresh.
const REFRESH: Duration = Duration::from_secs(20);

/// Interval between two checks whether another replica has refreshed, and maximum number of checks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOKS: u32 = 150;

/// The settings of `auth` of type `authorization_code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSettings {
    /// The authorization server.
    pub server: ServerSettings,
    /// The authorization endpoint, or `None` if it is found by discovery.
    pub authorization_url: Option<Url>,
    /// The client at the server, or `None` if it is registered dynamically.
    pub client: Option<RegisteredClient>,
    /// The requested scopes, separated by spaces.
    pub scope: Option<String>,
    /// The `resource` of token requests (RFC 8707), or `None` for the one that discovery found.
    pub resource: Option<String>,
}

/// A client that was registered manually.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// The client id.
    pub id: String,
    /// How the client authenticates.
    pub proof: ClientProof,
}

/// The grants by which users let one source act on their behalf.
pub struct UserGrants {
    source: String,
    service: Url,
    settings: CodeSettings,
    limits: EgressSettings,
    store: Arc<dyn GrantStore>,
    ambient: Ambient,
    /// The resolved authorization server and the end of its cache entry.
    facts: Mutex<Option<(Arc<AuthorizationServer>, Timestamp)>>,
}

impl UserGrants {
    /// Opens the grants of a source. `limits` are the network limits of the source.
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

    /// Returns the caller's `Authorization` header, which differs from `rejected`.
    pub async fn authorization(
        self: &Arc<Self>,
        caller: Option<OnBehalf<'_>>,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        let person = person(caller)?;
        self.of_person(person, rejected).await.map(Some)
    }

    /// Fails with [`AuthError::NotConnected`], because only the person can widen a grant. Returns `false` if the person
    /// has already been asked for all these scopes, because asking again would not help.
    pub(super) async fn step_up(
        &self,
        caller: Option<OnBehalf<'_>>,
        scope: &str,
    ) -> Result<bool, AuthError> {
        let kept = self.load_tokens(&person(caller)?).await?;
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
            let kept = self.load_tokens(&person).await?;
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
                // A separate task, so that tokens from the server are not lost if the caller disconnects.
                let refreshed =
                    tokio::spawn(async move { refreshing.refresh(&person, kept).await });
                return refreshed.await.unwrap_or(Err(AuthError::NoStore));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(AuthError::NoStore)
    }

    /// Returns whether the service, which rejected these tokens, has moved to another authorization server. If
    /// discovery fails, it has not.
    async fn has_moved(&self, tokens: &Tokens) -> bool {
        self.forget_facts().await;
        let facts = self.facts().await;
        facts.is_ok_and(|facts| facts.issuer != tokens.at.issuer)
    }

    /// Refreshes the tokens. The server may accept the refresh token only once.
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
                    // The person disconnected in the meantime, so the new tokens are revoked at the server.
                    Ok(false) => {
                        self.revoke(Grant::from_tokens(tokens)).await;
                        Err(AuthError::NotConnected { scope: None })
                    }
                    Ok(true) => Ok(authorization),
                    Err(_) => Err(AuthError::NoStore),
                }
            }
            Err(error) if self.is_over(&error) => {
                warn!(
                    source = self.source,
                    "an authorization server rejects a user's grant; the grant is deleted"
                );
                // The grant is invalid, whether or not it can be removed now.
                let _ = self.store.end(&key, kept.version).await;
                Err(AuthError::NotConnected { scope: None })
            }
            Err(error) => {
                // Without the release, the next refresh has to wait for the end of the claim.
                let _ = self.store.release(&key, kept.version).await;
                Err(error)
            }
        }
    }

    /// Returns whether the error means that the server will never accept this grant again. An error about the client
    /// counts only if the client was registered dynamically, because the server may have forgotten it; a manually
    /// registered client can be corrected.
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

    async fn load_tokens(&self, person: &Person) -> Result<Option<HeldTokens>, AuthError> {
        let stored = self.store.connection(&self.key(person)).await;
        let stored = stored.map_err(|_| AuthError::NoStore)?;
        let kept = stored.and_then(|stored| {
            let tokens = Tokens::parse(&stored.plain)?;
            Some(HeldTokens {
                tokens,
                version: stored.version,
            })
        });
        // A grant of another client cannot be used.
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

/// Returns the person of the caller. A request without a caller has no grant.
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
