//! The MCP client for upstream servers.
//!
//! ```text
//!   Upstream ─▶ Link ─┬─ stdio: Launcher ─▶ ServerProcess ─▶ Channel    a program's standard streams
//!    what can be      └─ http:  Dialer   ─▶ Exchange ─▶ egress          Streamable HTTP
//!    asked            one connection, made when needed, shared by all;  era: modern or legacy, found out first
//! ```
//!
//! Tool definitions, arguments and results are passed on as raw JSON, with every digit and member in the original order. The
//! size, depth, number and duration of messages from servers are limited, and their text is never logged.

mod backoff;
mod conditional_tools;
mod connection;
mod definition;
mod era;
mod error;
mod events;
mod fingerprint;
mod http;
mod link;
mod list_ttls;
mod listen;
mod listing;
mod log_quota;
mod logging;
mod members;
mod message;
mod open_requests;
mod participation;
mod passthrough_members;
mod personal_connections;
mod profiles;
mod responses;
mod result;
mod round;
mod server_message;
mod server_task;
mod settings;
mod stdio;
mod subscriptions;
mod task;
mod upstream;

pub use definition::ToolDefinition;
pub use era::SkillsCapability;
pub use error::{UpstreamError, UpstreamRpcError};
#[cfg(test)]
use events::Health;
pub use fingerprint::{BadDefinition, CanonicalDefinition, INSTRUCTIONS, ToolFingerprint, name_in};
pub use participation::{ClientCapabilities, InvalidParticipation, Participation};
pub use passthrough_members::PassthroughMembers;
pub use responses::Responses;
pub use result::{CallResult, meta_for_client, other_members};
pub use round::{Continuation, OpenExchange, Round, RoundStart, UpstreamOperation};
pub use server_message::{LogMessage, ServerMessage};
pub use server_task::{ServerTask, ServerTaskRequest, TaskStatus};
pub use settings::{Program, Transport};
pub use subscriptions::ResourceListener;
pub use upstream::Upstream;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
