//! The components of the platform, as named in certificates.

use std::str::FromStr;

/// A component of the platform, identified by the name in its certificate (a DNS subject alternative name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The gateway, which serves HTTP.
    Gateway,
    /// The policy service.
    Policy,
    /// The tool-runner.
    ToolRunner,
    /// The audit service.
    Audit,
    /// The memory service, which stores conversations.
    Memory,
    /// The console, which serves web pages.
    Console,
    /// An operator at the command line.
    Operator,
}

impl Peer {
    /// All peers.
    pub const ALL: [Self; 7] = [
        Self::Gateway,
        Self::Policy,
        Self::ToolRunner,
        Self::Audit,
        Self::Memory,
        Self::Console,
        Self::Operator,
    ];

    /// Returns the name in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Policy => "policy",
            Self::ToolRunner => "tool-runner",
            Self::Audit => "audit",
            Self::Memory => "memory",
            Self::Console => "console",
            Self::Operator => "operator",
        }
    }
}

impl FromStr for Peer {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|peer| peer.as_str() == name)
            .ok_or(())
    }
}
