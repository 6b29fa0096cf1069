//! Lookup of roles and attributes of callers that are not in their tokens.
//!
//! ```text
//!   caller of a token ──▶ cache ─── looked up recently ──────▶ caller with looked-up rights
//!                          │                                       ▲
//!                          ▼ new, one lookup at a time             │
//!                        RightsSource ─────────────────────────────┘
//!                          a table or a query; in services other than the policy service: the policy service
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quick_cache::sync::Cache;
use tokio::sync::watch;
use wardgate_domain::{Ambient, Caller, CallerRights, Digest};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, PolicyClient};

use super::TokenRefusal;

/// Maximum number of callers whose rights from the policy service are cached.
const REMEMBERED: usize = 10_000;
/// Lifetime of rights from the policy service that have no expiry because the service looks nothing up for the caller.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// Maximum time that a request waits, right after the start, to learn whether the policy service looks up callers.
const FIRST_WORD_LIMIT: Duration = Duration::from_millis(250);

/// A source of roles and attributes of callers.
#[async_trait]
pub trait RightsSource: Send + Sync {
    /// Looks up the roles and attributes of `caller`, which has those of its token.
    async fn look_up(&self, caller: &Caller) -> Result<CallerRights, TokenRefusal>;
}

/// A lookup of roles and attributes of callers, with a cache.
pub struct CallerLookup {
    source: Box<dyn RightsSource>,
    /// The cached rights by the digest of the caller as described by the token.
    cache: Cache<Digest, Arc<CallerRights>>,
    /// Whether rights have to be looked up; `None` in the channel while this is not known. Without a channel, they
    /// always have to be.
    in_force: Option<watch::Receiver<Option<bool>>>,
    ambient: Ambient,
}

impl fmt::Debug for CallerLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerLookup")
    }
}

impl CallerLookup {
    /// Creates a lookup that asks `source` and caches at most `capacity` callers.
    pub fn new(source: impl RightsSource + 'static, capacity: usize, ambient: Ambient) -> Self {
        Self {
            source: Box::new(source),
            cache: Cache::new(capacity),
            in_force: None,
            ambient,
        }
    }

    /// Creates a lookup that asks the policy service, whenever `in_force` states that the service looks up callers.
    pub fn of_policy(
        policy: PolicyClient,
        in_force: watch::Receiver<Option<bool>>,
        ambient: Ambient,
    ) -> Self {
        let source = PolicyRights {
            policy,
            ambient: ambient.clone(),
        };
        Self {
            in_force: Some(in_force),
            ..Self::new(source, REMEMBERED, ambient)
        }
    }

    /// Returns `caller` with the roles and attributes that were looked up.
    pub async fn complete(&self, caller: Arc<Caller>) -> Result<Arc<Caller>, TokenRefusal> {
        if !self.is_in_force().await {
            return Ok(caller);
        }
        let (key, now) = (caller.digest(), self.ambient.now());
        let is_over = |rights: &Arc<CallerRights>| rights.expires_at <= now;
        if self.cache.get(&key).as_ref().is_some_and(is_over) {
            self.cache.remove_if(&key, is_over);
        }
        let look_up = async { self.source.look_up(&caller).await.map(Arc::new) };
        let rights = self.cache.get_or_insert_async(&key, look_up).await?;
        Ok(Arc::new(Caller::clone(&caller).with_rights(&rights)))
    }

    async fn is_in_force(&self) -> bool {
        let Some(in_force) = &self.in_force else {
            return true;
        };
        if let Some(in_force) = *in_force.borrow() {
            return in_force;
        }
        // Continuing without the lookup is safe, because every decision is made by the policy service, which looks up
        // callers itself.
        let mut in_force = in_force.clone();
        let known = tokio::time::timeout(FIRST_WORD_LIMIT, in_force.wait_for(Option::is_some));
        matches!(known.await, Ok(Ok(known)) if *known == Some(true))
    }
}

/// The rights of callers according to the policy service.
struct PolicyRights {
    policy: PolicyClient,
    ambient: Ambient,
}

#[async_trait]
impl RightsSource for PolicyRights {
    async fn look_up(&self, caller: &Caller) -> Result<CallerRights, TokenRefusal> {
        let token = caller.token().ok_or(TokenRefusal::RightsUnavailable)?;
        let known = self.policy.identify(token).await;
        let known = known.map_err(|error| refusal(&error))?;
        let expires_at = known.rights_expire_at();
        Ok(CallerRights {
            roles: known.roles().to_vec(),
            attributes: known.attributes().clone(),
            replaces_claims: true,
            expires_at: expires_at.unwrap_or_else(|| self.ambient.now().plus(REMEMBERED_FOR)),
        })
    }
}

fn refusal(error: &CallError) -> TokenRefusal {
    match error.reason() {
        ErrorReason::Denied => TokenRefusal::CallerUnlisted,
        // The policy service trusts the same issuers, but may have read their keys at another time.
        ErrorReason::TokenRefused => TokenRefusal::KeyUnknown,
        _ => {
            tracing::warn!(%error, "the policy service did not return the roles of a caller");
            TokenRefusal::RightsUnavailable
        }
    }
}
