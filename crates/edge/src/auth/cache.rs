//! Tokens that verified a moment ago, so that a client that sends one again costs a digest and no signature.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Caller, Digest, Timestamp};

/// About 10 MB when full. Only tokens that verified get in, so no stranger can push others out.
const CAPACITY: usize = 10_000;

/// Callers by the digest of their token.
pub(super) struct VerifiedTokens(Cache<Digest, Entry>);

#[derive(Clone)]
struct Entry {
    caller: Arc<Caller>,
    issuer: usize,
    key_set: Digest,
}

impl VerifiedTokens {
    pub(super) fn new() -> Self {
        Self(Cache::new(CAPACITY))
    }

    /// The caller of a token, unless the token has ended since or its issuer's keys are no longer the ones it
    /// verified with; `key_set` gives the version of an issuer's keys.
    pub(super) fn get(
        &self,
        token: Digest,
        now: Timestamp,
        key_set: impl FnOnce(usize) -> Option<Digest>,
    ) -> Option<Arc<Caller>> {
        let entry = self.0.get(&token)?;
        if now < entry.caller.expires_at() && key_set(entry.issuer) == Some(entry.key_set) {
            return Some(entry.caller);
        }
        self.0.remove(&token);
        None
    }

    /// Notes that a token verified with that version of its issuer's keys.
    pub(super) fn insert(
        &self,
        token: Digest,
        caller: Arc<Caller>,
        issuer: usize,
        key_set: Digest,
    ) {
        self.0.insert(
            token,
            Entry {
                caller,
                issuer,
                key_set,
            },
        );
    }
}
