//! Assistants: a user asks, a model decides, governed tools run, and the answer uses the results of the tools.
//!
//! ```text
//!   ChatRequest ─▶ Agent::chat ─▶ guardrail ─▶ context ─▶ ┌▶ model ─▶ calls ─▶ gateway ─▶ results ┐ ─▶ AgentEvent …
//!                     ▲                                   └───────────────────────────────────────┘
//!   ApprovalDecision ─┘              every step is written to the conversation's memory, so that any replica can continue
//! ```
//!
//! The crate handles the conversation between a user, a model and tools. It holds no privileges: it reaches tools and memory
//! only through the gateway, with the user's own token.

mod agent;
mod approval;
mod assistant;
mod caller_gateway;
mod clients;
mod config;
mod event;
mod functions;
mod gateway;
mod guardrail;
mod http;
mod mcp_tool;
mod memory;
mod model;
mod provider;
mod reload;
mod request;
mod retrying_gateway;
#[cfg(test)]
mod testing;
mod turn;
mod turn_slots;

pub use agent::{Agent, EventStream, check, secret_files};
pub use approval::ApprovalKey;
pub use config::{Config, Telemetry};
pub use event::{AgentEvent, Cap, ErrorKind, EventBody, FinishReason};
pub use gateway::GatewayEndpoint;
pub use http::{Endpoints, HttpLimits, listed_failures, listed_routes};
pub use request::{ApprovalDecision, BearerToken, ChatRequest, HistoryMessage, Model, Speaker};

/// An error that prevents the service from starting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Assistant files are unusable. The text has one line for each error.
    #[error("the assistants cannot be used:\n{0}")]
    Assistants(String),
    /// The URL of the gateway is unusable.
    #[error("the gateway's URL cannot be used: {0}")]
    GatewayUrl(#[from] wardgate_edge::UnusableUrl),
}
