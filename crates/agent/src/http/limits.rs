//! Limits of requests to an agent that listens on an address of its own.

use serde::{Deserialize, Serialize};
use wardgate_edge::{BodyLimits, ConnectionLimits, ListenerLimits};

/// Limits of requests and connections.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpLimits {
    /// Maximum size of a body, in bytes.
    pub body_bytes: usize,
    /// Timeout for receiving the header of a request, in seconds.
    pub header_seconds: u64,
    /// Timeout for receiving the body of a request, in seconds.
    pub body_seconds: u64,
    /// Maximum number of open connections. Further connections are refused, except those of probes.
    pub connections: usize,
    /// Limits on the lifetime of a connection and on the share of one client.
    pub listener: ListenerLimits,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            header_seconds: 10,
            body_seconds: 30,
            connections: 4_096,
            listener: ListenerLimits::default(),
        }
    }
}

impl HttpLimits {
    /// Returns the limits of a body.
    pub fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }

    /// Returns the limits of connections.
    pub fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }
}
