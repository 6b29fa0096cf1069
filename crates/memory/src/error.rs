//! What can go wrong.

use wardgate_domain::{InvalidMessage, SealBroken};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{CallError, OperatorError};
use wardgate_store::{MigrationError, NotAStore};

/// A failure of the memory service. None of them repeats a text or an id that a person wrote.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The setting `store` names no store.
    #[error("the memory store must be given as `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The file cannot be opened.
    #[error("cannot open the memory store {store}: {source}")]
    Open {
        /// Where it is.
        store: String,
        /// What the driver said.
        source: sqlx::Error,
    },
    /// It has a schema that this program cannot work with.
    #[error("memory.store: {0}")]
    Schema(MigrationError),
    /// What the store holds is under another master key.
    #[error(
        "the memory store was written under another master key; configure the key it was made with"
    )]
    OtherMasterKey,
    /// The database does not answer, or says no.
    #[error("the memory store cannot be used now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database takes too long.
    #[error("the memory store does not answer in time; try again later")]
    Late,
    /// A sealed text was changed or is under another key.
    #[error("what the memory store holds cannot be opened with its key")]
    Sealed(#[from] SealBroken),
    /// A stored row is not what this service writes.
    #[error("a stored {0} is damaged")]
    Damaged(&'static str),
    /// A message that cannot be what it should.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// No such conversation, or none that this caller may know of.
    #[error("unknown conversation")]
    UnknownConversation,
    /// The owner has as many conversations as one may have.
    #[error(
        "there are {0} conversations already, the limit of one owner; delete those that are not needed"
    )]
    TooManyConversations(u32),
    /// The owner is subscribed to as much as one may be.
    #[error(
        "there are {0} subscriptions already, the limit of one owner; unsubscribe from those that are not needed"
    )]
    TooManySubscriptions(i64),
    /// More watch than there are gateways.
    #[error("{0} watch already; one watch per gateway is enough")]
    TooManyWatchers(usize),
    /// Another message has that id.
    #[error("another message of this conversation has that id; give every message its own")]
    OtherMessage,
    /// The turn is complete or abandoned.
    #[error("the turn is {0} already; begin a new one")]
    TurnOver(&'static str),
    /// More than one turn can hold.
    #[error("a turn holds at most {messages} messages of {bytes} bytes together; begin a new one")]
    TurnFull {
        /// How many messages.
        messages: i64,
        /// How many bytes.
        bytes: i64,
    },
    /// A legal hold is on it.
    #[error("a legal hold is on this conversation; nothing of it is erased")]
    Held,
    /// It was to be erased only if nothing had changed it.
    #[error("this conversation was used in the meantime; it is kept")]
    Changed,
    /// More holds than anyone can oversee.
    #[error("there are {0} holds already; lift those that are not needed")]
    TooManyHolds(i64),
    /// The policy does not let the caller call the tool whose result this is.
    #[error("the policy does not let this caller call that tool, so its result is not kept")]
    Denied,
    /// The caller's token does not verify.
    #[error("{0}")]
    TokenRefused(#[source] CallError),
    /// An operator who is refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// The policy service cannot be asked.
    #[error("the policy service cannot be asked; try again later")]
    Policy(#[source] CallError),
    /// What cannot be recorded is not done.
    #[error("this cannot be recorded now, so it is not done; try again later")]
    NotRecorded(#[source] CallError),
    /// The service ends.
    #[error("the service ended before this was done; try again")]
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
