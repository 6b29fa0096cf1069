//! Tools from `tools.yaml`, run under a permit only.
//!
//! ```text
//!   tools.yaml ──▶ catalogue ──▶ loaded (tools, sources, permits seen)
//!                                   │
//!   CallTool ─▶ call: tool ─▶ permit ─▶ arguments ─▶ executor ─▶ row rule ─▶ redact ─▶ result
//!                      └ refused: nothing ran          └ sql, http, command, grpc, mcp …
//! ```
//!
//! One job: run a configured tool for a call that the policy service permitted, and let nothing leave that
//! the permit does not cover. No code here knows any tool; `call` is the story of one call.

mod call;
mod closing;
mod compiled;
mod config;
mod connections;
mod content;
mod error;
mod execution_log;
mod executor;
mod failure;
mod following;
mod imported;
mod interaction;
mod kept_results;
mod loaded;
mod platform;
mod pushdown;
mod relay;
mod replicas;
mod result;
mod row_rule;
mod service;
mod sql;
mod store;
mod switchboard;

pub use closing::Closing;
pub use config::Config;
pub use error::Error;
pub use imported::{NotApproved, Review, ReviewedUpstream, Selection};
pub use relay::NotCarried;
pub use replicas::Dial;
pub use row_rule::RowRuleError;
pub use service::{Links, check, service};
pub use sql::postgres_reader;
pub use store::{LAYOUT, SealingKey, StoreError};

#[cfg(test)]
mod tests;
