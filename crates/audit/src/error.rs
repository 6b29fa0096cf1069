//! Errors of the audit service.

use std::path::Path;

use wardgate_domain::{Digest, InvalidMessage};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{OperatorError, RecordDamage};
use wardgate_store::{MigrationError, NotAStore, is_corrupt, is_corrupt_index};

use crate::copy_problem::CopyProblem;

/// An error of the audit service or of a reader of its store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The setting `store` is not the address of a store.
    #[error("the audit store must have the form `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The setting `write_limit` is out of range.
    #[error("audit.write_limit: `{given}` is not between 1ms and {most}")]
    WriteLimit {
        /// The configured value.
        given: String,
        /// The maximum value.
        most: String,
    },
    /// The setting `retention_days` is zero.
    #[error("audit.retention_days: records must be kept for at least one day")]
    RetentionDays,
    /// The second copy cannot be used, or does not contain the records that it must contain.
    #[error("audit.second_copy_dir: {directory}: {problem}")]
    SecondCopy {
        /// The directory of the second copy.
        directory: String,
        /// What is wrong with the second copy.
        problem: CopyProblem,
    },
    /// A setting of anomaly detection is invalid.
    #[error("audit.anomalies.{key}: {problem}")]
    AnomalySettings {
        /// The key of the setting below `audit.anomalies`.
        key: String,
        /// What is wrong with the value.
        problem: String,
    },
    /// Retention removed the record.
    #[error(
        "record {sequence} was removed by retention; the records from {minimum_index} on are available"
    )]
    Pruned {
        /// The sequence number of the requested record.
        sequence: u64,
        /// The sequence number of the first record that is kept.
        minimum_index: u64,
    },
    /// A legal hold prevents an erasure.
    #[error("the legal hold `{name}` applies to these records; lift it first")]
    Held {
        /// The name of the hold.
        name: String,
    },
    /// A legal hold with this name exists already.
    #[error("a legal hold `{name}` exists already")]
    HoldExists {
        /// The name of the hold.
        name: String,
    },
    /// No legal hold has this name, or it was not set in the operator's tenant.
    #[error("the legal hold `{name}` does not exist")]
    NoSuchHold {
        /// The requested name.
        name: String,
    },
    /// The store cannot be opened.
    #[error("cannot open the audit store {store}: {source}")]
    Open {
        /// The address of the store, without credentials.
        store: String,
        /// The error of the database driver.
        source: sqlx::Error,
    },
    /// The store has a schema that this program does not support.
    #[error("audit.store: {0}")]
    Schema(#[from] MigrationError),
    /// The record is not known to be durable. It may have been stored nevertheless; a second append of it with `retry` settles
    /// that.
    #[error("the record cannot be stored durably now; try again later")]
    NotDurable,
    /// A message is not a valid record or filter.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// The call already has an intent or an outcome that differs from the new one.
    #[error(
        "the audit log already contains another {event} of this call; give every call a unique id"
    )]
    AlreadyRecorded {
        /// The event of the record: `intent` or `outcome`.
        event: &'static str,
    },
    /// The store cannot be read.
    #[error("{}", unreadable_text(.0))]
    Unreadable(#[from] sqlx::Error),
    /// The store refuses a change besides records and their tree: of an export, a legal hold, retention or an erasure.
    #[error("the audit store refuses this change; see the log of the audit service")]
    UpkeepRefused(#[source] sqlx::Error),
    /// The tree in the store is not one that this service wrote.
    #[error("the tree of the audit log is damaged: {0}")]
    DamagedTree(String),
    /// The store contains checkpoints of a log with another origin.
    #[error(
        "audit.log_origin: the checkpoints of the audit log have the origin `{stored}`, not `{configured}`"
    )]
    OtherLog {
        /// The origin in the stored checkpoint.
        stored: String,
        /// The configured origin.
        configured: String,
    },
    /// The newest checkpoint in the store is signed with another key.
    #[error(
        "audit.log_key_file: the newest checkpoint of the audit log is signed with another key than `{configured}`; configure the \
         previous key, or, to replace it, set audit.former_log_key to the previous public key (`wardgate audit key`)"
    )]
    OtherLogKey {
        /// The public key that belongs to the configured key.
        configured: String,
    },
    /// The newest checkpoint in the store was altered after it was signed.
    #[error(
        "the newest checkpoint in the audit store was modified: {0}; compare the store with a backup"
    )]
    AlteredCheckpoint(#[source] wardgate_transparency::Error),
    /// The setting `former_log_key` is not a public key.
    #[error("audit.former_log_key: {0}")]
    FormerLogKey(#[source] wardgate_transparency::Error),
    /// The digests in the store were made with another key.
    #[error(
        "audit.mac_key_file: the digests of arguments and results in the store are computed with another key, whose check value is \
         {stored}; configure the previous key, or, to replace it, set audit.former_mac_key to this value"
    )]
    OtherMacKey {
        /// The check value of the key that made the digests.
        stored: Digest,
    },
    /// The setting `former_mac_key` is not a check value.
    #[error("audit.former_mac_key: it is not 64 hexadecimal digits")]
    FormerMacKey,
    /// A key, note or proof of the transparency log is invalid.
    #[error("the log of the audit records: {0}")]
    Log(#[from] wardgate_transparency::Error),
    /// The keys of data subjects in the store are wrapped with another key than the configured ones.
    #[error(
        "audit.details_key_file: the keys of data subjects in the store are encrypted with another key; configure the previous key, \
         and, to replace it, configure it in audit.former_details_key_files until `wardgate audit rekey` has ended"
    )]
    OtherDetailsKey,
    /// A rotation of the master key has not ended, and the key that the store is moved from is not configured.
    #[error(
        "audit.former_details_key_files: the store is still being moved to the key of audit.details_key_file; configure the former \
         key, and run `wardgate audit rekey` again"
    )]
    FormerDetailsKey,
    /// A rotation to a master key that is not the current one has not ended.
    #[error(
        "audit.details_key_file: the store is still being moved to another key; configure that key as the current one, and run \
         `wardgate audit rekey` again before the next rotation"
    )]
    RekeyUnfinished,
    /// The current master key is also configured as a former one, so there is nothing to rotate.
    #[error(
        "audit.former_details_key_files: it contains the key of audit.details_key_file; configure a new key there"
    )]
    SameDetailsKey,
    /// The store has no keys of data subjects, so no service has used it yet.
    #[error(
        "audit.store: the store has no keys of data subjects; check that it is the store of the audit service"
    )]
    NoSubjectKeys,
    /// The rotation of the master key cannot change the store. What it has changed so far stays.
    #[error(
        "the keys of data subjects cannot be changed now: {0}; run `wardgate audit rekey` again"
    )]
    KeysNotMoved(#[source] sqlx::Error),
    /// Keys of data subjects are added under a former master key during the rotation. The keys that it has moved stay so.
    #[error(
        "a service of the previous release still adds keys under the former key; stop it and run `wardgate audit rekey` again"
    )]
    FormerKeyInUse,
    /// A data subject or details were requested without the key that is needed to find data subjects and to open details.
    #[error("audit.details_key_file is required to find a data subject and to decrypt details")]
    NoDetailsKey,
    /// The file with the trust policy cannot be used.
    #[error("audit.witnesses.policy_file: {path}: {problem}")]
    WitnessPolicy {
        /// The path of the file.
        path: String,
        /// What is wrong with the file.
        problem: String,
    },
    /// An export to a security tool cannot be started.
    #[error(transparent)]
    Export(#[from] wardgate_audit_export::Error),
    /// No checkpoint has the cosignatures of a quorum yet.
    #[error(
        "no checkpoint of the audit log is cosigned by a quorum of witnesses yet; see audit.witnesses and the log of the audit service"
    )]
    NotCosigned,
    /// No checkpoint was signed yet.
    #[error(
        "no signed checkpoint of the audit log exists yet; the audit service signs one when it starts"
    )]
    NoCheckpoint,
    /// The record is not covered by a checkpoint yet, or does not exist.
    #[error(
        "the newest checkpoint covers the records below {size}; record {sequence} does not exist, or is less than a second old"
    )]
    NotCovered {
        /// The sequence number of the requested record.
        sequence: u64,
        /// The number of records that the newest checkpoint covers.
        size: u64,
    },
    /// The call has no record.
    #[error("no record of the call {call_id} exists")]
    NoSuchCall {
        /// The id of the call.
        call_id: String,
    },
    /// No record of the call has the hash in the receipt.
    #[error("the record of the call {call_id} that its receipt names does not exist")]
    NoSuchReceipt {
        /// The id of the call.
        call_id: String,
    },
    /// No intent of the call is recorded, or the recorded one has another caller.
    #[error("the call {call_id} has no recorded intent of this caller")]
    NoIntent {
        /// The id of the call.
        call_id: String,
    },
    /// Retention removed records that would have to be counted.
    #[error("records of the counted period were removed by retention")]
    HistoryPruned,
    /// There are too many records to count.
    #[error("the caller has more records in the counted period than are read for a count")]
    TooManyCalls,
    /// A call that could count has a record without the tags of its tool.
    #[error(
        "a gateway or audit service of an earlier release, which records no tags, recorded a call in the counted period, so the \
         calls cannot be counted by tag"
    )]
    UntaggedCall,
    /// The operator is refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// An operator of a tenant requests something that concerns the records of all tenants.
    #[error(
        "this operation covers the records of all tenants; an operator of a tenant reads their own with `audit query`"
    )]
    OtherTenants,
    /// The files of an export cannot be written.
    #[error("cannot write to {directory}: {source}")]
    ExportDirectory {
        /// The directory of the export.
        directory: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A stored record is not one that this service wrote.
    #[error("the audit log is damaged: {0}")]
    Damaged(RecordDamage),
}

/// Returns the message for a store that cannot be read. A read of a corrupt place does not succeed later.
fn unreadable_text(error: &sqlx::Error) -> &'static str {
    if is_corrupt(error) {
        "the database of the audit store is corrupt at a place that was read: preserve the store unchanged, and compare it with a \
         backup"
    } else if is_corrupt_index(error) {
        "an index of the audit store is corrupt: preserve a copy of the store, then rebuild its indexes with `REINDEX`"
    } else {
        "the audit store cannot be read now; try again later"
    }
}

impl Error {
    pub(crate) fn second_copy(directory: &Path, problem: CopyProblem) -> Self {
        Self::SecondCopy {
            directory: directory.display().to_string(),
            problem,
        }
    }

    /// Returns whether the files of the store are corrupt at the place that was read, so that other records may be readable.
    pub(crate) fn is_corruption(&self) -> bool {
        matches!(self, Self::Unreadable(error) if is_corrupt(error))
    }

    /// Returns whether an index of a PostgreSQL store is corrupt, so that its records may be readable without the index.
    pub(crate) fn is_index_corruption(&self) -> bool {
        matches!(self, Self::Unreadable(error) if is_corrupt_index(error))
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
            | Self::UntaggedCall
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
            | Self::FormerDetailsKey
            | Self::RekeyUnfinished
            | Self::SameDetailsKey
            | Self::NoSubjectKeys
            | Self::KeysNotMoved(_)
            | Self::FormerKeyInUse
            | Self::NoDetailsKey
            | Self::WitnessPolicy { .. }
            | Self::Log(_)
            | Self::Damaged(_) => ErrorReason::Internal,
        }
    }
}
