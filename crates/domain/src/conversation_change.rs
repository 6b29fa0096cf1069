//! Notifications about changes of conversations. They never contain a text.

use crate::{ConversationId, Digest};

/// A batch of changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationChanges {
    /// Whether anything may have changed before this batch without a notification.
    pub unseen: bool,
    /// The changes, in the order in which they were made.
    pub changes: Vec<ConversationChange>,
}

/// One change. Only the owner is notified of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationChange {
    /// The owner, as [`Caller::person`](crate::Caller::person) identifies a person.
    pub owner: Digest,
    /// The part that changed.
    pub what: ChangedPart,
}

/// The part of the owner's conversations that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedPart {
    /// Messages were added to this conversation, or it was cleared.
    Messages(ConversationId),
    /// A conversation was created or erased.
    List,
    /// The owner subscribed to something or unsubscribed from it.
    Subscriptions,
}
