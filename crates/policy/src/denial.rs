//! A denial.

use wardgate_domain::DenialReason;

/// Why a call is denied, and the ids of the policies that decided or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: DenialReason,
    pub(crate) policies: Vec<String>,
}

impl Denial {
    /// The denial that any failure is.
    pub(crate) fn failed(policies: Vec<String>) -> Self {
        Self {
            reason: DenialReason::PolicyError,
            policies,
        }
    }
}
