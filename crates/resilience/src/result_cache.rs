//! Results of read-only tools that ask for it, kept for a while; the same call made many times at once runs once.
//!
//! ```text
//!   get_or_run ─▶ fresh? ───────────────▶ the kept result
//!                 └ no ─▶ running? ─────▶ wait ─▶ its result
//!                         │               ├ its caller left: the next one runs
//!                         │               └ it failed: everyone for himself, as if there were no cache
//!                         └ no ─▶ run ──▶ keep, unless it failed
//! ```

use std::time::Duration;

use metrics::counter;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_telemetry::names;

/// Decides into how many parts the cache divides itself: few, so that each has room for large results.
const EXPECTED_ENTRIES: usize = 128;

/// What an entry takes besides its result.
const ENTRY_BYTES: usize = 128;

/// Results by a digest of everything they depend on.
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
    /// Only there to tell those who waited for it.
    Failed,
}

impl<T> CacheEntry<T> {
    fn is_from(&self, instant: Timestamp) -> bool {
        matches!(self, Self::Result { stored_at, .. } if *stored_at == instant)
    }
}

/// Measures entries.
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
    /// Keeps up to `max_bytes`, as `bytes` measures results.
    pub fn new(max_bytes: usize, bytes: fn(&T) -> usize, ambient: Ambient) -> Self {
        Self {
            entries: Cache::with_weighter(EXPECTED_ENTRIES, max_bytes as u64, EntryWeigher(bytes)),
            ambient,
        }
    }

    /// The result kept under `key` if it is younger than `ttl`, else that of `run`. It may wait for the same call
    /// of someone else; bound it by the call's deadline.
    ///
    /// Whoever shares the key gets the same result: it must cover tool definition, arguments and all of the
    /// permit that the result depends on.
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
                    // Fails only where the place was removed meanwhile, and none ever is.
                    let _ = place.insert(entry);
                    self.entries
                        .remove_if(&key, |entry| matches!(entry, CacheEntry::Failed));
                    return outcome;
                }
            }
        }
    }

    /// After a clock was set back nothing is known about an age.
    fn is_fresh(&self, stored_at: Timestamp, ttl: Duration) -> bool {
        let now = self.ambient.now();
        stored_at <= now && now < stored_at.plus(ttl)
    }
}

#[cfg(test)]
mod tests;
