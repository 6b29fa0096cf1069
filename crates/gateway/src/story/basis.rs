//! On what an answer is given, kept with the stream of it, so that whoever comes for the rest is decided on anew.
//!
//! What was held back for its caller is given only while the policy still allows what was wanted, and shows as much of
//! it as it did: events are kept as they were redacted then.

use serde::{Deserialize, Serialize};
use wardgate_domain::Digest;

use super::onward::Comer;
use super::work::{Packed, Target, Work};
use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::mcp::Version;

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Basis {
    wanted: Packed,
    /// Digest of what the caller might see of it.
    sight: String,
}

/// The policy, or what there is to decide on, cannot be asked now.
#[derive(Debug)]
pub(crate) struct Undecided;

impl Basis {
    pub(super) fn new(wanted: Packed, grant: &Grant) -> Option<Self> {
        Some(Self {
            wanted,
            sight: sight(grant)?,
        })
    }

    /// Whether it still stands, for whoever came for the rest.
    pub(crate) async fn holds(
        &self,
        gateway: &Gateway,
        comer: &Comer,
        version: Version,
    ) -> Result<bool, Undecided> {
        let seen = match self.wanted.clone() {
            Packed::Call(call) => seen(gateway, comer, &call.unpack(version)).await?,
            Packed::Content(wish) => match wish.unpack(version) {
                Some(wish) => seen(gateway, comer, &wish).await?,
                None => None,
            },
        };
        Ok(seen.is_some_and(|seen| seen == self.sight))
    }
}

/// What may be seen of `work`, as things are now; none where nothing.
async fn seen<W: Work>(
    gateway: &Gateway,
    comer: &Comer,
    work: &W,
) -> Result<Option<String>, Undecided> {
    let catalogue = gateway.catalogue().current().ok_or(Undecided)?;
    let target = work.find(&catalogue, &comer.view);
    let Some(target) = target.filter(|target| target.is_on(&comer.caller)) else {
        return Ok(None);
    };
    let (facts, arguments) = (target.facts(), work.arguments(&target));
    let authority = gateway.authority();
    let asked = authority.authorize(&comer.caller, facts, &arguments, &comer.client_ip);
    let grant = match asked.await {
        Ok(Authorization::Allowed(grant)) => grant,
        Ok(Authorization::Denied { .. }) => return Ok(None),
        Err(error) => {
            tracing::warn!(%error, "the policy service did not decide");
            return Err(Undecided);
        }
    };
    let applied = comer.access.apply(gateway, work.method(), facts);
    Ok(applied.ok().and_then(|()| sight(&grant)))
}

/// What a permit lets its caller see, of which definition.
fn sight(grant: &Grant) -> Option<String> {
    let terms = grant.permit.unverified_terms().ok()?;
    let of = (
        &terms.definition_digest,
        &terms.row_rule,
        &terms.column_tiers,
    );
    // Compared alone, by gateways of one version: another way to write it only costs a replay.
    Some(Digest::of(format!("{of:?}").as_bytes()).to_string())
}
