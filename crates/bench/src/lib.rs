//! Calls of tools over MCP: one, or many at a time with their latencies.
//!
//! ```text
//!  CallToolParams ─▶ McpClient::call ─▶ its id, no error, a receipt     every answer is verified, or counted as a fault
//!              ▲
//!  closed: so many callers, each waits for its answer ─┐
//!  open:   so many calls a second, whatever comes back ┴─▶ Tally ─▶ Report
//! ```
//!
//! One job: to be the client that `wardgate tools call` and `wardgate bench` need. An open loop counts from when a call was due,
//! so a gateway that stalls cannot hide what waited meanwhile ("coordinated omission").

mod client;
mod load;
mod report;

pub use client::{CallToolParams, Fault, McpClient, Settings};
pub use load::{Load, Pace, run};
pub use report::{Latency, Report};
pub use wardgate_mcp::Era;
