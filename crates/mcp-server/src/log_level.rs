//! How grave a log message is (RFC 5424, as MCP spells it).

/// Least grave first.
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

/// A level. The graver compares as more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(usize);

impl LogLevel {
    /// The level of this MCP name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().position(|level| *level == name).map(Self)
    }

    /// The MCP name.
    pub fn as_str(self) -> &'static str {
        NAMES[self.0]
    }
}
