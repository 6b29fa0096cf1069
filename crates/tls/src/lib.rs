//! TLS configurations that are reloaded when their certificate files change.
//!
//! ```text
//!  ca.pem · cert.pem · key.pem ──every second──▶ Identity ──build──▶ LiveConfig::current ──▶ the next handshake
//!                                                  │ invalid: the previous one stays, a log line, a counter
//!                                                  └ gauges: the validity period of the certificate in use
//! ```
//!
//! New TLS connections, both gRPC and HTTP, use the configuration of the newest valid files, and operators can monitor
//! when the certificate expires. This crate opens no sockets.

mod identity;
mod live;

pub use identity::{Error, Files, Identity};
pub use live::{EndOfTls, LiveConfig};
