//! The parts of the platform, as certificates name them.

use std::str::FromStr;

/// A part of the platform, by the name in its certificate (a DNS subject alternative name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The HTTP edge.
    Gateway,
    /// The policy service.
    Policy,
    /// The tool-runner.
    ToolRunner,
    /// The audit service.
    Audit,
    /// The conversations.
    Memory,
    /// The web pages.
    Console,
    /// A person at the command line.
    Operator,
}

impl Peer {
    /// Every peer.
    pub const ALL: [Self; 7] = [
        Self::Gateway,
        Self::Policy,
        Self::ToolRunner,
        Self::Audit,
        Self::Memory,
        Self::Console,
        Self::Operator,
    ];

    /// The name in certificates.
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
