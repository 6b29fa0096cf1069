//! Runs the tools that `tools.yaml` configures, and only under a permit.
//!
//! ```text
//!   tools.yaml ──▶ catalogue ──▶ loaded (tools, sources, permits seen)
//!                                   │
//!   CallTool ─▶ call: tool ─▶ permit ─▶ arguments ─▶ executor ─▶ row rule ─▶ redact ─▶ result
//!                      └ refused: nothing ran          └ sql, http, command, grpc, mcp …
//! ```
//!
//! The crate runs a configured tool for a call that the policy service permitted, and releases nothing that the permit
//! does not cover. No code here knows any particular tool. The module `call` contains the steps of one call.

mod call;
mod compiled_permit;
mod config;
mod connections;
mod content;
mod error;
mod execution_log;
mod executor;
mod executor_error;
mod failure;
mod following;
mod get_content;
mod imported;
mod interaction;
mod large_results;
mod loaded;
mod platform;
mod pushdown;
mod replicas;
mod resource_links;
mod result;
mod row_rule;
mod service;
mod sorted_arguments;
mod store;
mod switchboard;
mod watch_resources;
mod wire;

pub use config::Config;
pub use error::Error;
pub use imported::{NotApproved, Review, ReviewedUpstream, Selection};
pub use replicas::Dial;
pub use row_rule::RowRuleError;
pub use service::{Links, ServiceCloser, check, service};
pub use store::{LAYOUT, SealingKey, StoreError};

#[cfg(test)]
mod tests;
