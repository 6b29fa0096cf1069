//! A cache of tool lists per caller (MCP 2026-07-28, "Caching"). A list is valid until the caller's stream reports a change, or,
//! if no stream is open, for as long as the gateway allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wardgate_domain::Digest;
use wardgate_edge::EdgeClient;

use super::list::ToolList;
use super::streams::{ChangeStreams, StreamPosition};
use crate::request::BearerToken;

/// Maximum number of cached lists.
const MAX_LISTS: usize = 1_000;

/// Maximum age of a cached list in every case, because rights can also expire at a given time, which no stream reports.
const MAX_AGE: Duration = Duration::from_mins(5);

/// The caller and the toolset of a list. The caller is the digest of the token, or `None` for a list that is the same for all
/// callers.
type ToolCacheKey = (Option<Digest>, Option<String>);

/// A tool list with the data that determines its validity.
struct CachedToolList {
    list: Arc<ToolList>,
    until: Instant,
    /// The position of the caller's stream before the list was fetched.
    position: Option<StreamPosition>,
}

/// The cached lists and the streams that report changes to them.
#[derive(Default)]
pub(super) struct ToolCache {
    lists: Mutex<HashMap<ToolCacheKey, CachedToolList>>,
    streams: ChangeStreams,
}

/// A lookup of a list, created before the list is fetched.
pub(super) struct ToolListLookup<'a> {
    token: &'a BearerToken,
    toolset: Option<&'a str>,
    caller: Digest,
    position: Option<StreamPosition>,
}

impl ToolCache {
    /// Starts a lookup, which captures the position of the caller's stream before the gateway is asked.
    pub(super) fn lookup<'a>(
        &self,
        token: &'a BearerToken,
        toolset: Option<&'a str>,
    ) -> ToolListLookup<'a> {
        let caller = Digest::compute(token.as_str().as_bytes());
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

    /// Stores a list and, unless it is public, starts to follow the changes of its caller's list.
    pub(super) fn insert(
        &self,
        edge: &EdgeClient,
        lookup: &ToolListLookup<'_>,
        list: &Arc<ToolList>,
    ) {
        if list.ttl.is_zero() {
            return;
        }
        // A public list belongs to no caller, so no stream reports its changes.
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
            // All cached lists are still valid. Fetching this list again later is only slower.
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
