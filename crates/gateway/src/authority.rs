//! The client of the policy service, with a cache of the permits that may be reused.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::StreamExt;
use quick_cache::sync::Cache;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{
    Ambient, Approvers, CallReference, Caller, Decision, DenialReason, Digest, PermitId,
    SignedApproval, SignedPermit, Timestamp, ToolFacts, ToolName, Verdict,
};
use wardgate_mcp_server::RpcError;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::Limiter;
use wardgate_rpc::client::{CallError, PolicyClient, PolicyVersion};

use crate::change_counter::ChangeCounter;
use wardgate_limits::neighbour_overloaded;

/// Maximum number of permits in the cache.
const KEPT: usize = 10_000;
/// Remaining lifetime below which a cached permit is not reused: it must still be valid when it reaches the tool-runner.
const MARGIN: Duration = Duration::from_secs(1);

/// The authority under which an allowed call runs.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) permit: SignedPermit,
    pub(crate) permit_id: PermitId,
    pub(crate) decision: Decision,
    pub(crate) expires_at: Timestamp,
    /// The approval that the permit was given for, or `None` if the call needs none.
    pub(crate) approval: Option<SignedApproval>,
}

/// The answer of the policy service.
#[derive(Debug)]
pub(crate) enum Authorization {
    Allowed(Arc<Grant>),
    Denied {
        decision: Decision,
        reason: DenialReason,
        visible: bool,
        /// The approval with which the call would be allowed, or `None` if no approval would help.
        need: Option<Box<ApprovalNeed>>,
    },
    /// The policy service decides once the intent of the call is on record.
    NeedsIntent(Decision),
}

/// An approval that a call needs.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalNeed {
    /// The people of whom one has to approve the call.
    pub(crate) approvers: Approvers,
    /// Time for which a request for the approval stays open.
    pub(crate) lifetime: Duration,
    /// Hash of the schema and policies that demand the approval.
    pub(crate) policy_hash: Digest,
}

/// Digest of the caller's rights, name of the tool, and digest of the tool's definition.
type PermitCacheKey = (Digest, ToolName, Digest);

/// The client of the policy service, with the reusable permits that it signed.
#[derive(Debug)]
pub(crate) struct Authority {
    policy: PolicyClient,
    /// The concurrency limiter, which is told when the policy service is overloaded.
    limiter: Limiter,
    ambient: Ambient,
    permits: Cache<PermitCacheKey, Arc<Grant>>,
    /// The policy version in force, or `None` while it is unknown. No permit is reused while it is unknown.
    version: Arc<ArcSwapOption<PolicyVersion>>,
    _watcher: AbortOnDropHandle<()>,
}

impl Authority {
    /// Creates the client and follows the policy version. `changes` is increased when the version changes, and
    /// `has_lookup` receives whether the policy service looks up roles and attributes of callers.
    pub(crate) fn new(
        policy: PolicyClient,
        limiter: Limiter,
        ambient: Ambient,
        changes: ChangeCounter,
        has_lookup: watch::Sender<Option<bool>>,
    ) -> Self {
        let version = Arc::new(ArcSwapOption::empty());
        let following = follow_version(policy.clone(), Arc::clone(&version), changes, has_lookup);
        let watcher = tokio::spawn(following);
        Self {
            policy,
            limiter,
            ambient,
            permits: Cache::new(KEPT),
            version,
            _watcher: AbortOnDropHandle::new(watcher),
        }
    }

    /// Decides whether `caller` may use `tool` for a request that runs nothing. Reuses a cached permit that is still valid.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &Bytes,
        client_ip: &str,
    ) -> Result<Authorization, CallError> {
        self.authorize_call(caller, tool, arguments, None, client_ip, None)
            .await
    }

    /// Decides one call, which may have an approval. `call` is `None` if nothing is about to run.
    pub(crate) async fn authorize_call(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &Bytes,
        approval: Option<&SignedApproval>,
        client_ip: &str,
        call: Option<CallReference>,
    ) -> Result<Authorization, CallError> {
        let key = (caller.digest(), tool.name.clone(), tool.definition_digest);
        if let Some(grant) = self.permits.get(&key).filter(|grant| self.holds(grant)) {
            return Ok(Authorization::Allowed(grant));
        }
        let decision = self
            .policy
            .authorize_call(caller, tool, arguments, client_ip, approval, call)
            .await?;
        let permit = match &decision.verdict {
            Verdict::Allow(permit) => permit.clone(),
            Verdict::NeedsApproval {
                approvers,
                lifetime,
            } => {
                let need = ApprovalNeed {
                    approvers: approvers.clone(),
                    lifetime: *lifetime,
                    policy_hash: decision.policy_hash,
                };
                return Ok(Authorization::Denied {
                    decision,
                    reason: DenialReason::NotPermitted,
                    visible: true,
                    need: Some(Box::new(need)),
                });
            }
            Verdict::NeedsIntent => return Ok(Authorization::NeedsIntent(decision)),
            Verdict::Deny { reason, visible } => {
                let (reason, visible) = (*reason, *visible);
                return Ok(Authorization::Denied {
                    decision,
                    reason,
                    visible,
                    need: None,
                });
            }
        };
        let terms = permit.unverified_terms()?;
        let grant = Arc::new(Grant {
            permit,
            permit_id: terms.id,
            decision,
            expires_at: terms.expires_at,
            approval: approval.cloned(),
        });
        // A permit that is bound to its arguments is valid for this call only.
        if terms.arguments_digest.is_none() {
            self.permits.insert(key, Arc::clone(&grant));
        }
        Ok(Authorization::Allowed(grant))
    }

    /// Asks the policy service to deny the call of a tool that does not exist. The request takes as long as one for a tool that
    /// is hidden from the caller, so that response times do not tell the two apart.
    pub(crate) async fn deny_unknown(
        &self,
        caller: &Caller,
        name: &str,
        client_ip: &str,
    ) -> Result<(), CallError> {
        let arguments = Bytes::from_static(b"{}");
        let denied = self
            .policy
            .deny_unknown(caller, name, &arguments, client_ip);
        denied.await.map(drop)
    }

    /// Removes a permit that the tool-runner refused from the cache.
    pub(crate) fn forget(&self, caller: &Caller, tool: &ToolFacts) {
        self.permits
            .remove(&(caller.digest(), tool.name.clone(), tool.definition_digest));
    }

    /// Returns the names of those of `tools` that `caller` may see.
    pub(crate) async fn visible<'a>(
        &self,
        caller: &Caller,
        tools: impl IntoIterator<Item = &'a ToolFacts>,
    ) -> Result<Vec<String>, CallError> {
        self.policy.list_visible(caller, tools).await
    }

    /// Returns the error for a request that the policy service did not decide.
    pub(crate) fn undecided_error(&self, error: &CallError) -> RpcError {
        match error.reason() {
            ErrorReason::Overloaded => neighbour_overloaded(&self.limiter),
            ErrorReason::TokenRefused => RpcError::token_refused(),
            _ => {
                tracing::warn!(%error, "the policy service did not decide");
                RpcError::not_decided()
            }
        }
    }

    fn holds(&self, grant: &Grant) -> bool {
        let decision = &grant.decision;
        // Two bundles can have the same policies, and the record names the bundle of the decision. An older policy service does
        // not tell the bundle in force.
        let is_in_force = |current: &PolicyVersion| {
            current.hash == decision.policy_hash
                && (current.bundle).is_none_or(|bundle| decision.bundle == Some(bundle))
        };
        self.version.load().as_deref().is_some_and(is_in_force)
            && self.ambient.now().plus(MARGIN) < grant.expires_at
    }
}

/// Follows the policy version. While the stream is down the version is unknown, so that no revoked right lives on in a cached
/// permit.
async fn follow_version(
    policy: PolicyClient,
    version: Arc<ArcSwapOption<PolicyVersion>>,
    changes: ChangeCounter,
    has_lookup: watch::Sender<Option<bool>>,
) {
    let mut last_known = None;
    loop {
        if let Ok(mut versions) = policy.watch_version().await {
            while let Some(Ok(current)) = versions.next().await {
                has_lookup.send_replace(Some(current.looks_up_callers));
                version.store(Some(Arc::new(current)));
                let current = current.hash;
                let earlier = last_known.replace(current);
                // The policy decides which tools a caller sees, so a new version may change any list.
                if earlier.is_some_and(|earlier| earlier != current) {
                    changes.announce();
                }
            }
        }
        version.store(None);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
