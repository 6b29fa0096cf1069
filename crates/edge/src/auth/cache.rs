//! A cache of recently verified tokens. A token that is sent again costs a digest instead of a signature verification.

use std::sync::Arc;

use quick_cache::sync::Cache;
use wardgate_domain::{Caller, Digest, Timestamp};

use super::Scopes;
use super::claims::{AcceptedTime, Audience};

/// Maximum number of tokens, about 20 MB with tokens of 1 KiB. Only verified tokens are stored, so that a client
/// without a valid token cannot evict others.
const CAPACITY: usize = 10_000;

/// The cache of verified tokens, by the digest of the token.
pub(super) struct VerifiedTokens(Cache<Digest, CacheEntry>);

#[derive(Clone)]
struct CacheEntry {
    verified_token: Arc<VerifiedToken>,
    basis: TokenBasis,
}

/// The state on which the verification of a token is based. If it changes, the token has to be verified again.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenBasis {
    /// This version of the keys of the issuer at this index in the configuration.
    KeySet { issuer: usize, version: Digest },
    /// This version of the file of API keys.
    ApiKeys { version: Digest },
    /// The answer of the issuer at this time.
    Introspection { asked_at: Timestamp },
}

/// A verified token.
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

    /// Returns the cached token, unless it is not accepted now (which can also be because the clock was set back) or
    /// its basis has changed, which `is_current` determines.
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

    /// Stores a token that was verified on the basis of `basis`.
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
