//! The durable record.
//!
//! ```text
//!  Append ──▶ canonical bytes ──▶ queue ──▶ writer ──one statement a batch──▶ SQLite │ PostgreSQL
//!     ▲        + leaf hash                    │                                        │
//!     └──────── receipt, once durable ────────┘             Query, RecordReader ◀─pages┤
//!                                          closing: intents nobody finished ◀──────────┘
//! ```
//!
//! One job: keep what happened, so that nothing acknowledged is ever lost, changed or out of order. A
//! record becomes one JSON object in RFC 8785 form, its leaf hash follows RFC 6962, and its position is
//! one step in a dense sequence. A record holds ids, counts and keyed digests, never a value.

mod canonical;
mod config;
mod error;
mod filter;
mod growth;
mod intent_closer;
mod mac;
mod ownership;
mod query;
mod reader;
mod service;
mod store;
mod stored_row;
mod view;
mod writer;

pub use config::Config;
pub use error::Error;
pub use mac::MacKey;
pub use ownership::CallingProcesses;
pub use reader::RecordReader;
pub use service::service;
pub use store::LAYOUT;
pub use view::{access_view, record_line};
