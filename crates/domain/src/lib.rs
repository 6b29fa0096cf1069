//! The types that all Wardgate services share.
//!
//! ```text
//!   wire (wardgate-proto) ──TryFrom──▶ this crate ──From──▶ wire
//!
//!   Caller ──asks for──▶ ToolFacts ──Decision──▶ SignedPermit ──admit──▶ Permit ──run──▶ Outcome ──append──▶ Receipt
//! ```
//!
//! The crate gives each concept one name and one validated type. A [`Caller`] stands for a verified token. A [`Permit`]
//! can only be obtained by checking a signature against the very call that the permit is for, and a [`Receipt`] only
//! from an acknowledged append. Messages of the wire become types of this crate by `TryFrom`, and that conversion is
//! the only place where they are validated.

mod agent_refusal;
mod ambient;
mod approval;
mod arguments_outline;
mod bundle_reference;
mod call_details;
mod call_facts;
mod caller;
mod client_capabilities;
mod conversation;
mod conversation_change;
mod decision;
mod digest;
pub mod duration;
mod file_access;
mod file_replacement;
mod ids;
mod invalid_message;
mod invisible;
mod json_text;
mod label;
mod loopback;
mod memory_access;
mod permit;
mod permit_signature;
mod reason;
mod record;
mod revocation;
mod sealing;
mod shadow;
pub mod source_uri;
mod status;
mod switch;
mod time;
mod time_zone;
mod tool;
mod uri_template;
pub mod variable;
mod waiting_call;
pub mod whole_seconds;
mod wire;

pub use agent_refusal::AgentRefusal;
pub use ambient::{Ambient, Clock, Entropy, SystemClock, SystemEntropy};
pub use approval::{
    ApprovalDecision, ApprovalMismatch, ApprovalTerms, ApproverRefusal, Approvers, CallToApprove,
    CallUnderApproval, SignedApproval,
};
pub use arguments_outline::{ArgumentNames, ArgumentOutline, OutlinedArgument, json_type};
pub use bundle_reference::BundleReference;
pub use call_details::{CallDetails, DataSubject, DataSubjects, ResultColumn, ResultOutline};
pub use call_facts::{CallFacts, UNKNOWN_NAME};
pub use caller::{
    AttributeValue, BearerToken, Caller, CallerClaims, CallerRights, Delegation, person,
};
pub use client_capabilities::RequiredCapabilities;
pub use conversation::{
    AnsweredCall, Conversation, ConversationId, Hold, HoldTarget, InvalidText, Message, MessageId,
    NewMessage, Role, Skeleton, Source, TurnId, TurnState,
};
pub use conversation_change::{ChangedPart, ConversationChange, ConversationChanges};
pub use decision::{
    CallReference, ConversationFacts, Decision, DenialReason, OperatorAction, ReadDecision, Verdict,
};
pub use digest::{Digest, ParseDigestError, is_same_secret};
pub use file_access::{create_private_directory, is_accessible_to_all, restrict_to_owner};
pub use file_replacement::{NewFileAccess, ReplaceFileError, replace_file};
pub use ids::{ApprovalId, CallId, ConversationKey, DecisionId, InvalidId, PermitId};
pub use invalid_message::InvalidMessage;
pub use invisible::{
    InvisibleCharacter, InvisibleKind, escape_invisible_json, find_invisible, is_invisible,
    is_joining, is_pictograph, mark_invisible, remove_invisible,
};
pub use json_text::indent_json;
pub use label::is_label;
pub use loopback::is_loopback_host;
pub use memory_access::{MemoryAccess, MemoryMethod};
pub use permit::{AttributeType, PermitTerms, RowRule, SignedPermit};
pub use permit_signature::{
    CallToRun, Permit, PermitKeyError, PermitRefusal, PermitSigner, PermitVerifier, VerifiedTerms,
};
pub use reason::{Explanation, REASON_GROUPS, Reason, ReasonGroup, ReasonOutcome};
pub use record::{
    AdminChange, Event, OperatorFacts, Outcome, Receipt, Record, RefusalCount, Refusals,
};
pub use revocation::{
    ListedRevocation, Revocation, RevocationKind, RevocationSet, RevocationTarget,
};
pub use sealing::{About, SealBroken, SealKey, derive_key, derive_keys};
pub use shadow::{ComparedDecision, DecisionChange, DecisionFlip, ShadowReport};
pub use status::Status;
pub use switch::{
    Switch, SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget, ToolSwitches,
};
pub use time::Timestamp;
pub use time_zone::{TimeZone, UnknownTimeZone};
pub use tool::{ColumnClass, ColumnTier, InvalidName, OfferKind, ToolFacts, ToolName};
pub use uri_template::{InvalidUriTemplate, UriTemplate};
pub use waiting_call::{WaitingCall, WaitingCaller};
