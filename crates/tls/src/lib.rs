//! Certificates and keys that follow their files.
//!
//! ```text
//!  ca.pem · cert.pem · key.pem ──every second──▶ Identity ──build──▶ LiveConfig::current ──▶ the next handshake
//!                                                  │ faulty: the earlier one stays, a log line, a counter
//!                                                  └ gauges: when the certificate in use was issued, when it ends
//! ```
//!
//! One job: whoever opens or takes a TLS connection gets the configuration of the newest usable files, in gRPC and in
//! HTTP alike, and operators learn when it ends. Nothing here opens a socket.

mod identity;
mod live;

pub use identity::{Error, Files, Identity};
pub use live::{EndOfTls, LiveConfig};
