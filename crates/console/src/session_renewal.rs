//! Renewal of the tokens of a stored session.
//!
//! ```text
//!  due? ─▶ claim the row ── claimed by another ──▶ the current token while it is valid; else wait for the renewal
//!              │ claimed: read the row again, in a task that outlives the request
//!              ▼
//!           provider ── invalid_grant ──▶ the session ends
//!              │   └─ any other error ──▶ the claim stays, so that the provider is not asked again for a while
//!              ▼
//!           token verified like the gateway does ─▶ row, if the claim is still ours
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_edge::Authenticator;
use wardgate_egress::AuthError;

use crate::Console;
use crate::provider_sign_in::{ProviderSignIn, SignInError};
use crate::store::{ConsoleStore, StoreError};
use crate::stored_session::{SessionId, SessionTokens, StoredSession};

/// Time for which a replica has the exclusive claim to renew the tokens of a session. If the provider is unavailable,
/// it is not asked again during this time.
const CLAIM: Duration = Duration::from_secs(30);
/// Maximum time of a renewal, which is shorter than a claim.
const LIMIT: Duration = Duration::from_secs(20);
/// Maximum time for which a request waits for the renewal by another one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two checks whether the renewal is done.
const PAUSE: Duration = Duration::from_millis(200);

/// The reason why an active session cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the token has expired, and the provider returns no newer one now")]
    NoToken,
}

/// One renewal. It continues if the browser disconnects, because the provider may already have replaced the refresh
/// token.
struct SessionRenewal {
    sign_in: Arc<ProviderSignIn>,
    store: Arc<ConsoleStore>,
    auth: Arc<Authenticator>,
    ambient: Ambient,
    id: SessionId,
    claim: Timestamp,
}

impl ProviderSignIn {
    /// Returns the session with this id, and renews its tokens if they end soon. Returns `None` if the session has
    /// ended.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        console: &Console,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, ResumeError> {
        let Some(stored) = console.store.find_session(id).await? else {
            return Ok(None);
        };
        if !stored.tokens.is_due(console.ambient.now()) {
            return Ok(Some(stored));
        }
        let Some(claim) = console.store.claim_renewal(id, CLAIM).await? else {
            return wait(console, id, stored).await;
        };
        let renewal = SessionRenewal {
            sign_in: Arc::clone(self),
            store: Arc::clone(&console.store),
            auth: Arc::clone(&console.admission.auth),
            ambient: console.ambient.clone(),
            id: id.clone(),
            claim,
        };
        let renewed = tokio::spawn(async move { timeout(LIMIT, renewal.run()).await });
        match renewed.await {
            Ok(Ok(Ok(RenewalOutcome::Session(newer)))) => Ok(Some(newer)),
            Ok(Ok(Ok(RenewalOutcome::Ended))) => Ok(None),
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Ok(Ok(RenewalOutcome::NotNow)) | Err(_)) | Err(_) => {
                usable_now(stored, console.ambient.now()).map(Some)
            }
        }
    }
}

/// Returns the current token while it is valid, and otherwise waits for the renewal by another request.
async fn wait(
    console: &Console,
    id: &SessionId,
    stored: StoredSession,
) -> Result<Option<StoredSession>, ResumeError> {
    if stored.tokens.lasts(console.ambient.now()) {
        return Ok(Some(stored));
    }
    let looks = async {
        loop {
            tokio::time::sleep(PAUSE).await;
            match console.store.find_session(id).await? {
                Some(same) if !same.tokens.lasts(console.ambient.now()) => {}
                other => return Ok(other),
            }
        }
    };
    timeout(PATIENCE, looks)
        .await
        .unwrap_or(Err(ResumeError::NoToken))
}

fn usable_now(stored: StoredSession, now: Timestamp) -> Result<StoredSession, ResumeError> {
    if stored.tokens.lasts(now) {
        Ok(stored)
    } else {
        Err(ResumeError::NoToken)
    }
}

/// The outcome of a renewal.
enum RenewalOutcome {
    Session(StoredSession),
    /// The provider, or the verification of the new token, ended the session.
    Ended,
    /// The renewal failed temporarily.
    NotNow,
}

impl SessionRenewal {
    async fn run(self) -> Result<RenewalOutcome, StoreError> {
        // Another renewal may have finished since the row was found due, and its refresh token must not be used twice.
        let Some(stored) = self.store.find_session(&self.id).await? else {
            return Ok(RenewalOutcome::Ended);
        };
        let StoredSession { tokens, expires_at } = stored;
        let refresh_token = tokens.refresh_token.clone().unwrap_or_default();
        if !tokens.is_due(self.ambient.now()) {
            self.store
                .replace_tokens(&self.id, &tokens, self.claim)
                .await?;
            return Ok(RenewalOutcome::Session(StoredSession {
                tokens,
                expires_at,
            }));
        }
        let answer = match self.sign_in.refresh(&refresh_token).await {
            Ok(answer) => answer,
            Err(AuthError::Refused {
                code: Some("invalid_grant"),
                status: 400..=499,
            }) => {
                tracing::info!("a provider ended a session");
                self.store.end_claimed(&self.id, self.claim).await?;
                return Ok(RenewalOutcome::Ended);
            }
            Err(error) => {
                tracing::warn!(%error, "the tokens of a session cannot be renewed now");
                return Ok(RenewalOutcome::NotNow);
            }
        };
        let newer_refresh_token = answer.refresh_token.clone();
        let now = self.ambient.now();
        let usable = self.sign_in.usable(&self.auth, answer, Some(&tokens), now);
        match usable.await {
            Ok(tokens) => {
                self.store_tokens(&tokens).await?;
                Ok(RenewalOutcome::Session(StoredSession {
                    tokens,
                    expires_at,
                }))
            }
            Err(error @ SignInError::TokenUnverified(_)) => {
                tracing::warn!(%error, "the newer token of a session cannot be verified now");
                let kept = SessionTokens {
                    refresh_token: newer_refresh_token.or(tokens.refresh_token),
                    renew_at_micros: now.plus(CLAIM).as_micros(),
                    ..tokens
                };
                self.store_tokens(&kept).await?;
                Ok(RenewalOutcome::NotNow)
            }
            Err(error) => {
                tracing::warn!(%error, "a session is ended because its newer token was refused");
                self.store.end_claimed(&self.id, self.claim).await?;
                Ok(RenewalOutcome::Ended)
            }
        }
    }

    /// Stores tokens, and retries once, because the refresh token in the store may have been used up.
    async fn store_tokens(&self, tokens: &SessionTokens) -> Result<(), StoreError> {
        let kept = self.store.replace_tokens(&self.id, tokens, self.claim);
        match kept.await {
            Ok(()) => Ok(()),
            Err(_) => {
                self.store
                    .replace_tokens(&self.id, tokens, self.claim)
                    .await
            }
        }
    }
}
