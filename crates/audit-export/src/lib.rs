//! Copies of the record for security tools.
//!
//! ```text
//!   RecordFeed ──records──▶ OCSF │ CEF ──events──▶ syslog over TLS │ webhook │ OTLP ──▶ a security tool
//!      ▲                                                                  │
//!      └───────────── how far the tool has taken it ◀────────────────────┘
//! ```
//!
//! One job: what is on record reaches a security tool at least once, in the order of its sequence. A copy holds what the
//! record holds and nothing else: no details of calls, no value. How far a tool has taken the record is remembered where the
//! record is kept, so an export goes on where it was after any end of the process. Nobody waits for an export: it may lag.

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
