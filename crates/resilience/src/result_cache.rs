//! A cache of the results of read-only tools that enable it. Concurrent identical calls run only once.
//!
//! ```text
//!   get_or_run ─▶ fresh? ───────────────▶ the cached result
//!                 └ no ─▶ running? ─────▶ wait ─▶ its result
//!                         │               ├ its caller left: the next one runs
//!                         │               └ it failed: each caller runs its own call, as without a cache
//!                         └ no ─▶ run ──▶ cache, unless it failed
//! ```

use std::time::Duration;

use metrics::counter;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_telemetry::names;

/// Expected number of entries, which determines the number of shards. It is small, so that each shard has room for
/// large results.
const EXPECTED_ENTRIES: usize = 128;

/// Size of an entry in addition to its result, in bytes.
const ENTRY_BYTES: usize = 128;

/// A cache of results by a digest of everything they depend on.
pub struct ResultCache<T> {
    entries: Cache<Digest, CacheEntry<T>, EntryWeigher<T>>,
    ambient: Ambient,
}

#[derive(Clone)]
enum CacheEntry<T> {
    Result {
        value: T,
        stored_at: Timestamp,
    },
    /// The call failed. This entry only notifies the callers that wait for the result.
    Failed,
}

impl<T> CacheEntry<T> {
    fn is_from(&self, instant: Timestamp) -> bool {
        matches!(self, Self::Result { stored_at, .. } if *stored_at == instant)
    }
}

/// Determines the size of entries.
struct EntryWeigher<T>(fn(&T) -> usize);

impl<T> Clone for EntryWeigher<T> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<T> Weighter<Digest, CacheEntry<T>> for EntryWeigher<T> {
    fn weight(&self, _key: &Digest, entry: &CacheEntry<T>) -> u64 {
        let bytes = match entry {
            CacheEntry::Result { value, .. } => (self.0)(value),
            CacheEntry::Failed => 0,
        };
        (bytes + ENTRY_BYTES) as u64
    }
}

impl<T: Clone> ResultCache<T> {
    /// Creates a cache of up to `max_bytes`. `bytes` returns the size of a result.
    pub fn new(max_bytes: usize, bytes: fn(&T) -> usize, ambient: Ambient) -> Self {
        Self {
            entries: Cache::with_weighter(EXPECTED_ENTRIES, max_bytes as u64, EntryWeigher(bytes)),
            ambient,
        }
    }

    /// Returns the result cached under `key` if it is younger than `ttl`, or else the result of `run`. This may wait
    /// for the same call of another caller, so bound it by the deadline of the call.
    ///
    /// All callers with the same key get the same result. The key must cover the tool's definition, the arguments and
    /// all parts of the permit on which the result depends.
    pub async fn get_or_run<E>(
        &self,
        key: Digest,
        ttl: Duration,
        run: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        loop {
            match self.entries.get_value_or_guard_async(&key).await {
                Ok(CacheEntry::Result { value, stored_at }) if self.is_fresh(stored_at, ttl) => {
                    counter!(names::RESULT_CACHE, "outcome" => "hit").increment(1);
                    return Ok(value);
                }
                Ok(CacheEntry::Result { stored_at, .. }) => {
                    self.entries
                        .remove_if(&key, |entry| entry.is_from(stored_at));
                }
                Ok(CacheEntry::Failed) => {
                    counter!(names::RESULT_CACHE, "outcome" => "miss").increment(1);
                    return run.await;
                }
                Err(place) => {
                    counter!(names::RESULT_CACHE, "outcome" => "miss").increment(1);
                    let outcome = run.await;
                    let entry = match &outcome {
                        Ok(value) => CacheEntry::Result {
                            value: value.clone(),
                            stored_at: self.ambient.now(),
                        },
                        Err(_) => CacheEntry::Failed,
                    };
                    // The insertion fails only if the placeholder was removed in the meantime, which never happens.
                    let _ = place.insert(entry);
                    self.entries
                        .remove_if(&key, |entry| matches!(entry, CacheEntry::Failed));
                    return outcome;
                }
            }
        }
    }

    /// Returns whether a result is young enough. If the clock was set back, its age is unknown, and it is not.
    fn is_fresh(&self, stored_at: Timestamp, ttl: Duration) -> bool {
        let now = self.ambient.now();
        stored_at <= now && now < stored_at.plus(ttl)
    }
}

#[cfg(test)]
mod tests;
