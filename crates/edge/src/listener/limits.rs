//! The limits of connections.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum time to send the header of a request, in seconds.
    pub header_seconds: u64,
    /// The limits of the lifetime of a connection, and of the share of one client.
    pub listener: ListenerLimits,
}

/// The limits of the lifetime of a connection, and of the share of one client in a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerLimits {
    /// Maximum time that a connection stays open without a request in flight, in seconds. An HTTP/1 connection waits
    /// for its next request no longer than `header_seconds`, if that is less.
    pub idle_seconds: u64,
    /// Maximum age of a connection, in seconds. It then ends once its requests are answered; an HTTP/2 client gets
    /// GOAWAY.
    pub age_seconds: u64,
    /// Maximum number of open connections per client address (per /64 network for IPv6). If missing, a quarter of
    /// `connections`.
    pub connections_per_address: Option<NonZeroUsize>,
    /// Maximum number of HTTP/2 control frames per second on one connection, in addition to those that its requests and
    /// their responses account for. All connections of one client address without a known caller may together send
    /// eight times as many. Header blocks count by their size.
    pub control_frames: u32,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            idle_seconds: 30,
            age_seconds: 3_600,
            connections_per_address: None,
            control_frames: 1_000,
        }
    }
}

impl ConnectionLimits {
    /// Returns the same limits, with at most half as many connections as this process may have open files, because
    /// calls need files as well.
    pub(super) fn within_open_files(self) -> Self {
        let Some(open_files) = max_open_files() else {
            return self;
        };
        let most = usize::try_from(open_files / 2).unwrap_or(usize::MAX).max(1);
        if self.connections > most {
            tracing::warn!(
                connections = self.connections,
                open_files,
                "the number of connections is limited to {most}: this process may have {open_files} files open; raise the limit (`ulimit \
                 -n`)"
            );
        }
        Self {
            connections: self.connections.min(most),
            ..self
        }
    }

    pub(super) fn header(&self) -> Duration {
        Duration::from_secs(self.header_seconds)
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_secs(self.listener.idle_seconds.max(1))
    }

    pub(super) fn age(&self) -> Duration {
        Duration::from_secs(self.listener.age_seconds.max(1))
    }

    pub(super) fn per_address(&self) -> usize {
        let own = self.listener.connections_per_address;
        own.map_or(self.connections / 4, NonZeroUsize::get).max(1)
    }
}

/// Returns how many files this process may have open, or `None` if there is no such limit.
#[cfg(unix)]
fn max_open_files() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let (open_files, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(open_files)
}

#[cfg(not(unix))]
fn max_open_files() -> Option<u64> {
    None
}
