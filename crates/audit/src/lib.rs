//! Durable, tamper-evident storage of the audit log.
//!
//! ```text
//!  Append ──▶ canonical bytes ──▶ queue ──▶ writer ──one statement per batch──▶ SQLite │ PostgreSQL
//!     ▲        + leaf hash                     │                                         │
//!     └── receipt, once durable ── second copy ┘            Query, RecordReader ◀─pages──┤
//!                     token ─▶ policy ─▶ operators, each access recorded ◀───────────────┤
//!                                          intent closer: abandoned intents ◀────────────┤
//!                                          publisher: tree, signed checkpoints ◀─────────┤
//!                                          cosigning: witnesses and their quorum ◀───────┤
//!                                          anomaly monitor: unusual callers ◀────────────┤
//!                 security tools ◀─ audit-export ◀─ exports, each with its cursor ◀──────┘
//! ```
//!
//! An acknowledged record is never lost, changed or reordered. A record becomes one JSON object in the form of RFC 8785, its
//! leaf hash follows RFC 6962, and its sequence number is the next one in a dense sequence. The records are the leaves of a
//! Merkle tree, of which a checkpoint is signed every second; a holder of a checkpoint can detect any change of an earlier
//! record. A record contains ids, counts and keyed digests, and never the values of arguments or results.

mod anomaly;
mod anomaly_monitor;
mod canonical;
mod config;
mod copy_problem;
mod copy_verification;
mod cosigning;
mod details;
mod details_key;
mod error;
mod export;
mod exports;
mod filter;
mod growth;
mod history;
mod intent_closer;
mod mac;
mod mac_check;
mod master_key;
mod operator_access;
mod ownership;
mod proof;
mod publisher;
mod query;
mod reader;
mod receipt;
mod recent_leaves;
mod record_content;
mod record_line;
mod rekey;
mod retention;
mod sealed_details;
mod second_copy;
mod service;
mod store;
mod store_health;
mod stored_row;
mod verification_input;
mod verify;
mod view;
mod writer;

pub use anomaly::{AnomalySettings, AnomalyThreshold, TimeOfDay, UsualHours};
pub use config::{Config, WitnessSettings};
pub use copy_problem::CopyProblem;
pub use details_key::{DetailsKey, DetailsKeys};
pub use error::Error;
pub use export::{ExportDirectory, ExportPart};
pub use growth::{StoreGrowth, StoreRoom};
pub use mac::MacKey;
pub use ownership::CallingProcesses;
pub use proof::CheckpointKind;
pub use publisher::{LogCloser, LogKey};
pub use reader::RecordReader;
pub use receipt::{CallReceipt, ReceiptError};
pub use rekey::{RekeyOutcome, rekey};
pub use service::{AuditKeys, service};
pub use store::LAYOUT;
pub use verification_input::VerificationError;
pub use verify::{VerifiedLog, Verifier};
pub use view::{access_view, record_line};
pub use wardgate_audit_export::{ExportSettings, RecordKind};
