//! Links between services: function calls within one process, gRPC between processes.
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
//! The methods on the path of every tool call are called as functions within one process. The other methods use the generated
//! server there too, but without a socket and HTTP/2.
//!
//! The crate gives a service the same environment whether it is called within the process or over the network, and gives callers
//! the same client in both cases. [`client`] wraps the generated clients in the types of `wardgate-domain`, so that no service
//! depends on the wire types of another.

pub mod client;
pub mod link;
pub mod operator;
pub mod probes;
pub mod routes;
pub mod server;

mod access;
mod aging;
mod appends;
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
mod streamed_calls;

pub use appends::serve_appends;
pub use latency::LatencyLimit;
pub use link::{Link, LinkedService, ServiceLink};
pub use methods::{METHODS, Method, ResponseKind, RetryPolicy};
pub use peer::Peer;
pub use readiness::{Readiness, Service};
pub use shutdown::{Drain, Shutdown};
pub use status::{ServiceError, code_name, code_of, invalid, reason_of, status};
