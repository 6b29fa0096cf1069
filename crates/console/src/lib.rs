//! The web pages: what a person may use, one call of it, a chat, and the record for whom the policy lets read it.
//!
//! ```text
//!  browser ─▶ http: host, origin, own page ─▶ session: cookie → token → Caller ─▶ pages
//!                                                                                       │ with the person's token
//!        tools · playground ─▶ mcp ─▶ gateway /mcp         chat ─▶ agent /api/chat ◀────┤
//!        record ─▶ policy: may they? ─▶ audit: read, and put the look on record ◀───────┘
//! ```
//!
//! One job: to show. It holds no privilege over tools: they are reached through the gateway with the person's own token,
//! as by any other client. The record it may read itself, and asks the policy for every look who may see it. Whatever
//! came from tools, models, people or the record is text, never markup.

mod approvals;
mod assets;
mod chat;
mod config;
mod console;
mod cookies;
mod fields;
mod form;
mod http;
mod invisible_marks;
mod layout;
mod mcp;
mod output;
mod page_request;
mod page_slots;
mod playground;
mod problem;
mod problem_page;
mod profile;
mod provider_pages;
mod provider_sign_in;
mod record;
mod record_access;
mod record_pages;
mod request_session;
mod response_headers;
mod results;
mod routes;
mod session;
mod session_renewal;
mod sign_in;
mod store;
mod stored_session;
mod tools;

#[cfg(test)]
mod tests;

pub use config::{HttpLimits, SignInConfig, SignInConfigError, UsedToken};
pub use console::{Console, Links};
pub use provider_sign_in::ProviderSignIn;
pub use record::RecordLinks;
pub use routes::listed_routes;
pub use session::CookieKey;
pub use store::{ConsoleStore, LAYOUT, StoreError};
