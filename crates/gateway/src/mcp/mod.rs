//! What a message says: its envelope, its `_meta`, the headers that mirror it, and the version it names.

mod envelope;
mod idempotency;
mod log_level;
mod meta;
mod mirrored_headers;
mod version;

pub(crate) use envelope::{
    Message, Request, Response, cancelled, inner, object, spelt_alike, text_of,
};
pub(crate) use idempotency::key_of as idempotency_key;
pub(crate) use log_level::LogLevel;
pub(crate) use meta::Meta;
pub(crate) use mirrored_headers::{MirroredHeader, check as check_mirrored_headers, of_request};
pub(crate) use version::{named_version, negotiate, negotiate_on_stream};

/// Messages one batch may hold.
pub(crate) const BATCH: usize = 50;

/// Opens a stream of changes.
pub(crate) const LISTEN: &str = "subscriptions/listen";
