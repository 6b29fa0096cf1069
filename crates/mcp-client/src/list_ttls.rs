//! How long a server lets its lists be kept, as it last said (MCP 2026-07-28, `ttlMs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wardgate_domain::OfferKind;

/// How long the lists of one server may be kept, by the method that lists.
#[derive(Debug, Default)]
pub(super) struct ListTtls(Mutex<BTreeMap<&'static str, Duration>>);

impl ListTtls {
    /// What was said of the list of `method`, if anything was.
    pub(super) fn set(&self, method: &'static str, ttl: Option<Duration>) {
        let mut ttls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ttl {
            Some(ttl) => ttls.insert(method, ttl),
            None => ttls.remove(method),
        };
    }

    /// The shortest of the lists of `kind`; none where nothing was said.
    pub(super) fn of(&self, kind: OfferKind) -> Option<Duration> {
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

/// The shorter of what two pages say.
pub(super) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
