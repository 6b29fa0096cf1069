//! What one request may cost where the agent has an address of its own.

use serde::{Deserialize, Serialize};
use wardgate_edge::{BodyLimits, ConnectionLimits, ListenerLimits};

/// What one request may cost.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpLimits {
    /// Largest body, bytes.
    pub body_bytes: usize,
    /// Seconds to send the header of a request.
    pub header_seconds: u64,
    /// Seconds to send the body of a request.
    pub body_seconds: u64,
    /// Open connections; further ones are refused, but for probes.
    pub connections: usize,
    /// How long one connection lasts, and what one client may take.
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
    /// Those of a body.
    pub fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }

    /// Those of connections.
    pub fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }
}
