//! What a candidate policy set would change, as operators read it.

use std::fmt;
use std::str::FromStr;

use crate::{Digest, InvalidMessage, Timestamp};

/// A difference between the decisions of two policy sets about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecisionChange {
    /// Allowed, and would be denied.
    AllowedToDenied,
    /// Allowed, and would need an approval.
    AllowedToNeedsApproval,
    /// Denied, and would be allowed.
    DeniedToAllowed,
    /// Denied, and would need an approval.
    DeniedToNeedsApproval,
    /// Needs an approval, and would be allowed without.
    NeedsApprovalToAllowed,
    /// Needs an approval, and would be denied.
    NeedsApprovalToDenied,
    /// Others would have to approve it.
    Approvers,
    /// Denied by both, and the caller would see the tool, or no longer see it.
    Visibility,
    /// Other rows would leave.
    RowRule,
    /// Columns would leave in other tiers.
    ColumnTiers,
}

impl DecisionChange {
    /// Every change.
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

    /// Its word in metrics and lists.
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
        found.ok_or_else(|| InvalidMessage::field("change", "is no change of a decision"))
    }
}

/// The decision of one policy set about a call that two sets decide differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedDecision {
    /// `allowed`, `needs approval`, `refused` or, where the caller would see no such tool, `hidden`.
    pub access: String,
    /// Why the call is denied, in a word; empty where it is not.
    pub reason: String,
    /// The ids of the policies that decided, 16 at most.
    pub policies: Vec<String>,
}

/// Calls of one caller that the policies in force and the candidate decide differently, in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionFlip {
    /// The caller's subject.
    pub subject: String,
    /// The caller's tenant; empty where there are none.
    pub tenant: String,
    /// The Cedar action that was asked for, such as `call_tool`.
    pub action: String,
    /// The tool, or the source.
    pub tool: String,
    /// The difference.
    pub change: DecisionChange,
    /// How many calls.
    pub count: u64,
    /// When the first was decided.
    pub first_at: Timestamp,
    /// When the last was decided.
    pub last_at: Timestamp,
    /// The last decision of the policies in force.
    pub decided: ComparedDecision,
    /// That of the candidate.
    pub candidate: ComparedDecision,
}

/// What a shadow found out since its candidate, or the policies in force, changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowReport {
    /// The version that was last compared with; none before the first call.
    pub policy_hash: Option<Digest>,
    /// The version of the candidate; none where none decides.
    pub candidate_hash: Option<Digest>,
    /// Why none decides; empty otherwise.
    pub fault: String,
    /// How many decisions were the same.
    pub equal: u64,
    /// How many were not compared, because there was more to compare than fits.
    pub skipped: u64,
    /// The differences, the newest first.
    pub flips: Vec<DecisionFlip>,
}
