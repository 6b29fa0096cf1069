//! The report on how the decisions of a candidate policy set would differ from those of the policies in force.

use std::fmt;
use std::str::FromStr;

use crate::{Digest, InvalidMessage, Timestamp};

/// A kind of difference between the decisions of two policy sets about the same call: that of the policies in force,
/// and that of the candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecisionChange {
    /// The call is allowed and would be denied.
    AllowedToDenied,
    /// The call is allowed and would need an approval.
    AllowedToNeedsApproval,
    /// The call is denied and would be allowed.
    DeniedToAllowed,
    /// The call is denied and would need an approval.
    DeniedToNeedsApproval,
    /// The call needs an approval and would be allowed without one.
    NeedsApprovalToAllowed,
    /// The call needs an approval and would be denied.
    NeedsApprovalToDenied,
    /// Different people would have to approve the call.
    Approvers,
    /// The call is denied by both, but the caller would see the tool, or would no longer see it.
    Visibility,
    /// Different rows would be released.
    RowRule,
    /// Columns would be released in different tiers.
    ColumnTiers,
}

impl DecisionChange {
    /// All changes.
    pub const ALL: [Self; 10] = [
        Self::AllowedToDenied,
        Self::AllowedToNeedsApproval,
        Self::DeniedToAllowed,
        Self::DeniedToNeedsApproval,
        Self::NeedsApprovalToAllowed,
        Self::NeedsApprovalToDenied,
        Self::Approvers,
        Self::Visibility,
        Self::RowRule,
        Self::ColumnTiers,
    ];

    /// Returns the name of the change in metrics and lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowedToDenied => "allowed_to_denied",
            Self::AllowedToNeedsApproval => "allowed_to_needs_approval",
            Self::DeniedToAllowed => "denied_to_allowed",
            Self::DeniedToNeedsApproval => "denied_to_needs_approval",
            Self::NeedsApprovalToAllowed => "needs_approval_to_allowed",
            Self::NeedsApprovalToDenied => "needs_approval_to_denied",
            Self::Approvers => "approvers",
            Self::Visibility => "visibility",
            Self::RowRule => "row_rule",
            Self::ColumnTiers => "column_tiers",
        }
    }
}

impl fmt::Display for DecisionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DecisionChange {
    type Err = InvalidMessage;

    fn from_str(word: &str) -> Result<Self, InvalidMessage> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == word);
        found.ok_or_else(|| InvalidMessage::field("change", "is not a change of a decision"))
    }
}

/// The decision of one policy set about a call that two sets decide differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedDecision {
    /// `allowed`, `needs approval`, `refused`, or `hidden` if the caller would not see the tool.
    pub access: String,
    /// The name of the reason for which the call is denied; empty if it is not denied.
    pub reason: String,
    /// The ids of the policies that determined the decision, at most 16.
    pub policies: Vec<String>,
}

/// A group of calls of one caller for which the decisions of the policies in force and of the candidate differ in the
/// same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionFlip {
    /// The subject of the caller.
    pub subject: String,
    /// The tenant of the caller; empty if the deployment has no tenants.
    pub tenant: String,
    /// The Cedar action that was asked for, such as `call_tool`.
    pub action: String,
    /// The name of the tool or the source.
    pub tool: String,
    /// The difference.
    pub change: DecisionChange,
    /// The number of calls.
    pub count: u64,
    /// The time of the first of these decisions.
    pub first_at: Timestamp,
    /// The time of the last of these decisions.
    pub last_at: Timestamp,
    /// The last decision of the policies in force.
    pub decided: ComparedDecision,
    /// The last decision of the candidate.
    pub candidate: ComparedDecision,
}

/// The comparison of a candidate with the policies in force, since either of them last changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowReport {
    /// The version of the policies with which the candidate was last compared, or `None` before the first call.
    pub policy_hash: Option<Digest>,
    /// The version of the candidate, or `None` if there is no usable candidate.
    pub candidate_hash: Option<Digest>,
    /// The reason why there is no usable candidate; empty otherwise.
    pub fault: String,
    /// The number of equal decisions.
    pub equal: u64,
    /// The number of decisions that were not compared, because the queue was full, the arguments were too large, or
    /// earlier calls could not be counted.
    pub skipped: u64,
    /// The differences, newest first.
    pub flips: Vec<DecisionFlip>,
}
