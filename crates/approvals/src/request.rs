//! Requests for approvals: creating, finding and listing them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use wardgate_domain::{
    About, ApprovalId, Approvers, CallToApprove, Caller, Digest, Reason, SignedApproval, Timestamp,
};
use wardgate_gateway_store::{ApprovalState, NewApprovalRequest, StoreError, StoredApproval};
use wardgate_mcp_server::RpcError;

use crate::{ApprovalError, Approvals};

/// Maximum size of the arguments that an approver is shown, in bytes.
const MAX_ARGUMENTS: usize = 64 * 1_024;

/// Context in which a request is sealed. Any approver can open it.
const REQUEST: &str = "approval request";

/// Context in which an approval is sealed.
const APPROVAL: &str = "approval";

/// A request that no approver has decided about yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// The call that needs an approval.
    pub call: CallToApprove,
    /// The approvers, one of whom has to decide.
    pub approvers: Approvers,
    /// The digest of the schema and policies that require the approval.
    pub policy_hash: Digest,
    /// The time at which the request was created.
    pub requested_at: Timestamp,
    /// The time at which the request expires.
    pub expires_at: Timestamp,
}

impl PendingApproval {
    /// Returns the error that refuses the call for now and says how it can be approved.
    pub fn to_rpc_error(&self) -> RpcError {
        let Self {
            call: CallToApprove { id, .. },
            approvers,
            expires_at,
            ..
        } = self;
        let message = format!(
            "This call requires an approval by {approvers}. It waits under the id {id} until {expires_at}: approve it in the console, or \
             by `wardgate approvals approve {id}`. After the approval, call again with the same arguments."
        );
        let approval = serde_json::json!({
            "id": id.to_string(),
            "expiresAt": expires_at.to_string(),
            "approvers": approvers,
        });
        RpcError::internal(Reason::APPROVAL_REQUIRED, message).with_approval(&approval)
    }
}

/// The decision about the request for a call.
#[derive(Debug)]
pub enum FoundApproval {
    /// The call was approved, and the approval has not been used.
    Approved(ApprovalId, SignedApproval),
    /// The call was refused.
    Refused(ApprovalId),
}

/// The content of a stored request.
#[derive(Serialize, Deserialize)]
struct SealedRequest {
    /// The call in base64.
    call: String,
    approvers: Approvers,
    policy_hash: String,
    requested_at: i64,
}

/// Returns a digest that identifies a call that one of `approvers` has to approve under one version of the policies.
/// Only identical calls have the same digest.
pub fn call_digest(call: &CallToApprove, policy_hash: Digest, approvers: &Approvers) -> Digest {
    About::new("call to approve")
        .and(call.caller.digest().as_bytes())
        .and(call.tool.name.as_str().as_bytes())
        .and(call.tool.definition_digest.as_bytes())
        .and(Digest::compute(&call.arguments).as_bytes())
        .and(policy_hash.as_bytes())
        .and(approvers.to_string().as_bytes())
        .digest()
}

/// Returns a digest that identifies a role in a tenant.
fn role_digest(tenant: &str, role: &str) -> Digest {
    About::new("approver's role")
        .and(tenant.as_bytes())
        .and(role.as_bytes())
        .digest()
}

impl Approvals {
    /// Returns the decision about the call with the digest `call`, which is a [`call_digest`]. Returns `None` if there
    /// is no decision.
    pub async fn find(&self, call: Digest) -> Result<Option<FoundApproval>, ApprovalError> {
        let Some(stored) = self.store.find_approval_of(call).await? else {
            return Ok(None);
        };
        Ok(match stored.state {
            ApprovalState::Pending => None,
            ApprovalState::Refused => Some(FoundApproval::Refused(stored.id)),
            ApprovalState::Approved(sealed) => {
                let approval = self
                    .sealer
                    .open_shared(&within(APPROVAL, stored.id), &sealed);
                let approval = approval.ok_or(ApprovalError::Sealing)?;
                let approval = SignedApproval::from_bytes(approval.into());
                let approval = approval.map_err(|_| ApprovalError::Sealing)?;
                Some(FoundApproval::Approved(stored.id, approval))
            }
        })
    }

    /// Requests an approval of `call` by one of `approvers`, unless a request for it is already stored. The request
    /// expires after `lifetime`.
    pub async fn request(
        &self,
        call: CallToApprove,
        policy_hash: Digest,
        approvers: &Approvers,
        lifetime: Duration,
    ) -> Result<PendingApproval, ApprovalError> {
        if call.arguments.len() > MAX_ARGUMENTS {
            return Err(ApprovalError::TooLong(MAX_ARGUMENTS));
        }
        let now = self.store.now();
        let content = SealedRequest {
            call: STANDARD.encode(call.to_bytes()),
            approvers: approvers.clone(),
            policy_hash: policy_hash.to_string(),
            requested_at: now.as_micros(),
        };
        let content = serde_json::to_vec(&content).map_err(|_| ApprovalError::Sealing)?;
        let sealed = self.sealer.seal_shared(&within(REQUEST, call.id), &content);
        let sealed = sealed.ok_or(ApprovalError::Sealing)?;
        let tenant = call.caller.tenant();
        let roles = approvers.roles.iter().map(|role| role_digest(tenant, role));
        let caller = approvers.caller.then(|| call.caller.person());
        let request = NewApprovalRequest {
            call: call_digest(&call, policy_hash, approvers),
            id: call.id,
            owner: call.caller.person(),
            approvers: &roles.chain(caller).collect::<Vec<_>>(),
            sealed: &sealed,
            expires_at: now.plus(lifetime),
        };
        let stored = self.store.request_approval(request).await?;
        self.open_request(&stored.ok_or(ApprovalError::TooMany)?)
    }

    /// Uses an approval. Returns `true` exactly once, across all replicas.
    pub async fn use_up(&self, id: ApprovalId) -> Result<bool, StoreError> {
        self.store.use_approval(id).await
    }

    /// Returns the pending requests that `approver` may decide about, sorted by expiry.
    pub async fn list(&self, approver: &Caller) -> Result<Vec<PendingApproval>, ApprovalError> {
        let tenant = approver.tenant();
        let roles = approver.roles().iter();
        let mut found = Vec::new();
        for digest in roles
            .map(|role| role_digest(tenant, role))
            .chain([approver.person()])
        {
            for stored in self.store.list_approvals(digest).await? {
                match self.open_request(&stored) {
                    Ok(pending) => found.push(pending),
                    // The request comes from a gateway with another key or version. The other requests can still be
                    // decided about.
                    Err(error) => {
                        let id = stored.id.to_string();
                        tracing::warn!(%error, id, "a request for an approval cannot be read");
                    }
                }
            }
        }
        found.retain(|it| it.approvers.admit(approver, &it.call.caller).is_ok());
        found.sort_by_key(|it| (it.expires_at, it.call.id));
        found.dedup();
        Ok(found)
    }

    /// Returns the pending request with this id, if `approver` may decide about it or made it.
    pub(crate) async fn get(
        &self,
        approver: &Caller,
        id: ApprovalId,
    ) -> Result<PendingApproval, ApprovalError> {
        let stored = self.store.find_approval(id).await?;
        let stored = stored.filter(|stored| stored.state == ApprovalState::Pending);
        let pending = self.open_request(&stored.ok_or(ApprovalError::Unknown)?)?;
        let caller = &pending.call.caller;
        // A person who may not know of the request gets the same error as for one that does not exist.
        if approver.person() != caller.person()
            && pending.approvers.admit(approver, caller).is_err()
        {
            return Err(ApprovalError::Unknown);
        }
        Ok(pending)
    }

    /// Stores a decision. Returns `false` if another approver decided first.
    pub(crate) async fn settle(
        &self,
        pending: &PendingApproval,
        approval: Option<&SignedApproval>,
    ) -> Result<bool, ApprovalError> {
        let id = pending.call.id;
        let sealed = match approval {
            Some(approval) => {
                let terms = approval.unverified_terms();
                let until = terms.map_err(|_| ApprovalError::Sealing)?.expires_at;
                let within = within(APPROVAL, id);
                let sealed = self.sealer.seal_shared(&within, &approval.to_bytes());
                Some((sealed.ok_or(ApprovalError::Sealing)?, until))
            }
            None => None,
        };
        let until = sealed
            .as_ref()
            .map_or(pending.expires_at, |(_, until)| *until);
        let sealed = sealed.as_ref().map(|(sealed, _)| &sealed[..]);
        Ok(self.store.decide_approval(id, sealed, until).await?)
    }

    fn open_request(&self, stored: &StoredApproval) -> Result<PendingApproval, ApprovalError> {
        let content = self
            .sealer
            .open_shared(&within(REQUEST, stored.id), &stored.sealed);
        let content = content.ok_or(ApprovalError::Sealing)?;
        let content: SealedRequest =
            serde_json::from_slice(&content).map_err(|_| ApprovalError::Sealing)?;
        let call = STANDARD.decode(content.call);
        let call = call.map_err(|_| ApprovalError::Sealing)?;
        let call = CallToApprove::from_bytes(call.into());
        Ok(PendingApproval {
            call: call.map_err(|_| ApprovalError::Sealing)?,
            approvers: content.approvers,
            policy_hash: content
                .policy_hash
                .parse()
                .map_err(|_| ApprovalError::Sealing)?,
            requested_at: Timestamp::from_micros(content.requested_at),
            expires_at: stored.expires_at,
        })
    }
}

/// Returns the context in which data is sealed.
fn within(what: &str, id: ApprovalId) -> String {
    format!("{what} {id}")
}
