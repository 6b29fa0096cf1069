//! Exports the audit record to security tools.
//!
//! ```text
//!   RecordFeed ──records──▶ OCSF │ CEF ──events──▶ syslog over TLS │ webhook │ OTLP ──▶ a security tool
//!      ▲                                                                  │
//!      └───────────── position of the export ◀───────────────────────────┘
//! ```
//!
//! Every record reaches a security tool at least once, in the order of its sequence number. An event contains only what the
//! record contains: no details of calls and no values. The position up to which a tool has received the record is stored next to
//! the record, so that an export resumes there after any end of the process. Nothing waits for an export, so an export may lag
//! behind.

mod cef;
mod conversion;
mod error;
mod event;
mod exporter;
mod feed;
mod ocsf;
mod record;
mod settings;
mod transport;
mod validation;

pub use error::Error;
pub use exporter::{ExportLog, RecordExporter};
pub use feed::{CursorClaim, FeedError, FeedPage, RecordFeed, SourceRecord};
pub use settings::{
    EventFormat, ExportSettings, HttpSettings, RecordKind, StartPosition, SyslogSettings,
};
