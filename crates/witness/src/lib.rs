//! A witness of transparency logs, which cosigns a checkpoint of a log only if it continues the last checkpoint that the
//! witness saw.
//!
//! ```text
//!   POST /add-checkpoint ──▶ Witness ──consistent?──▶ SeenCheckpoints: written, flushed, renamed ──▶ cosignature
//!                              └─ 400 malformed · 403 not signed · 404 unknown log · 409 another size · 422 a fork
//! ```
//!
//! The witness ensures that a log that it cosigns has only one history. It runs outside the control of the operators of the
//! log, with its own key, and knows only the key and the newest checkpoint of the log. The protocol is
//! [tlog-witness](https://c2sp.org/tlog-witness), so this witness can serve other logs, and other witnesses can serve the log
//! of Wardgate.

mod error;
mod http;
mod seen;
mod witness;

pub use error::Error;
pub use http::{listed_routes, router};
pub use witness::{Refusal, Witness};
