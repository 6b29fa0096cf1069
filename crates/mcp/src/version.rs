//! The versions of the protocol, and what each of them has.

use std::fmt;
use std::str::FromStr;

/// A revision of the protocol. Older compares as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05, with the transport of HTTP and server-sent events.
    V2024_11_05,
    /// 2025-03-26, the first with Streamable HTTP.
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25, the last with an `initialize` handshake.
    V2025_11_25,
    /// 2026-07-28, where every request stands by itself.
    V2026_07_28,
}

/// How requests say which version and capabilities they come with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// From 2026-07-28: each request says all of itself.
    Modern,
    /// Up to 2025-11-25: one `initialize` speaks for the whole connection.
    Legacy,
}

impl Era {
    /// The newest version of the era.
    pub const fn newest_version(self) -> Version {
        match self {
            Self::Modern => Version::V2026_07_28,
            Self::Legacy => Version::NEWEST_LEGACY,
        }
    }
}

impl Version {
    /// Every version of Streamable HTTP, newest first. 2024-11-05 has a transport of its own.
    pub const ALL: [Self; 4] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
    ];

    /// Every version, oldest first.
    pub const EVERY: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The newest with an `initialize` handshake.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;

    /// As messages and headers name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Every request carries its own version and capabilities; there is no handshake.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// Results may carry `structuredContent`, tools `outputSchema` (from 2025-06-18).
    pub fn has_structured_content(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Contents may be links to resources (from 2025-06-18).
    pub fn has_resource_links(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// What has a name may have a `title`, and what is defined a `_meta` (from 2025-06-18).
    pub fn has_titles(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// What has a name may have `icons` (from 2025-11-25).
    pub fn has_icons(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// There may be several messages in one: the base protocol allows it, and 2025-06-18 removed it.
    pub fn has_batches(self) -> bool {
        self < Self::V2025_06_18
    }

    /// Tools have annotations (from 2025-03-26).
    pub fn has_tool_annotations(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Contents may be audio, and servers say that they complete (from 2025-03-26).
    pub fn has_audio(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Progress may say in words how far it is (from 2025-03-26).
    pub fn has_progress_messages(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Clients can be asked to fill in forms (from 2025-06-18).
    pub fn has_elicitation(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Clients can be asked to visit a page, and forms have every kind of choice (from 2025-11-25).
    pub fn has_url_elicitation(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// A model that is asked may have tools (from 2025-11-25).
    pub fn has_sampling_tools(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// A stream begins with an id to come back with, so that it can be resumed before it said anything
    /// (from 2025-11-25; clients before that take no event without a message).
    pub fn primes_streams(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// A client that hangs up cancels its request (from 2026-07-28; before, only
    /// `notifications/cancelled` does).
    pub fn cancels_on_disconnect(self) -> bool {
        self.is_modern()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no version of Streamable HTTP.
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
