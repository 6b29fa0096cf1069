//! Roles and attributes of callers that their tokens do not say.
//!
//! ```text
//!   Caller of a token ─▶ cache ─── looked up a moment ago ───▶ Caller with these, too
//!                          │                                       ▲
//!                          ▼ new, one lookup at a time             │
//!                        RightsSource ─────────────────────────────┘
//!                          a table or a query; of whoever does not decide: the policy service
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

/// Callers whose roles and attributes are remembered of the policy service.
const REMEMBERED: usize = 10_000;
/// How long the policy service's word for a caller counts of whom it looks nothing up.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// How long a request waits to know whether the policy service looks callers up, right after the start.
const FIRST_WORD_LIMIT: Duration = Duration::from_millis(250);

/// Knows roles and attributes of callers.
#[async_trait]
pub trait RightsSource: Send + Sync {
    /// The roles and attributes of `caller`, a caller as the token says it.
    async fn look_up(&self, caller: &Caller) -> Result<CallerRights, TokenRefusal>;
}

/// Looks up roles and attributes of callers, and remembers them until they have to be looked up again.
pub struct CallerLookup {
    source: Box<dyn RightsSource>,
    /// By the digest of the caller as the token says it.
    cache: Cache<Digest, Arc<CallerRights>>,
    /// Whether there is anything to look up; none while nobody knows. Without a receiver there is.
    in_force: Option<watch::Receiver<Option<bool>>>,
    ambient: Ambient,
}

impl fmt::Debug for CallerLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerLookup")
    }
}

impl CallerLookup {
    /// Asks `source`, and remembers `capacity` callers at most.
    pub fn new(source: impl RightsSource + 'static, capacity: usize, ambient: Ambient) -> Self {
        Self {
            source: Box::new(source),
            cache: Cache::new(capacity),
            in_force: None,
            ambient,
        }
    }

    /// Asks the policy service, as soon and as long as `in_force` says that it looks callers up.
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

    /// `caller` with the roles and attributes that were looked up.
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
        // Nothing is decided without the policy service, which looks callers up itself: it is safe to go on.
        let mut in_force = in_force.clone();
        let known = tokio::time::timeout(FIRST_WORD_LIMIT, in_force.wait_for(Option::is_some));
        matches!(known.await, Ok(Ok(known)) if *known == Some(true))
    }
}

/// What the policy service says of callers.
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
        // It trusts the same issuers, and has read their keys at another time.
        ErrorReason::TokenRefused => TokenRefusal::KeyUnknown,
        _ => {
            tracing::warn!(%error, "the policy service did not say which roles a caller has");
            TokenRefusal::RightsUnavailable
        }
    }
}
