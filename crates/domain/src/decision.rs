//! Decisions of the policy: about a call, and about a request to read a conversation.

use std::time::Duration;

use crate::{
    ApprovalId, Approvers, BundleReference, CallId, ConversationKey, DecisionId, Digest, Reason,
    SignedPermit,
};

/// The reason for which a call was denied. It states the kind of denial, never the rule itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialReason {
    /// No policy permits the call.
    NotPermitted,
    /// A policy forbids the call.
    Forbidden,
    /// The evaluation of a policy failed; an error never allows a call.
    PolicyError,
    /// A policy depends on the history of calls, which is not available.
    HistoryUnavailable,
}

impl DenialReason {
    /// Returns the reason that refusals and records state.
    pub fn reason(self) -> Reason {
        match self {
            Self::NotPermitted => Reason::NOT_PERMITTED,
            Self::Forbidden => Reason::FORBIDDEN,
            Self::PolicyError => Reason::POLICY_ERROR,
            Self::HistoryUnavailable => Reason::HISTORY_UNAVAILABLE,
        }
    }

    /// Returns the name of that reason.
    pub fn as_str(self) -> &'static str {
        self.reason().as_str()
    }
}

/// The result of a decision.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The call may run under this permit.
    Allow(SignedPermit),
    /// The call may run once one of the approvers has approved it. The caller may learn that the tool exists.
    NeedsApproval {
        /// The people who may approve the call.
        approvers: Approvers,
        /// The time for which a request for an approval stays open, and for which the approval is then valid.
        lifetime: Duration,
    },
    /// The decision depends on the history of calls. It can be made once the intent of the call is on record.
    NeedsIntent,
    /// The call may not run.
    Deny {
        /// The reason.
        reason: DenialReason,
        /// Whether other arguments could be allowed, in which case the caller may learn that the tool exists.
        visible: bool,
    },
}

/// A call that is about to be made, as the record refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReference {
    /// The id of the call.
    pub call_id: CallId,
    /// Whether the intent of the call is on record.
    pub has_intent: bool,
    /// The SHA-256 digest of the conversation id that the client sent with the call; `None` if it sent no such id.
    pub conversation: Option<Digest>,
}

/// A decision, with the information that the record needs to explain it later.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The id of the decision, stated in the record and in every refusal.
    pub id: DecisionId,
    /// The result of the decision.
    pub verdict: Verdict,
    /// The ids of the policies that determined the decision.
    pub policies: Vec<String>,
    /// The SHA-256 digest of the schema and policies in force.
    pub policy_hash: Digest,
    /// The bundle that the policies in force come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
    /// The approval by which the call is allowed, or `None` if it needs none.
    pub approval: Option<ApprovalId>,
}

/// The facts about a conversation that the policy needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationFacts {
    /// The key of the conversation.
    pub key: ConversationKey,
    /// The subject of the owner.
    pub owner: String,
    /// The tenant of the owner; empty if the deployment has no tenants.
    pub tenant: String,
}

/// An action of a caller other than the use of a tool. For each, the policies are asked about an action of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorAction {
    /// Reads the records of everybody; for a caller with a tenant, of everybody in that tenant.
    ReadRecord,
    /// Reads the records of the caller.
    ReadOwnRecord,
    /// Manages the record and conversations by retention, legal holds and erasure.
    ManageRecord,
    /// Revokes tokens, subjects and sign-ins.
    RevokeAccess,
    /// Disables and enables tools, and deletes the consent that people gave for sources to act in their name.
    ManageTools,
}

impl OperatorAction {
    /// All actions.
    pub const ALL: [Self; 5] = [
        Self::ReadRecord,
        Self::ReadOwnRecord,
        Self::ManageRecord,
        Self::RevokeAccess,
        Self::ManageTools,
    ];

    /// Returns the name of the action in policies and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadRecord => "read_record",
            Self::ReadOwnRecord => "read_own_record",
            Self::ManageRecord => "manage_record",
            Self::RevokeAccess => "revoke_access",
            Self::ManageTools => "manage_tools",
        }
    }
}

/// The decision whether a caller may perform an [`OperatorAction`] or read a conversation of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDecision {
    /// The id of the decision.
    pub id: DecisionId,
    /// Whether the action is allowed.
    pub allowed: bool,
    /// The SHA-256 digest of the schema and policies in force.
    pub policy_hash: Digest,
    /// The bundle that the policies in force come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
}
