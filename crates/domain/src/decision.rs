//! The policy's answers: to one call, and to one request to read a conversation.

use std::time::Duration;

use crate::{
    ApprovalId, Approvers, CallId, ConversationKey, DecisionId, Digest, Reason, SignedPermit,
};

/// Why a call was denied: a kind, never the rule itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialReason {
    /// No policy permits it.
    NotPermitted,
    /// A policy forbids it.
    Forbidden,
    /// A policy failed to evaluate; an error never allows.
    PolicyError,
    /// A policy looks at the history of calls, which is not known.
    HistoryUnavailable,
}

impl DenialReason {
    /// The reason that refusals and records state.
    pub fn reason(self) -> Reason {
        match self {
            Self::NotPermitted => Reason::NOT_PERMITTED,
            Self::Forbidden => Reason::FORBIDDEN,
            Self::PolicyError => Reason::POLICY_ERROR,
            Self::HistoryUnavailable => Reason::HISTORY_UNAVAILABLE,
        }
    }

    /// The same in a word.
    pub fn as_str(self) -> &'static str {
        self.reason().as_str()
    }
}

/// What was decided.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The call may run, under this permit.
    Allow(SignedPermit),
    /// It may run once one of these has approved it. The caller may know that the tool exists.
    NeedsApproval {
        /// Who.
        approvers: Approvers,
        /// How long a request for an approval stands, and afterwards the approval.
        lifetime: Duration,
    },
    /// It depends on the history of calls, and can be decided once the intent of the call is on record.
    NeedsIntent,
    /// It may not.
    Deny {
        /// Why.
        reason: DenialReason,
        /// True when other arguments could be allowed, so the caller may know that the tool exists.
        visible: bool,
    },
}

/// A call that is about to be made, as the record knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReference {
    /// Its id.
    pub call_id: CallId,
    /// Its intent is on record.
    pub has_intent: bool,
    /// SHA-256 of the id of the conversation that the client says it is part of; none where it says none.
    pub conversation: Option<Digest>,
}

/// A decision with what the record needs to explain it later.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Its id, in the record and in every refusal.
    pub id: DecisionId,
    /// What was decided.
    pub verdict: Verdict,
    /// Ids of the policies that decided.
    pub policies: Vec<String>,
    /// SHA-256 over schema and policies in force.
    pub policy_hash: Digest,
    /// The approval by which it allows; none where it needs none.
    pub approval: Option<ApprovalId>,
}

/// What the policy needs to know of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationFacts {
    /// Its key.
    pub key: ConversationKey,
    /// Subject of its owner.
    pub owner: String,
    /// Tenant of its owner; empty where there are none.
    pub tenant: String,
}

/// What a caller may do besides using tools. Each is a question to the policies, by an action of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorAction {
    /// Reads the record of what everybody did; a caller of a tenant, of everybody of that tenant.
    ReadRecord,
    /// Reads the record of what they did themselves.
    ReadOwnRecord,
    /// Decides what becomes of the record and of conversations, by retention, legal holds and erasure.
    ManageRecord,
    /// Revokes tokens, subjects and sign-ins.
    RevokeAccess,
    /// Turns tools off and on, and forgets what people let sources do in their name.
    ManageTools,
}

impl OperatorAction {
    /// Every action.
    pub const ALL: [Self; 5] = [
        Self::ReadRecord,
        Self::ReadOwnRecord,
        Self::ManageRecord,
        Self::RevokeAccess,
        Self::ManageTools,
    ];

    /// The action as policies and messages spell it.
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

/// Whether a caller may do what is no use of a tool: an [`OperatorAction`], or to read a conversation of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDecision {
    /// Its id.
    pub id: DecisionId,
    /// They may.
    pub allowed: bool,
    /// SHA-256 over schema and policies in force.
    pub policy_hash: Digest,
}
