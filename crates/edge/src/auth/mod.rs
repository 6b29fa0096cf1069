//! From a bearer token to a caller.
//!
//! ```text
//!   Authorization ─▶ bearer ─▶ cache ──────────────── verified a moment ago ───────────────▶ Arc<Caller>
//!                                │                                                               ▲
//!                                ▼ new                                                           │
//!                              token (three parts, strict) ─▶ key_ring ─▶ signature ─▶ claims ───┘
//!                                                               ▲
//!                                         file or URL ─▶ source ─▶ keys
//! ```
//!
//! One job: no [`Caller`] without a token that a trusted issuer signed for this gateway and for this moment.
//! A token finds its issuer by `iss` and its key by `kid`; the key alone says which algorithm it is for. Each
//! way to fail is one [`TokenRefusal`].

mod bearer;
mod cache;
mod claims;
mod config;
mod key_ring;
mod keys;
mod refusal;
mod source;
mod strict_json;
mod token;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, Caller, Digest};
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

use cache::VerifiedTokens;
use key_ring::KeyRing;
use token::UnverifiedToken;

use crate::Error;

pub use bearer::CallerToken;
pub use config::{AuthConfig, IssuerConfig, JwksSource, TokenType};
pub(crate) use keys::KeySetError;
pub use refusal::TokenRefusal;

/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Makes callers of bearer tokens. Share it in an `Arc`; dropping it ends its reading of key sets.
pub struct Authenticator {
    issuers: Vec<IssuerConfig>,
    keys: Arc<KeyRing>,
    verified: VerifiedTokens,
    ambient: Ambient,
    _polls: Vec<AbortOnDropHandle<()>>,
}

impl Authenticator {
    /// Checks the configuration and reads every key set once. A file that cannot be used is an error; a URL
    /// that cannot be read is tried again in the background, and [`Authenticator::readiness`] tells.
    ///
    /// Needs a tokio runtime with time and I/O.
    pub async fn new(config: AuthConfig, ambient: Ambient) -> Result<Self, Error> {
        config.validate()?;
        let keys = KeyRing::load(&config.issuers, ambient.clone()).await?;
        let polls = keys.keep_current();
        Ok(Self {
            issuers: config.issuers,
            keys,
            verified: VerifiedTokens::new(),
            ambient,
            _polls: polls,
        })
    }

    /// Ready while every issuer has keys that may be used.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.keys.readiness()
    }

    /// The caller of a request, from its one `Authorization` header. Nothing else of a request is looked at.
    pub async fn caller_of_request(
        &self,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, TokenRefusal> {
        self.caller(bearer::bearer(headers)?).await
    }

    /// The caller of a token. Waits only for a key that is not there yet, 5 s at most.
    pub async fn caller(&self, token: &str) -> Result<Arc<Caller>, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TokenTooLong);
        }
        let digest = Digest::of(token.as_bytes());
        let now = self.ambient.now();
        if let Some(caller) = self
            .verified
            .get(digest, now, |issuer| self.keys.version(issuer))
        {
            metrics::counter!(names::TOKENS_ACCEPTED, "by" => "cache").increment(1);
            return Ok(caller);
        }
        let caller = self.verify(token, digest).await?;
        metrics::counter!(names::TOKENS_ACCEPTED, "by" => "signature").increment(1);
        Ok(caller)
    }

    async fn verify(&self, token: &str, digest: Digest) -> Result<Arc<Caller>, TokenRefusal> {
        let token = UnverifiedToken::parse(token)?;
        let issuer = token.issuer()?;
        let (index, rules) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, rules)| rules.issuer == issuer)
            .ok_or(TokenRefusal::IssuerRefused)?;
        token.check_type(rules.token_type)?;
        let keys = self.keys.keys_with(index, token.key_id()).await?;
        let key = keys.find(token.key_id()).ok_or(TokenRefusal::KeyUnknown)?;
        let claims = token.verify(key)?;
        let caller = claims::read(&claims, rules, digest, self.ambient.now())?;
        let caller = Arc::new(Caller::from_verified(caller));
        self.verified
            .insert(digest, Arc::clone(&caller), index, keys.version());
        Ok(caller)
    }
}
