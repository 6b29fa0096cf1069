//! Who makes a request: whose token it brings, as the policy service verified it.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use wardgate_domain::{Ambient, BearerToken, Caller, Digest, InvalidMessage, Timestamp};
use wardgate_proto::common::v1::ErrorReason;

use crate::Error;
use crate::names::check_name;
use crate::rights::Rights;

/// Callers that are remembered at once.
const REMEMBERED: usize = 10_000;

/// How long a caller is remembered: a token of a key that its issuer withdrew is refused here so much later than by the
/// policy service.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// Callers by their tokens. Nobody's word but the policy service's is taken for who a caller is.
pub(crate) struct CallerCache<R> {
    rights: R,
    /// By the digest of the token, and until when.
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

    /// Whose `token` is. What identifies a person is stored, so it is bounded.
    pub(crate) async fn identify(&self, token: &str) -> Result<Arc<Caller>, Error> {
        let digest = Digest::of(token.as_bytes());
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
