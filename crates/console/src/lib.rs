//! The web console: lists a person's tools and calls them, offers a chat and approvals, and shows the audit record to
//! people whom the policy lets read it.
//!
//! ```text
//!  browser ─▶ http: host, origin, own page ─▶ session: cookie → token → Caller ─▶ pages
//!                                                                                       │ with the person's token
//!        tools · playground ─▶ mcp ─▶ gateway /mcp         chat ─▶ agent /api/chat ◀────┤
//!        record ─▶ policy: may they? ─▶ audit: read, and record the access ◀────────────┘
//! ```
//!
//! The console only presents. It has no privileges over tools: it reaches them through the gateway with the person's
//! own token, like any other client. It can read the record itself, and asks the policy service for each access who may
//! see it. Everything that came from tools, models, people or the record is rendered as text, never as markup.

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
