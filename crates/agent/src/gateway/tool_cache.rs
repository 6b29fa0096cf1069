//! Lists of tools, kept for each caller (MCP 2026-07-28, "Caching"): until a change is heard of where the caller's
//! stream is open, else as long as the gateway allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wardgate_domain::Digest;
use wardgate_edge::Door;

use super::list::ToolList;
use super::streams::{Mark, Streams};
use crate::request::BearerToken;

/// Lists that are kept at once.
const MAX_LISTS: usize = 1_000;

/// However long the gateway allows, and whatever is heard: rights can also end by the clock, of which no stream tells.
const MAX_AGE: Duration = Duration::from_mins(5);

/// Whose list, and of which toolset. A token is known by its digest; none: everybody's.
type Key = (Option<Digest>, Option<String>);

struct Kept {
    list: Arc<ToolList>,
    until: Instant,
    /// Where the caller's stream stood before the list was asked for.
    mark: Option<Mark>,
}

#[derive(Default)]
pub(super) struct ToolCache {
    lists: Mutex<HashMap<Key, Kept>>,
    streams: Streams,
}

/// A list that is going to be asked for.
pub(super) struct Asking<'a> {
    token: &'a BearerToken,
    toolset: Option<&'a str>,
    caller: Digest,
    mark: Option<Mark>,
}

impl ToolCache {
    /// Who asks, and what was heard so far: to be taken before the gateway is asked.
    pub(super) fn asking<'a>(
        &self,
        token: &'a BearerToken,
        toolset: Option<&'a str>,
    ) -> Asking<'a> {
        let caller = Digest::of(token.as_str().as_bytes());
        self.streams.talks(&caller);
        Asking {
            token,
            toolset,
            caller,
            mark: self.streams.mark(&caller),
        }
    }

    pub(super) fn get(&self, asking: &Asking<'_>) -> Option<Arc<ToolList>> {
        let lists = self.lists();
        let now = Instant::now();
        [Some(asking.caller), None].into_iter().find_map(|whose| {
            let key = (whose, asking.toolset.map(str::to_owned));
            let kept = lists.get(&key)?;
            self.is_good(&key, kept, now)
                .then(|| Arc::clone(&kept.list))
        })
    }

    /// Keeps a list, and follows its caller's from now on.
    pub(super) fn put(&self, door: &Door, asking: &Asking<'_>, list: &Arc<ToolList>) {
        if list.ttl.is_zero() {
            return;
        }
        // Everybody's list has no stream of its own.
        let (whose, mark) = if list.is_public {
            (None, None)
        } else {
            self.streams.follow(asking.caller, door, asking.token);
            (Some(asking.caller), asking.mark)
        };
        let now = Instant::now();
        let age = match mark {
            Some(_) => MAX_AGE,
            None => list.ttl.min(MAX_AGE),
        };
        let mut lists = self.lists();
        if lists.len() >= MAX_LISTS {
            lists.retain(|key, kept| self.is_good(key, kept, now));
        }
        if lists.len() >= MAX_LISTS {
            // All of them are in use; to ask again is only slower.
            return;
        }
        lists.insert(
            (whose, asking.toolset.map(str::to_owned)),
            Kept {
                list: Arc::clone(list),
                until: now + age,
                mark,
            },
        );
    }

    fn is_good(&self, (whose, _): &Key, kept: &Kept, now: Instant) -> bool {
        let mark = whose.and_then(|caller| self.streams.mark(&caller));
        now < kept.until && kept.mark == mark
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<Key, Kept>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
