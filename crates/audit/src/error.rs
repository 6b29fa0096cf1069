//! What can go wrong.

use wardgate_domain::InvalidMessage;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::RecordDamage;
use wardgate_store::{MigrationError, NotAStore};

/// A failure of the audit service or of a reader.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The setting `store` names no store.
    #[error("the audit store must be given as `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The setting `write_limit` is out of its range.
    #[error("audit.write_limit: `{given}` is not between 1ms and {most}")]
    WriteLimit {
        /// As configured.
        given: String,
        /// The longest that it may be.
        most: String,
    },
    /// The store cannot be opened.
    #[error("cannot open the audit store {store}: {source}")]
    Open {
        /// Where it is, without credentials.
        store: String,
        /// What the driver said.
        source: sqlx::Error,
    },
    /// The store has a schema that this program cannot work with.
    #[error("audit.store: {0}")]
    Schema(#[from] MigrationError),
    /// The record is not known to be durable. It may have been stored all the same; appending it once
    /// more with `retry` settles that.
    #[error("the record cannot be stored durably now; try again later")]
    NotDurable,
    /// A message that cannot become a record or a filter.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// The call already has an intent or outcome, and it is another one.
    #[error("this call already has another {event} in the record; give every call its own id")]
    AlreadyRecorded {
        /// `intent` or `outcome`.
        event: &'static str,
    },
    /// The store cannot be read.
    #[error("the audit store cannot be read now; try again later")]
    Unreadable(#[from] sqlx::Error),
    /// A stored record is not what this service writes.
    #[error("the record is damaged: {0}")]
    Damaged(RecordDamage),
}

impl From<NotAStore> for Error {
    fn from(NotAStore: NotAStore) -> Self {
        Self::UnknownStore
    }
}

impl ServiceError for Error {
    fn reason(&self) -> ErrorReason {
        match self {
            Self::NotDurable => ErrorReason::NotDurable,
            Self::Invalid(_) | Self::AlreadyRecorded { .. } => ErrorReason::InvalidMessage,
            Self::Unreadable(_) => ErrorReason::Unavailable,
            Self::UnknownStore
            | Self::WriteLimit { .. }
            | Self::Open { .. }
            | Self::Schema(_)
            | Self::Damaged(_) => ErrorReason::Internal,
        }
    }
}
