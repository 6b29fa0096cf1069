//! Identification of callers: verifies the token of a request with the policy service and caches the result.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, BearerToken, Caller, Digest, InvalidMessage, Timestamp};
use wardgate_proto::common::v1::ErrorReason;

use crate::Error;
use crate::names::check_name;
use crate::rights::Rights;

/// Maximum number of callers in the cache.
const REMEMBERED: usize = 10_000;

/// Time for which a caller stays cached. If an issuer withdraws a signing key, this service may accept tokens of that
/// key for this much longer than the policy service.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// A cache of callers by their tokens. Only the policy service identifies callers.
pub(crate) struct CallerCache<R> {
    rights: R,
    /// The caller and the end of its cache entry, by the digest of the token.
    cache: Cache<Digest, (Arc<Caller>, Timestamp)>,
    ambient: Ambient,
}

impl<R: Rights> CallerCache<R> {
    pub(crate) fn new(rights: R, ambient: Ambient) -> Self {
        Self {
            rights,
            cache: Cache::new(REMEMBERED),
            ambient,
        }
    }

    /// Returns the caller that `token` identifies. Fails if a part of the identity is too long or contains control
    /// characters, because these parts are stored.
    pub(crate) async fn identify(&self, token: &str) -> Result<Arc<Caller>, Error> {
        let digest = Digest::compute(token.as_bytes());
        let now = self.ambient.now();
        if let Some((caller, until)) = self.cache.get(&digest)
            && now < until
        {
            return Ok(caller);
        }
        if token.is_empty() {
            return Err(InvalidMessage::field("caller_token", "is missing").into());
        }
        let caller = self.rights.identify(&BearerToken::new(token)).await;
        let caller = caller.map_err(|error| match error.reason() {
            ErrorReason::TokenRefused => Error::TokenRefused(error),
            _ => Error::Policy(error),
        })?;
        for (part, field) in [
            (caller.issuer(), "caller.issuer"),
            (caller.subject(), "caller.subject"),
            (caller.tenant(), "caller.tenant"),
        ] {
            check_name(part, field)?;
        }
        let caller = Arc::new(caller);
        let until = now.plus(REMEMBERED_FOR).min(caller.expires_at());
        let until = caller.rights_expire_at().map_or(until, |it| until.min(it));
        self.cache.insert(digest, (Arc::clone(&caller), until));
        Ok(caller)
    }
}
