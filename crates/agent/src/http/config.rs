//! Settings of the endpoints on an address of their own.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use wardgate_edge::{AuthConfig, BodyLimits, ConnectionLimits};

/// How an agent that runs by itself listens, and whom it lets in. Beside a gateway in one process the gateway's
/// settings hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Address and port of every path.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How clients reach it, for example `https://chat.hospital.example`; its host may be named.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Hosts clients may name, without port, besides loopback and the public URL's.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, besides those on an allowed host.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// What one request may cost.
    #[serde(default)]
    pub limits: HttpLimits,
    /// Whose tokens are accepted; the same issuers as the gateway's, which sees the same tokens.
    pub auth: AuthConfig,
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8081).into()
}

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
    /// Open connections; further ones wait.
    pub connections: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            header_seconds: 10,
            body_seconds: 30,
            connections: 4_096,
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
        }
    }
}
