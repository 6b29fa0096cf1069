//! Severity levels of log messages (RFC 5424, with the names of MCP).

/// The names of the levels, the least severe first.
const NAMES: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// A severity level. A more severe level compares as greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(usize);

impl LogLevel {
    /// Returns the level with this MCP name.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|level| *level == name).map(Self)
    }

    /// Returns the MCP name of the level.
    pub fn as_str(self) -> &'static str {
        NAMES[self.0]
    }
}
