//! Asking the policy service, and keeping the permits it lets us keep.

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
use wardgate_rpc::client::{CallError, PolicyClient};

use crate::change_counter::ChangeCounter;
use wardgate_limits::neighbour_overloaded;

/// Permits kept at most.
const KEPT: usize = 10_000;
/// A kept permit is not used in its last second: it must still be valid when it reaches the tool-runner.
const MARGIN: Duration = Duration::from_secs(1);

/// What an allowed call runs under.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) permit: SignedPermit,
    pub(crate) permit_id: PermitId,
    pub(crate) decision: Decision,
    pub(crate) expires_at: Timestamp,
    /// The approval that it was given by; none where the call needs none.
    pub(crate) approval: Option<SignedApproval>,
}

/// What the policy said.
#[derive(Debug)]
pub(crate) enum Authorization {
    Allowed(Arc<Grant>),
    Denied {
        decision: Decision,
        reason: DenialReason,
        visible: bool,
        /// The approval that would allow it.
        need: Option<Box<ApprovalNeed>>,
    },
    /// The policy decides once the intent of the call is on record.
    NeedsIntent(Decision),
}

/// An approval that a call needs.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalNeed {
    /// Those of whom one has to give it.
    pub(crate) approvers: Approvers,
    /// How long a request for it stands.
    pub(crate) lifetime: Duration,
    /// Schema and policies that demand it.
    pub(crate) policy_hash: Digest,
}

/// The caller's rights, the tool, and the tool's definition.
type PermitCacheKey = (Digest, ToolName, Digest);

/// The policy service, with the reusable permits it gave.
#[derive(Debug)]
pub(crate) struct Authority {
    policy: PolicyClient,
    /// The limiter learns from overload of the policy service.
    limiter: Limiter,
    ambient: Ambient,
    permits: Cache<PermitCacheKey, Arc<Grant>>,
    /// The policy version in force; none while it is not known, and then nothing is reused.
    version: Arc<ArcSwapOption<Digest>>,
    _watcher: AbortOnDropHandle<()>,
}

impl Authority {
    /// Whether the policy service looks up roles and attributes of callers, the second of `told` learns.
    pub(crate) fn new(
        policy: PolicyClient,
        limiter: Limiter,
        ambient: Ambient,
        told: (ChangeCounter, watch::Sender<Option<bool>>),
    ) -> Self {
        let version = Arc::new(ArcSwapOption::empty());
        let watcher = tokio::spawn(follow_version(policy.clone(), Arc::clone(&version), told));
        Self {
            policy,
            limiter,
            ambient,
            permits: Cache::new(KEPT),
            version,
            _watcher: AbortOnDropHandle::new(watcher),
        }
    }

    /// Decides what `caller` may have of `tool` where nothing is about to run, by a kept permit where one still holds.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &Bytes,
        client_ip: &str,
    ) -> Result<Authorization, CallError> {
        self.authorize_call(caller, tool, (arguments, None), client_ip, None)
            .await
    }

    /// Decides one call, which may have been approved; without `call` nothing is about to run.
    pub(crate) async fn authorize_call(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        (arguments, approval): (&Bytes, Option<&SignedApproval>),
        client_ip: &str,
        call: Option<CallReference>,
    ) -> Result<Authorization, CallError> {
        let key = (caller.digest(), tool.name.clone(), tool.definition_digest);
        if let Some(grant) = self.permits.get(&key).filter(|grant| self.holds(grant)) {
            return Ok(Authorization::Allowed(grant));
        }
        let decision = self
            .policy
            .authorize_call(caller, tool, arguments, client_ip, (approval, call))
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
        // A permit bound to its arguments is for this call alone.
        if terms.arguments_digest.is_none() {
            self.permits.insert(key, Arc::clone(&grant));
        }
        Ok(Authorization::Allowed(grant))
    }

    /// Has the call of a tool that there is not denied. It is asked for the time that takes: a tool that is hidden from
    /// the caller takes as long.
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

    /// Forgets a permit that the tool-runner refused.
    pub(crate) fn forget(&self, caller: &Caller, tool: &ToolFacts) {
        self.permits
            .remove(&(caller.digest(), tool.name.clone(), tool.definition_digest));
    }

    /// The names of those of `tools` that `caller` may see.
    pub(crate) async fn visible<'a>(
        &self,
        caller: &Caller,
        tools: impl IntoIterator<Item = &'a ToolFacts>,
    ) -> Result<Vec<String>, CallError> {
        self.policy.list_visible(caller, tools).await
    }

    /// The error where the policy service did not decide.
    pub(crate) fn undecided(&self, error: &CallError) -> RpcError {
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
        let current = self.version.load();
        current.as_deref() == Some(&grant.decision.policy_hash)
            && self.ambient.now().plus(MARGIN) < grant.expires_at
    }
}

/// Follows the policy version. While the stream is down the version is unknown: a revoked right must not
/// live on in a kept permit.
async fn follow_version(
    policy: PolicyClient,
    version: Arc<ArcSwapOption<Digest>>,
    (changes, looks_up_callers): (ChangeCounter, watch::Sender<Option<bool>>),
) {
    let mut last_known = None;
    loop {
        if let Ok(mut versions) = policy.watch_version().await {
            while let Some(Ok(current)) = versions.next().await {
                looks_up_callers.send_replace(Some(current.looks_up_callers));
                let current = current.hash;
                version.store(Some(Arc::new(current)));
                let earlier = last_known.replace(current);
                // Whom a tool is visible to is the policy's to say.
                if earlier.is_some_and(|earlier| earlier != current) {
                    changes.announce();
                }
            }
        }
        version.store(None);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
