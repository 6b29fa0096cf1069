//! The decision under which a stored answer was given, kept so that a client that resumes the stream is authorized again.
//!
//! Stored events were redacted under the permit of their time. They are replayed only while the policy still allows the
//! operation and shows the same rows and columns of its result.

use serde::{Deserialize, Serialize};
use wardgate_domain::{Digest, SignedApproval};

use super::approval::{decode_approval, encode_approval};
use super::operation::{CatalogueEntry, Operation, SealedOperation};
use super::suspended_call::ResumingClient;
use crate::authority::{Authorization, Grant};
use crate::discovery::Discovery;

/// The grant of a stored stream, kept with its events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReplayGrant {
    #[serde(rename = "wanted")]
    operation: SealedOperation,
    /// The approval that the permit was given for, in base64.
    #[serde(default)]
    approval: Option<String>,
    /// The digest of the definition, the row rule and the column tiers of the permit.
    #[serde(rename = "sight")]
    visibility: String,
}

/// The policy service, or the catalogue, is unavailable.
#[derive(Debug)]
pub(crate) struct DecisionUnavailable;

impl ReplayGrant {
    pub(super) fn new(operation: SealedOperation, grant: &Grant) -> Option<Self> {
        Some(Self {
            operation,
            approval: grant.approval.as_ref().map(encode_approval),
            visibility: visibility_digest(grant)?,
        })
    }

    /// Returns the operation whose answer is stored.
    pub(crate) fn operation(&self) -> &SealedOperation {
        &self.operation
    }

    /// Returns whether `client` may still receive the stored answer of `operation`, which is the grant's operation.
    pub(crate) async fn allows_replay<O: Operation>(
        &self,
        discovery: &Discovery,
        client: &ResumingClient,
        operation: &O,
    ) -> Result<bool, DecisionUnavailable> {
        let approval = self.approval.as_deref().and_then(decode_approval);
        let visibility = current_visibility(discovery, client, operation, approval).await?;
        Ok(visibility.is_some_and(|visibility| visibility == self.visibility))
    }
}

/// Returns the visibility digest of `client` for `operation` now, or `None` if the operation is denied.
async fn current_visibility<O: Operation>(
    discovery: &Discovery,
    client: &ResumingClient,
    operation: &O,
    approval: Option<SignedApproval>,
) -> Result<Option<String>, DecisionUnavailable> {
    let catalogue = discovery.catalogue().current().ok_or(DecisionUnavailable)?;
    let description = operation.describe(Some(&catalogue), &client.view);
    let Some(entry_use) =
        (description.entry_use).filter(|entry_use| entry_use.entry.is_enabled_for(&client.caller))
    else {
        return Ok(None);
    };
    let (facts, arguments) = (entry_use.entry.facts(), &entry_use.policy_arguments);
    let authority = discovery.authority();
    let arguments = (arguments, approval.as_ref());
    let decision =
        authority.authorize_call(&client.caller, facts, arguments, &client.client_ip, None);
    let grant = match decision.await {
        Ok(Authorization::Allowed(grant)) => grant,
        Ok(Authorization::Denied { .. } | Authorization::NeedsIntent(_)) => return Ok(None),
        Err(error) => {
            tracing::warn!(%error, "the policy service did not decide");
            return Err(DecisionUnavailable);
        }
    };
    let applied = client.access.check_use(description.method, facts);
    Ok(applied.ok().and_then(|()| visibility_digest(&grant)))
}

/// Returns the digest of what the permit shows: the definition, the row rule and the column tiers.
fn visibility_digest(grant: &Grant) -> Option<String> {
    let terms = grant.permit.unverified_terms().ok()?;
    let of = (
        &terms.definition_digest,
        &terms.row_rule,
        &terms.column_tiers,
    );
    // The digest is compared only with one of the same format: if another release formats it differently, one replay is refused.
    Some(Digest::of(format!("{of:?}").as_bytes()).to_string())
}
