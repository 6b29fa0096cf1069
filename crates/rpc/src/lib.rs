//! gRPC between services: one service, two doors.
//!
//! ```text
//!                       ┌──────────── stack ─────────────┐
//!  link::local ────────▶│ access · count · span ·        │──▶ generated server
//!  link::connect ─mTLS─▶│ measure · deadline · limit ·   │
//!                       │ catch panic                    │
//!  operator ───socket──▶└────────────────────────────────┘
//! ```
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
mod deadline;
mod health;
mod in_flight;
mod latency;
mod methods;
mod peer;
mod readiness;
mod red;
mod shutdown;
mod stack;
mod status;

pub use latency::LatencyLimit;
pub use link::{Link, LinkedService};
pub use methods::{METHODS, Method, ResponseKind, RetryPolicy};
pub use peer::Peer;
pub use readiness::{Readiness, Service};
pub use shutdown::{Drain, Shutdown};
pub use status::{ServiceError, code_name, code_of, invalid, reason_of, status};
