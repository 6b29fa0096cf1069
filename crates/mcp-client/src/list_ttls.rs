//! The TTLs of a server's lists (MCP 2026-07-28, `ttlMs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wardgate_domain::OfferKind;

/// The last known TTLs of the lists of one server, by the list method.
#[derive(Debug, Default)]
pub(super) struct ListTtls(Mutex<BTreeMap<&'static str, Duration>>);

impl ListTtls {
    /// Sets the TTL of the list of `method`, or removes it if the server specifies none.
    pub(super) fn set(&self, method: &'static str, ttl: Option<Duration>) {
        let mut ttls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ttl {
            Some(ttl) => ttls.insert(method, ttl),
            None => ttls.remove(method),
        };
    }

    /// Returns the shortest TTL of the lists of `kind`, or `None` if the server specified none.
    pub(super) fn find_shortest(&self, kind: OfferKind) -> Option<Duration> {
        let methods: &[&str] = match kind {
            OfferKind::Tool => &["tools/list"],
            OfferKind::Prompts => &["prompts/list"],
            OfferKind::Resources => &["resources/list", "resources/templates/list", "skills/list"],
            OfferKind::Connect => &[],
        };
        let ttls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = methods.iter().filter_map(|method| ttls.get(method));
        known.min().copied()
    }
}

/// Returns the shorter TTL of two pages.
pub(super) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
