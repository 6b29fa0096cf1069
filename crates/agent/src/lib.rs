//! Assistants: a person asks, a model decides, governed tools run, the answer uses what they gave.
//!
//! ```text
//!   ChatRequest ─▶ Agent::chat ─▶ guardrail ─▶ context ─▶ ┌▶ model ─▶ calls ─▶ gateway ─▶ results ┐ ─▶ AgentEvent …
//!                     ▲                                   └───────────────────────────────────────┘
//!   ApprovalDecision ─┘                        every step is journalled in memory, so that any replica can go on
//! ```
//!
//! One job: the conversation between a person, a model and tools. It holds no privilege of its own: tools and memory
//! are reached only through the gateway, with the person's own token.

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

pub use agent::{Agent, EventStream, check};
pub use approval::ApprovalKey;
pub use config::{Config, Telemetry};
pub use event::{AgentEvent, Cap, ErrorKind, EventBody, FinishReason};
pub use gateway::GatewayEndpoint;
pub use http::{Endpoints, HttpLimits, listed_failures, listed_routes};
pub use request::{ApprovalDecision, BearerToken, ChatRequest, HistoryMessage, Model, Speaker};

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Files of assistants that cannot be used, one line a fault.
    #[error("the assistants cannot be used:\n{0}")]
    Assistants(String),
    /// The URL of the gateway that cannot be used.
    #[error("the gateway's URL cannot be used: {0}")]
    GatewayUrl(#[from] wardgate_edge::UnusableUrl),
}
