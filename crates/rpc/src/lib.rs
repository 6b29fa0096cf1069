//! One service, two ways to reach it: by function calls in one process, by gRPC between processes.
//!
//! ```text
//!                       ┌──────────── local ─────────────┐
//!  link::local ────────▶│ access · span · measure ·      │──▶ service (a trait of `client`)
//!                       │ deadline · catch panic         │        ▲
//!                       ├──────────── stack ─────────────┤        │
//!  link::connect ─mTLS─▶│ the same, and count · limit    │──▶ generated server
//!  operator ───socket──▶└────────────────────────────────┘
//! ```
//!
//! The methods on the path of every call are functions in one process; the others go through the generated server there
//! too, without socket and HTTP/2.
//!
//! One job: give a service the same surroundings whether it is called inside the process or over the
//! network, and give its callers the same client either way. [`client`] wraps the generated clients in
//! the types of `wardgate-domain`, so no service sees another's wire types.

pub mod client;
pub mod link;
pub mod operator;
pub mod probes;
pub mod routes;
pub mod server;

mod access;
mod aging;
mod call_error;
mod deadline;
mod health;
mod in_flight;
mod latency;
mod local;
mod methods;
mod peer;
mod readiness;
mod red;
mod shutdown;
mod stack;
mod status;

pub use latency::LatencyLimit;
pub use link::{Link, LinkedService, ServiceLink};
pub use methods::{METHODS, Method, ResponseKind, RetryPolicy};
pub use peer::Peer;
pub use readiness::{Readiness, Service};
pub use shutdown::{Drain, Shutdown};
pub use status::{ServiceError, code_name, code_of, invalid, reason_of, status};
