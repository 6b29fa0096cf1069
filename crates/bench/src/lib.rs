//! A client for tool calls over MCP, and a load generator that measures their latencies.
//!
//! ```text
//!  CallToolParams ─▶ McpClient::call ─▶ its id, no error, a receipt     every response is verified, or counted as a fault
//!              ▲
//!  closed: a number of callers, each waits for its response ─┐
//!  open:   a number of calls per second, without waiting ────┴─▶ Tally ─▶ Report
//! ```
//!
//! This is the client of `wardgate tools call` and `wardgate bench`. In an open loop the latency is measured from the
//! time at which a call was due, so that a gateway that stalls cannot hide the delay of the calls behind it
//! ("coordinated omission").

mod client;
mod load;
mod report;

pub use client::{CallToolParams, Fault, McpClient, Settings};
pub use load::{Load, Pace, run};
pub use report::{Latency, Report};
pub use wardgate_mcp::Era;
