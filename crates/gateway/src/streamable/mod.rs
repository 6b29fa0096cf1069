//! The responses to a GET in a session of Streamable HTTP before 2026-07-28.
//!
//! ```text
//!  GET ───────────────▶ listening       a stream of changes, one for each session at a time
//!  GET, Last-Event-ID ▶ resumed_stream  the rest of an answer, after the last event that the client has
//! ```

mod listening;
mod resumed_stream;
mod sealed_operation;

pub(crate) use self::listening::listen;
