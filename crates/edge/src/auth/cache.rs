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
    basis: TokenBasis,
}

/// What a token was verified with, and with which it has to be verified again once that changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenBasis {
    /// That version of the keys of the issuer at this position of the configuration.
    KeySet { issuer: usize, version: Digest },
    /// That version of the file of API keys.
    ApiKeys { version: Digest },
    /// What its issuer answered then.
    Introspection { asked_at: Timestamp },
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

    /// What a token said, unless it is not accepted now (the clock may have been set back, too) or what it was verified with
    /// has changed, which `is_current` tells.
    pub(super) fn get(
        &self,
        token: Digest,
        now: Timestamp,
        is_current: impl FnOnce(TokenBasis) -> bool,
    ) -> Option<Arc<VerifiedToken>> {
        let entry = self.0.get(&token)?;
        if entry.verified_token.accepted.check(now).is_ok() && is_current(entry.basis) {
            return Some(entry.verified_token);
        }
        self.0.remove(&token);
        None
    }

    /// Notes that a token was verified with `basis`.
    pub(super) fn insert(
        &self,
        token: Digest,
        verified_token: Arc<VerifiedToken>,
        basis: TokenBasis,
    ) {
        let entry = CacheEntry {
            verified_token,
            basis,
        };
        self.0.insert(token, entry);
    }
}
