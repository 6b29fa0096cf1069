//! Protocol versions, and the features that each of them has.

use std::fmt;
use std::str::FromStr;

/// A protocol version. An older version compares as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05, with the HTTP+SSE transport.
    V2024_11_05,
    /// 2025-03-26, the first with Streamable HTTP.
    V2025_03_26,
    /// 2025-06-18, the first with structured content and elicitation.
    V2025_06_18,
    /// 2025-11-25, the last with an `initialize` handshake.
    V2025_11_25,
    /// 2026-07-28, where each request is self-contained.
    V2026_07_28,
}

/// The way in which requests convey their version and capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// From 2026-07-28 on: each request carries them.
    Modern,
    /// Up to 2025-11-25: the `initialize` handshake negotiates them for the whole connection.
    Legacy,
}

impl Era {
    /// Returns the newest version of the era.
    pub const fn newest_version(self) -> Version {
        match self {
            Self::Modern => Version::V2026_07_28,
            Self::Legacy => Version::NEWEST_LEGACY,
        }
    }
}

impl Version {
    /// The versions of the Streamable HTTP transport, newest first. 2024-11-05 has another transport.
    pub const ALL: [Self; 4] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
    ];

    /// All versions, oldest first.
    pub const EVERY: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The newest version with an `initialize` handshake.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;

    /// Returns the version as in messages and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns whether each request carries its own version and capabilities, without a handshake (from 2026-07-28).
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// Returns whether results may have `structuredContent` and tools `outputSchema` (from 2025-06-18).
    pub fn has_structured_content(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns whether content may be a link to a resource (from 2025-06-18).
    pub fn has_resource_links(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns whether definitions may have a `title` and `_meta` (from 2025-06-18).
    pub fn has_titles(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns whether definitions may have `icons` (from 2025-11-25).
    pub fn has_icons(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Returns whether one body may contain several messages (before 2025-06-18, which removed the batches of JSON-RPC).
    pub fn has_batches(self) -> bool {
        self < Self::V2025_06_18
    }

    /// Returns whether tools may have annotations (from 2025-03-26).
    pub fn has_tool_annotations(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Returns whether content may be audio, and servers declare the capability `completions` (from 2025-03-26).
    pub fn has_audio(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Returns whether progress notifications may have a message (from 2025-03-26).
    pub fn has_progress_messages(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Returns whether servers may ask clients to fill in forms (from 2025-06-18).
    pub fn has_elicitation(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns whether servers may ask clients to open a URL, and forms may have all kinds of choices (from 2025-11-25).
    pub fn has_url_elicitation(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Returns whether sampling requests may contain tools (from 2025-11-25).
    pub fn has_sampling_tools(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Returns whether a stream begins with an event that has only an id, so that the stream can be resumed before its first
    /// message (from 2025-11-25; older clients do not accept an event without a message).
    pub fn primes_streams(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Returns whether a client cancels its request by closing the connection (from 2026-07-28; before, only by
    /// `notifications/cancelled`).
    pub fn cancels_on_disconnect(self) -> bool {
        self.is_modern()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not a version of Streamable HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseVersionError;

impl FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or(ParseVersionError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_date_and_that_of_the_first_transport_is_not_named_over_http() {
        for version in Version::ALL {
            assert_eq!(version.as_str().parse(), Ok(version));
        }
        for other in ["2024-11-05", "2026-07-28 ", "", "2099-01-01"] {
            assert_eq!(other.parse::<Version>(), Err(ParseVersionError), "{other}");
        }
        assert!(Version::EVERY.is_sorted());
    }
}
