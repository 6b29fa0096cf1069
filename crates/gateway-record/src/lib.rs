//! What the gateway puts on record of calls.
//!
//! ```text
//!  outcome + details ─▶ CallRecorder ─┬─▶ AuditLog ─▶ audit ─▶ receipt
//!  refusal ───────────────────────────┴─▶ counted, recorded once a second
//! ```
//!
//! One job: no answer without a receipt. Requests that never became a call, and refused calls of a caller who had many of
//! late, are counted instead, so that a flood cannot buy a durable write each.

mod audit_log;
mod details;
mod recorder;
mod refusals;
mod stages;

pub use audit_log::{APPEND_LIMIT, AuditLog};
pub use details::describe_call;
pub use recorder::CallRecorder;
pub use stages::{run_stage, stage};
