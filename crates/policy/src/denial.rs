//! The denial of a call.

use wardgate_domain::DenialReason;

/// The reason for which a call is denied, and the ids of the policies that determined the denial or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: DenialReason,
    pub(crate) policies: Vec<String>,
}

impl Denial {
    /// Creates the denial for a failed evaluation.
    pub(crate) fn for_policy_error(policies: Vec<String>) -> Self {
        Self {
            reason: DenialReason::PolicyError,
            policies,
        }
    }
}
