//! What every HTTP edge shares: the listener, where requests come from, who makes them.
//!
//! ```text
//!            socket                                       one request
//!  client ──▶ listener ──▶ router of the service ──▶ origins ──▶ auth ──▶ body ──▶ the service's own work
//!             connections,                           host and    token    bounded in
//!             headers, a graceful end                origin    → Caller   size and time
//! ```
//!
//! One job: what is wrong with a request whatever it asks for is found here, in the same way for every service.
//! Each service asks for these steps itself, in this order, and words the refusals as its own clients expect.

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
pub use body::{BodyLimits, BodyRefusal, drain, is_json, read};
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
