//! The common parts of all HTTP edges: listener, admission of requests, and authentication of callers.
//!
//! ```text
//!            socket                                       one request
//!  client ──▶ listener ──▶ router of the service ──▶ origins ──▶ auth ──▶ body ──▶ the service's own work
//!             connections,                           host and    token    bounded in
//!             headers, a graceful end                origin    → Caller   size and time
//! ```
//!
//! These checks do not depend on what a request asks for, so they are the same for every service. Each service calls
//! them itself, in this order, and formats refusals in the way that its clients expect.

mod admission;
mod auth;
mod body;
mod browser_page;
mod cors;
mod edge_client;
mod error;
mod gateway_request;
mod listener;
mod origins;

pub use admission::Admission;
pub use auth::{
    ApiKeyConfig, ApiKeyEntry, ApiKeyFile, AuthConfig, Authenticator, CallerLookup,
    IntrospectionConfig, IssuerConfig, JwksSource, RevocationWatch, RightsSource, Scopes,
    TokenRefusal, TokenType, VerifiedCaller, attribute_value, generate_api_key, is_name,
};
pub use body::{BodyLimits, BodyRefusal, drain, is_json, read_body};
pub use browser_page::{browser_page, escape_html, find_cookie, leave_page, redirect_browser};
pub use cors::Grants;
pub use edge_client::{EdgeClient, EdgeClientError, UnusableUrl, replica_client};
pub use error::{ApiKeyError, Error};
pub use gateway_request::{GatewayCaller, GatewayRequest, GatewayResponse};
pub use listener::{
    BoundListener, ConnectionLimits, ForwardingHeader, HttpsFiles, ListenerLimits, TrustedProxies,
};
pub use origins::Origins;
pub use wardgate_rpc::routes;
