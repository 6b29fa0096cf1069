//! Our MCP client for upstream servers.
//!
//! ```text
//!   Upstream ─▶ Link ─┬─ stdio: Launcher ─▶ Process ─▶ Channel          a program's standard streams
//!    what can be      └─ http:  Dialer   ─▶ Exchange ─▶ egress          Streamable HTTP
//!    asked            one connection, made when needed, shared by all;  era: modern or legacy, found out first
//! ```
//!
//! It works on the wire's own bytes: tool definitions, arguments and results go through as raw JSON, with
//! every digit, member and order. What a server sends is bounded in size, depth, number and time, and no
//! word of it is logged.

mod backoff;
mod carried_tools;
mod conditional_tools;
mod definition;
mod era;
mod error;
mod events;
mod http;
mod leg;
mod link;
mod listen;
mod listing;
mod logging;
mod message;
mod news;
mod open_exchange;
mod open_requests;
mod others;
mod participation;
mod personal;
mod profiles;
mod quota;
mod result;
mod server_task;
mod settings;
mod stdio;
mod subscriptions;
mod task;
mod ttl;
mod upstream;

#[expect(unused_imports, reason = "for the import of tools")]
pub(crate) use definition::ToolDefinition;
pub(crate) use era::{Eras, MISSING_CAPABILITY, Skills};
pub(crate) use error::{RpcError, UpstreamError};
#[cfg(test)]
pub(crate) use events::Health;
pub(crate) use http::carry::{Answer, Carried, Content, Events, Outbound, repeated};
pub(crate) use http::sse::Event;
pub(crate) use leg::{Leg, Responses, Start, Then, Wanted};
pub(crate) use message::answer as own_answer;
pub(crate) use news::{LogMessage, News};
pub(crate) use open_exchange::OpenExchange;
pub(crate) use others::Others;
pub(crate) use participation::{ClientCapabilities, InvalidParticipation, Participation, TASKS};
pub(crate) use result::{CallResult, check_complete, meta_for_client, other_members};
pub(crate) use server_task::{ServerTask, Standing, Step};
pub(crate) use settings::{Program, Transport};
pub(crate) use subscriptions::Ear;
pub(crate) use upstream::Upstream;

#[cfg(test)]
pub(crate) mod tests;
