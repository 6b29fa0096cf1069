//! Errors of the memory service.

use wardgate_domain::{InvalidMessage, SealBroken};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{CallError, OperatorError};
use wardgate_store::{MigrationError, NotAStore};

/// An error of the memory service. No variant contains a text or an id that a person wrote.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The setting `store` does not name a supported store.
    #[error("the memory store must have the form `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The database file cannot be opened.
    #[error("cannot open the memory store {store}: {source}")]
    Open {
        /// The location of the store.
        store: String,
        /// The error of the driver.
        source: sqlx::Error,
    },
    /// The store has a schema that this program does not support.
    #[error("memory.store: {0}")]
    Schema(MigrationError),
    /// The store was written under another master key.
    #[error(
        "the memory store is encrypted under another master key; configure the key with which it was created, and the former keys until \
         the store is moved to the current one"
    )]
    OtherMasterKey,
    /// The store is to be moved to another master key, but is under none, so no service has used it yet.
    #[error(
        "memory.store: no memory service has used this store yet, so there is nothing to move to another master key; check that it \
         is the store of the memory service"
    )]
    NoMasterKey,
    /// The store is still moved to a master key that is not the current one.
    #[error(
        "the memory store is still being moved to another master key; configure that key as the current one and finish the move first"
    )]
    RekeyUnfinished,
    /// The current master key is also configured as a former one, so there is nothing to move.
    #[error(
        "memory.former_master_key_files: it contains the key of memory.master_key_file; configure a new key as \
         memory.master_key_file"
    )]
    SameMasterKey,
    /// The database is unavailable or refused a statement.
    #[error("the memory store is not available now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database did not answer in time.
    #[error("the memory store did not answer in time; try again later")]
    Late,
    /// A sealed text was tampered with or is sealed under another key.
    #[error("an entry of the memory store cannot be decrypted with its key")]
    Sealed(#[from] SealBroken),
    /// A stored row is not in the format that this service writes.
    #[error("a stored {0} is damaged")]
    Damaged(&'static str),
    /// A message of the request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// There is no such conversation, or none that the caller may know of.
    #[error("unknown conversation")]
    UnknownConversation,
    /// The owner has reached the maximum number of conversations.
    #[error(
        "the limit of {0} conversations of one owner is reached; delete those that are not needed"
    )]
    TooManyConversations(u32),
    /// The owner has reached the maximum number of subscriptions.
    #[error(
        "the limit of {0} subscriptions of one owner is reached; unsubscribe from those that are not needed"
    )]
    TooManySubscriptions(i64),
    /// The maximum number of watchers is reached.
    #[error("the limit of {0} watches is reached; one watch per gateway is sufficient")]
    TooManyWatchers(usize),
    /// Another message of the conversation has this id.
    #[error("another message of this conversation has this id; give every message a unique id")]
    OtherMessage,
    /// The turn is already complete or abandoned.
    #[error("the turn is already {0}; begin a new one")]
    TurnOver(&'static str),
    /// The turn has reached the maximum number of messages or bytes.
    #[error("a turn is limited to {messages} messages and {bytes} bytes in total; begin a new one")]
    TurnFull {
        /// Maximum number of messages of a turn.
        messages: i64,
        /// Maximum number of bytes of a turn.
        bytes: i64,
    },
    /// A legal hold is on the conversation.
    #[error("a legal hold applies to this conversation; it is not erased")]
    Held,
    /// The conversation was to be erased only if unchanged, but it was changed.
    #[error("this conversation was used in the meantime and was not erased")]
    Changed,
    /// The maximum number of holds is reached.
    #[error("the limit of {0} holds is reached; lift those that are not needed")]
    TooManyHolds(i64),
    /// The policy does not allow the caller to call the tool whose result is to be added.
    #[error("the policy does not permit this caller to call the tool, so its result is not stored")]
    Denied,
    /// The caller's token cannot be verified.
    #[error("{0}")]
    TokenRefused(#[source] CallError),
    /// The operator was refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// The policy service is unavailable.
    #[error("the policy service cannot be reached; try again later")]
    Policy(#[source] CallError),
    /// The operation cannot be recorded, so it does not take place.
    #[error("the operation cannot be recorded now and was not performed; try again later")]
    NotRecorded(#[source] CallError),
    /// The service is shutting down.
    #[error("the service stopped before the operation was complete; try again")]
    Interrupted,
}

impl From<NotAStore> for Error {
    fn from(NotAStore: NotAStore) -> Self {
        Self::UnknownStore
    }
}

impl From<MigrationError> for Error {
    fn from(error: MigrationError) -> Self {
        match error {
            MigrationError::Database(error) => error.into(),
            schema => Self::Schema(schema),
        }
    }
}

impl ServiceError for Error {
    fn reason(&self) -> ErrorReason {
        match self {
            Self::UnknownStore
            | Self::Open { .. }
            | Self::Schema(_)
            | Self::OtherMasterKey
            | Self::NoMasterKey
            | Self::RekeyUnfinished
            | Self::SameMasterKey
            | Self::Sealed(_)
            | Self::Damaged(_) => ErrorReason::Internal,
            Self::Database(_) | Self::Late | Self::Policy(_) | Self::Interrupted => {
                ErrorReason::Unavailable
            }
            Self::Invalid(_) => ErrorReason::InvalidMessage,
            Self::UnknownConversation => ErrorReason::UnknownConversation,
            Self::OtherMessage
            | Self::TurnOver(_)
            | Self::TurnFull { .. }
            | Self::Changed
            | Self::TooManyConversations(_)
            | Self::TooManySubscriptions(_)
            | Self::TooManyWatchers(_)
            | Self::TooManyHolds(_) => ErrorReason::Conflict,
            Self::Held => ErrorReason::Held,
            Self::Denied => ErrorReason::Denied,
            Self::TokenRefused(_) => ErrorReason::TokenRefused,
            Self::Operator(error) => error.reason(),
            Self::NotRecorded(_) => ErrorReason::NotDurable,
        }
    }
}
