//! What changes in conversations, as whoever watches them hears it. Never a text.

use crate::{ConversationId, Digest};

/// Changes that were seen together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationChanges {
    /// Anything may have changed before these, unseen.
    pub unseen: bool,
    /// In the order they were made.
    pub changes: Vec<ConversationChange>,
}

/// One change. It concerns its owner and nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationChange {
    /// Whose, as [`Caller::person`](crate::Caller::person) gives it.
    pub owner: Digest,
    /// What changed.
    pub what: ChangedPart,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedPart {
    /// Messages were added to a conversation, or it was cleared.
    Messages(ConversationId),
    /// A conversation was made or erased.
    List,
    /// The owner subscribed to something, or no longer does.
    Subscriptions,
}
