//! Lists of tools, kept for each caller (MCP 2026-07-28, "Caching"): until a change is heard of where the caller's
//! stream is open, else as long as the gateway allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wardgate_domain::Digest;
use wardgate_edge::EdgeClient;

use super::list::ToolList;
use super::streams::{ChangeStreams, StreamPosition};
use crate::request::BearerToken;

/// Lists that are kept at once.
const MAX_LISTS: usize = 1_000;

/// However long the gateway allows, and whatever is heard: rights can also end by the clock, of which no stream tells.
const MAX_AGE: Duration = Duration::from_mins(5);

/// Whose list, and of which toolset. A token is known by its digest; none: everybody's.
type ToolCacheKey = (Option<Digest>, Option<String>);

/// A list of tools, with what decides how long it is valid.
struct CachedToolList {
    list: Arc<ToolList>,
    until: Instant,
    /// The position of the caller's stream before the list was fetched.
    position: Option<StreamPosition>,
}

/// The cached lists, and the streams that report changes to them.
#[derive(Default)]
pub(super) struct ToolCache {
    lists: Mutex<HashMap<ToolCacheKey, CachedToolList>>,
    streams: ChangeStreams,
}

/// A lookup of a list, made before the list is fetched.
pub(super) struct ToolListLookup<'a> {
    token: &'a BearerToken,
    toolset: Option<&'a str>,
    caller: Digest,
    position: Option<StreamPosition>,
}

impl ToolCache {
    /// Begins a lookup, with the position of the caller's stream as it is before the gateway is asked.
    pub(super) fn lookup<'a>(
        &self,
        token: &'a BearerToken,
        toolset: Option<&'a str>,
    ) -> ToolListLookup<'a> {
        let caller = Digest::of(token.as_str().as_bytes());
        self.streams.note_activity(&caller);
        ToolListLookup {
            token,
            toolset,
            caller,
            position: self.streams.position(&caller),
        }
    }

    pub(super) fn get(&self, lookup: &ToolListLookup<'_>) -> Option<Arc<ToolList>> {
        let lists = self.lists();
        let now = Instant::now();
        [Some(lookup.caller), None].into_iter().find_map(|caller| {
            let key = (caller, lookup.toolset.map(str::to_owned));
            let cached = lists.get(&key)?;
            self.is_good(&key, cached, now)
                .then(|| Arc::clone(&cached.list))
        })
    }

    /// Keeps a list, and follows its caller's from now on.
    pub(super) fn put(&self, edge: &EdgeClient, lookup: &ToolListLookup<'_>, list: &Arc<ToolList>) {
        if list.ttl.is_zero() {
            return;
        }
        // Everybody's list has no stream of its own.
        let (caller, position) = if list.is_public {
            (None, None)
        } else {
            self.streams.follow(lookup.caller, edge, lookup.token);
            (Some(lookup.caller), lookup.position)
        };
        let now = Instant::now();
        let age = match position {
            Some(_) => MAX_AGE,
            None => list.ttl.min(MAX_AGE),
        };
        let mut lists = self.lists();
        if lists.len() >= MAX_LISTS {
            lists.retain(|key, cached| self.is_good(key, cached, now));
        }
        if lists.len() >= MAX_LISTS {
            // All of them are in use; to ask again is only slower.
            return;
        }
        lists.insert(
            (caller, lookup.toolset.map(str::to_owned)),
            CachedToolList {
                list: Arc::clone(list),
                until: now + age,
                position,
            },
        );
    }

    fn is_good(&self, (caller, _): &ToolCacheKey, cached: &CachedToolList, now: Instant) -> bool {
        let position = caller.and_then(|caller| self.streams.position(&caller));
        now < cached.until && cached.position == position
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<ToolCacheKey, CachedToolList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
