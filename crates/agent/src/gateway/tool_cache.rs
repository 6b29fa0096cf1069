//! Lists of tools, kept for each caller as long as the gateway allows (MCP 2026-07-28, "Caching").

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wardgate_domain::Digest;

use super::list::ToolList;
use crate::request::BearerToken;

/// Lists that are kept at once.
const MAX_LISTS: usize = 1_000;

/// However long the gateway allows: rights change.
const MAX_AGE: Duration = Duration::from_mins(5);

/// Whose list, and of which toolset. A token is known by its digest; none: everybody's.
type Key = (Option<Digest>, Option<String>);

struct Kept {
    list: Arc<ToolList>,
    until: Instant,
}

#[derive(Default)]
pub(super) struct ToolCache(Mutex<HashMap<Key, Kept>>);

impl ToolCache {
    pub(super) fn get(&self, token: &BearerToken, toolset: Option<&str>) -> Option<Arc<ToolList>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        [Some(digest(token)), None].into_iter().find_map(|whose| {
            let kept = kept.get(&(whose, toolset.map(str::to_owned)))?;
            (now < kept.until).then(|| Arc::clone(&kept.list))
        })
    }

    pub(super) fn put(&self, token: &BearerToken, toolset: Option<&str>, list: &Arc<ToolList>) {
        if list.ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        let whose = (!list.is_public).then(|| digest(token));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_LISTS {
            kept.retain(|_, kept| now < kept.until);
        }
        if kept.len() >= MAX_LISTS {
            // All of them are in use; to ask again is only slower.
            return;
        }
        kept.insert(
            (whose, toolset.map(str::to_owned)),
            Kept {
                list: Arc::clone(list),
                until: now + list.ttl.min(MAX_AGE),
            },
        );
    }
}

fn digest(token: &BearerToken) -> Digest {
    Digest::of(token.as_str().as_bytes())
}
