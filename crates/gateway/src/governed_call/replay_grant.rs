//! The decision under which a stored answer was given, kept so that a client that resumes the stream is authorized again.
//!
//! Stored events were redacted under the permit of their time. They are replayed only while the policy still allows the
//! operation and shows the same rows and columns of its result.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wardgate_domain::{Caller, Digest, SignedApproval};

use super::description::{CatalogueEntry, Description, SealedOperation};
use crate::authority::{Authority, Authorization, Grant};
use crate::catalogue::View;
use crate::scopes::TokenAccess;

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

/// The client that resumes a stream.
#[derive(Clone)]
pub(crate) struct ResumingClient {
    pub(crate) caller: Arc<Caller>,
    pub(crate) access: TokenAccess,
    pub(crate) client_ip: String,
    pub(crate) view: View,
}

/// The policy service, or the catalogue, is unavailable.
#[derive(Debug)]
pub(crate) struct DecisionUnavailable;

impl ReplayGrant {
    pub(super) fn new(operation: SealedOperation, grant: &Grant) -> Option<Self> {
        Some(Self {
            operation,
            approval: grant.approval.as_ref().map(SignedApproval::to_base64),
            visibility: visibility_digest(grant)?,
        })
    }

    /// Returns the operation whose answer is stored.
    pub(crate) fn operation(&self) -> &SealedOperation {
        &self.operation
    }

    /// Returns whether `client` may still receive the stored answer. `description` describes the grant's operation in the current
    /// catalogue.
    pub(crate) async fn allows_replay<R: CatalogueEntry>(
        &self,
        authority: &Authority,
        client: &ResumingClient,
        description: Description<'_, R>,
    ) -> Result<bool, DecisionUnavailable> {
        let approval = self.approval.as_deref();
        let approval = approval.and_then(SignedApproval::from_base64);
        let visibility = current_visibility(authority, client, description, approval).await?;
        Ok(visibility.is_some_and(|visibility| visibility == self.visibility))
    }
}

/// Returns the visibility digest of `client` for the described operation now, or `None` if the operation is denied.
async fn current_visibility<R: CatalogueEntry>(
    authority: &Authority,
    client: &ResumingClient,
    description: Description<'_, R>,
    approval: Option<SignedApproval>,
) -> Result<Option<String>, DecisionUnavailable> {
    let Some(entry_use) =
        (description.entry_use).filter(|entry_use| entry_use.entry.is_enabled_for(&client.caller))
    else {
        return Ok(None);
    };
    let (caller, client_ip) = (&client.caller, &client.client_ip);
    let (facts, arguments) = (entry_use.entry.facts(), &entry_use.policy_arguments);
    let approval = approval.as_ref();
    let decision = authority.authorize_call(caller, facts, arguments, approval, client_ip, None);
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
    Some(Digest::compute(format!("{of:?}").as_bytes()).to_string())
}
