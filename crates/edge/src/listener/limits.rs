//! What connections may cost.

use std::num::NonZeroUsize;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// What the connections of a listener may cost.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Open connections.
    pub connections: usize,
    /// Seconds to send the header of a request.
    pub header_seconds: u64,
    /// How long one connection lasts, and what one client may take.
    pub listener: ListenerLimits,
}

/// How long one connection lasts, and what one client may take of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerLimits {
    /// Seconds that a connection stays open without a request in flight. HTTP/1 connections wait for their next
    /// request no longer than for a header, if that is less.
    pub idle_seconds: u64,
    /// Seconds after which a connection ends once its requests are answered; an HTTP/2 client gets GOAWAY.
    pub age_seconds: u64,
    /// Open connections of one client address (of one /64 network in IPv6). None: a quarter of `connections`.
    pub connections_per_address: Option<NonZeroUsize>,
    /// HTTP/2 control frames that one connection may send in a second, besides those that its requests and the
    /// answers to them account for; all connections of one client address without a known caller may send eight times as
    /// many. Header blocks count by their size.
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
    /// The same, with no more connections than half of the files that this process may have open: what the calls need
    /// is files too.
    pub(super) fn within_open_files(self) -> Self {
        let Ok((open_files, _)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return self;
        };
        let most = usize::try_from(open_files / 2).unwrap_or(usize::MAX).max(1);
        if self.connections > most {
            tracing::warn!(
                connections = self.connections,
                open_files,
                "only {most} connections are taken: this process may have {open_files} files open; raise the limit (`ulimit -n`)"
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
