//! What can go wrong.

use std::path::Path;

use wardgate_domain::{Digest, InvalidMessage};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{OperatorError, RecordDamage};
use wardgate_store::{MigrationError, NotAStore};

use crate::copy_problem::CopyProblem;

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
    /// The setting `retention_days` would keep nothing.
    #[error("audit.retention_days: records are kept for one day at least")]
    RetentionDays,
    /// The second copy cannot be used, or does not hold what it must.
    #[error("audit.second_copy_dir: {directory}: {problem}")]
    SecondCopy {
        /// Where it is.
        directory: String,
        /// What is wrong with it.
        problem: CopyProblem,
    },
    /// A setting of the search for anomalies makes no sense.
    #[error("audit.anomalies.{key}: {problem}")]
    AnomalySettings {
        /// Below `audit.anomalies`.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A record was removed by retention.
    #[error("record {sequence} was removed by retention; those from {minimum_index} on are kept")]
    Pruned {
        /// Of the record that was asked for.
        sequence: u64,
        /// Of the first that is kept.
        minimum_index: u64,
    },
    /// What a legal hold concerns is not erased.
    #[error("the legal hold `{name}` keeps this; lift it first")]
    Held {
        /// What it is called.
        name: String,
    },
    /// A name that a legal hold has already.
    #[error("there is a legal hold `{name}` already")]
    HoldExists {
        /// What it is called.
        name: String,
    },
    /// No legal hold has this name, or it is not one of the operator's tenant.
    #[error("there is no legal hold `{name}`")]
    NoSuchHold {
        /// As it was asked for.
        name: String,
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
    /// The store refuses a change of what stands beside the record: an export, a legal hold, retention or an erasure.
    #[error("the audit store refuses this change; see the log of the audit service")]
    UpkeepRefused(#[source] sqlx::Error),
    /// What stands in the store of the tree over the record is not what this service writes.
    #[error("the tree of the record is damaged: {0}")]
    DamagedTree(String),
    /// The store holds checkpoints of a log with another name.
    #[error(
        "audit.log_origin: the record's checkpoints are of the log `{stored}`, not of `{configured}`"
    )]
    OtherLog {
        /// As the stored checkpoint names it.
        stored: String,
        /// As configured.
        configured: String,
    },
    /// The newest checkpoint in the store is of another key.
    #[error(
        "audit.log_key_file: the record's newest checkpoint is signed by another key than `{configured}`; give the service the key it had, or, to replace it, name the public key of the old one (`wardgate audit key`) in audit.former_log_key"
    )]
    OtherLogKey {
        /// The public key of the one that is configured.
        configured: String,
    },
    /// The newest checkpoint in the store is not as it was signed.
    #[error(
        "the newest checkpoint in the audit store was altered: {0}; compare the store with a backup"
    )]
    AlteredCheckpoint(#[source] wardgate_transparency::Error),
    /// The setting `former_log_key` is no public key.
    #[error("audit.former_log_key: {0}")]
    FormerLogKey(#[source] wardgate_transparency::Error),
    /// The digests in the store are made with another key.
    #[error(
        "audit.mac_key_file: the digests of arguments and results in the store are made with another key, whose check value is {stored}; give the service the key it had, or, to replace it, set audit.former_mac_key to this value"
    )]
    OtherMacKey {
        /// The check value of the key that made them.
        stored: Digest,
    },
    /// The setting `former_mac_key` is no check value.
    #[error("audit.former_mac_key: it is not 64 hexadecimal digits")]
    FormerMacKey,
    /// A key, note or proof of the log is not what it must be.
    #[error("the log of the record: {0}")]
    Log(#[from] wardgate_transparency::Error),
    /// The keys of data subjects in the store are not under the configured key.
    #[error(
        "audit.details_key_file: the keys of data subjects in the store are under another key; give the service the key it had"
    )]
    OtherDetailsKey,
    /// A data subject or details were asked for, without the key that they are found and opened with.
    #[error("audit.details_key_file is needed to find a data subject and to open details")]
    NoDetailsKey,
    /// The file with the trust policy cannot be used.
    #[error("audit.witnesses.policy_file: {path}: {problem}")]
    WitnessPolicy {
        /// Which one.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An export to a security tool cannot be begun.
    #[error(transparent)]
    Export(#[from] wardgate_audit_export::Error),
    /// No checkpoint has the cosignatures of the quorum yet.
    #[error(
        "no checkpoint of the record is cosigned by a quorum of witnesses yet; see audit.witnesses and the log of the audit service"
    )]
    NotCosigned,
    /// No checkpoint was signed yet.
    #[error(
        "there is no signed checkpoint of the record yet; the audit service signs one when it starts"
    )]
    NoCheckpoint,
    /// The record is not in a signed checkpoint yet, or there is no such record.
    #[error(
        "the newest checkpoint covers the records below {size}; record {sequence} is not there, or is less than a second old"
    )]
    NotCovered {
        /// Of the record that was asked for.
        sequence: u64,
        /// Of the newest checkpoint.
        size: u64,
    },
    /// No record is of this call.
    #[error("there is no record of the call {call_id}")]
    NoSuchCall {
        /// Its id.
        call_id: String,
    },
    /// No record of this call has the hash that a receipt names.
    #[error("there is no record of the call {call_id} that its receipt names")]
    NoSuchReceipt {
        /// Its id.
        call_id: String,
    },
    /// The intent of a call is not on record, or not as one of its caller.
    #[error("the call {call_id} has no intent on record of this caller")]
    NoIntent {
        /// Its id.
        call_id: String,
    },
    /// Retention removed records that would have to be counted.
    #[error("records of the time in which calls are counted were removed by retention")]
    HistoryPruned,
    /// There are more records to count than are looked at.
    #[error("the caller has too many calls of the tool on record to count them")]
    TooManyCalls,
    /// An operator who is refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// An operator of a tenant asks for what has the records of all.
    #[error(
        "this concerns the records of all tenants; an operator of a tenant reads their own with `audit query`"
    )]
    OtherTenants,
    /// The files of an export cannot be written.
    #[error("cannot write to {directory}: {source}")]
    ExportDirectory {
        /// Which directory.
        directory: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A stored record is not what this service writes.
    #[error("the record is damaged: {0}")]
    Damaged(RecordDamage),
}

impl Error {
    pub(crate) fn second_copy(directory: &Path, problem: CopyProblem) -> Self {
        Self::SecondCopy {
            directory: directory.display().to_string(),
            problem,
        }
    }
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
            Self::Invalid(_)
            | Self::AlreadyRecorded { .. }
            | Self::NotCovered { .. }
            | Self::NoSuchCall { .. }
            | Self::NoIntent { .. }
            | Self::HistoryPruned
            | Self::TooManyCalls
            | Self::NoSuchReceipt { .. }
            | Self::Pruned { .. }
            | Self::Held { .. }
            | Self::HoldExists { .. }
            | Self::NoSuchHold { .. } => ErrorReason::InvalidMessage,
            Self::Operator(error) => error.reason(),
            Self::OtherTenants => ErrorReason::Denied,
            Self::Unreadable(_) | Self::NoCheckpoint | Self::NotCosigned => {
                ErrorReason::Unavailable
            }
            Self::UnknownStore
            | Self::WriteLimit { .. }
            | Self::RetentionDays
            | Self::AnomalySettings { .. }
            | Self::Open { .. }
            | Self::Schema(_)
            | Self::SecondCopy { .. }
            | Self::DamagedTree(_)
            | Self::UpkeepRefused(_)
            | Self::ExportDirectory { .. }
            | Self::Export(_)
            | Self::OtherLog { .. }
            | Self::OtherLogKey { .. }
            | Self::AlteredCheckpoint(_)
            | Self::FormerLogKey(_)
            | Self::OtherMacKey { .. }
            | Self::FormerMacKey
            | Self::OtherDetailsKey
            | Self::NoDetailsKey
            | Self::WitnessPolicy { .. }
            | Self::Log(_)
            | Self::Damaged(_) => ErrorReason::Internal,
        }
    }
}
