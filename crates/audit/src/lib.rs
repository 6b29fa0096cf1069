//! The durable record.
//!
//! ```text
//!  Append ──▶ canonical bytes ──▶ queue ──▶ writer ──one statement a batch──▶ SQLite │ PostgreSQL
//!     ▲        + leaf hash                    │                                        │
//!     └── receipt, once durable, ── second copy┘             Query, RecordReader ◀─pages┤
//!                     token ─▶ policy ─▶ operators, on record themselves ◀──────────────┤
//!                                          closing: intents nobody finished ◀──────────┤
//!                                          publisher: tree, signed checkpoints ◀───────┤
//!                                          cosigning: witnesses, their quorum  ◀───────┤
//!                                          anomalies: unusual callers  ◀───────┤
//!                     security tools ◀─ audit-export ◀─ exports, each with its cursor ◀─┘
//! ```
//!
//! One job: keep what happened, so that nothing acknowledged is ever lost, changed or out of order. A
//! record becomes one JSON object in RFC 8785 form, its leaf hash follows RFC 6962, and its position is
//! one step in a dense sequence. These positions are the leaves of a Merkle tree, of which a checkpoint is signed each
//! second, so that whoever has one notices when a record before it is changed. A record holds ids, counts and keyed digests, never a value.

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
pub use details_key::DetailsKey;
pub use error::Error;
pub use export::{ExportDirectory, ExportPart};
pub use growth::{StoreGrowth, StoreRoom};
pub use mac::MacKey;
pub use ownership::CallingProcesses;
pub use proof::CheckpointKind;
pub use publisher::{LogCloser, LogKey};
pub use reader::RecordReader;
pub use receipt::{CallReceipt, ReceiptError};
pub use service::{AuditKeys, service};
pub use store::LAYOUT;
pub use verification_input::VerificationError;
pub use verify::{VerifiedLog, Verifier};
pub use view::{access_view, record_line};
pub use wardgate_audit_export::{ExportSettings, RecordKind};
