//! Tokens that verified a moment ago, so that a client that sends one again costs a digest and no signature.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Caller, Digest, Timestamp};

use super::Scopes;
use super::claims::{AcceptedTime, Audience};

/// About 20 MB when full of tokens of 1 KiB. Only tokens that verified get in, so no stranger can push others out.
const CAPACITY: usize = 10_000;

/// The verified tokens, by their digest.
pub(super) struct VerifiedTokens(Cache<Digest, CacheEntry>);

#[derive(Clone)]
struct CacheEntry {
    verified_token: Arc<VerifiedToken>,
    issuer: usize,
    key_set: Digest,
}

/// A token that was verified.
pub(super) struct VerifiedToken {
    pub(super) accepted: AcceptedTime,
    pub(super) caller: Arc<Caller>,
    pub(super) scopes: Arc<Scopes>,
    pub(super) audience: Audience,
}

impl VerifiedTokens {
    pub(super) fn new() -> Self {
        Self(Cache::new(CAPACITY))
    }

    /// What a token said, unless it is not accepted now (the clock may have been set back, too) or its issuer's keys are
    /// no longer the ones it verified with; `key_set` gives the version of an issuer's keys.
    pub(super) fn get(
        &self,
        token: Digest,
        now: Timestamp,
        key_set: impl FnOnce(usize) -> Option<Digest>,
    ) -> Option<Arc<VerifiedToken>> {
        let entry = self.0.get(&token)?;
        if entry.verified_token.accepted.check(now).is_ok()
            && key_set(entry.issuer) == Some(entry.key_set)
        {
            return Some(entry.verified_token);
        }
        self.0.remove(&token);
        None
    }

    /// Notes that a token verified with that version of its issuer's keys.
    pub(super) fn insert(
        &self,
        token: Digest,
        verified_token: Arc<VerifiedToken>,
        issuer: usize,
        key_set: Digest,
    ) {
        self.0.insert(
            token,
            CacheEntry {
                verified_token,
                issuer,
                key_set,
            },
        );
    }
}
