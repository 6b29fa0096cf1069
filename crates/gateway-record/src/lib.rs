//! The records that the gateway makes of calls.
//!
//! ```text
//!  outcome + details ─▶ CallRecorder ─┬─▶ AuditLog ─▶ audit ─▶ receipt
//!  refusal ───────────────────────────┴─▶ counted, recorded once a second
//! ```
//!
//! Every answer requires a receipt. The exceptions are requests that never became a call, and refused calls of a caller
//! that had many of them recently. Those are only counted, so that a flood of them does not cause a durable write each.

mod audit_log;
mod details;
mod recorder;
mod refusals;
mod stages;

pub use audit_log::{APPEND_LIMIT, AuditLog};
pub use details::describe_call;
pub use recorder::CallRecorder;
pub use stages::{run_stage, stage};
