//! A witness of transparency logs: it cosigns a log's checkpoint only if that continues the one it saw last.
//!
//! ```text
//!   POST /add-checkpoint ──▶ Witness ──consistent?──▶ SeenCheckpoints: written, flushed, renamed ──▶ cosignature
//!                              └─ 400 malformed · 403 not signed · 404 unknown log · 409 another size · 422 a fork
//! ```
//!
//! One job: that a log which a witness cosigns has one history. It runs where the operators of the log cannot reach it,
//! with a key of its own, and knows nothing of the log but its key and its newest checkpoint. The protocol is
//! [tlog-witness](https://c2sp.org/tlog-witness), so that it serves other logs, and other witnesses serve ours.

mod error;
mod http;
mod seen;
mod witness;

pub use error::Error;
pub use http::{listed_routes, router};
pub use witness::{Refusal, Witness};
