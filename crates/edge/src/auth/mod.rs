//! From a bearer token to a caller.
//!
//! ```text
//!   Authorization ─▶ bearer ─▶ cache ──────────────── verified a moment ago ───────────────▶ Arc<Caller> ─▶ lookup
//!                                │                                                               ▲
//!                                ▼ new                                                           │
//!                              token (three parts, strict) ─▶ key_ring ─▶ signature ─▶ claims ───┤
//!                                │                              ▲                         ▲      │
//!                                │        file or URL ─▶ source ─▶ keys                   │      │
//!                                ├ whose issuer is asked ─▶ introspection ────────────────┘      │
//!                                └ with the prefix of an API key ─▶ api_keys ────────────────────┘
//! ```
//!
//! One job: no [`Caller`] without a token that a trusted issuer signed, or vouches for, for this gateway and for this moment,
//! or an API key that the operator gave out.
//! A token finds its issuer by `iss` and its key by `kid`; the key alone says which algorithm it is for. Each
//! way to fail is one [`TokenRefusal`].

mod api_keys;
mod bearer;
mod cache;
mod claims;
mod config;
mod introspection;
mod key_ring;
mod keys;
mod lookup;
mod refusal;
mod revocation;
mod scopes;
mod source;
mod token;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, BearerToken, Caller, Digest, Timestamp};
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

use api_keys::ApiKeys;
use cache::{TokenBasis, VerifiedToken, VerifiedTokens};
use claims::{AcceptedTime, Audience};
use introspection::Introspection;
use key_ring::KeyRing;
use token::{UnverifiedToken, VerifiedClaims};

use crate::Error;

pub use api_keys::{ApiKeyConfig, ApiKeyEntry, ApiKeyFile, generate_api_key};
pub use claims::{attribute_value, is_name};
pub use config::{AuthConfig, IssuerConfig, JwksSource, TokenType};
pub use introspection::IntrospectionConfig;
pub use lookup::{CallerLookup, RightsSource};
pub use refusal::TokenRefusal;
pub use revocation::RevocationWatch;
pub use scopes::Scopes;

/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Makes callers of bearer tokens. Share it in an `Arc`; dropping it ends its reading of key sets.
pub struct Authenticator {
    trusted: AuthConfig,
    /// The base URL of the resources that tokens may name in `aud`.
    public_url: Option<String>,
    keys: Arc<KeyRing>,
    introspection: Option<Introspection>,
    api_keys: Option<Arc<ApiKeys>>,
    verified: VerifiedTokens,
    revocations: RevocationWatch,
    lookup: Option<CallerLookup>,
    ambient: Ambient,
    _polls: Vec<AbortOnDropHandle<()>>,
}

impl Authenticator {
    /// Checks the configuration and reads every key set once. A file that cannot be used is an error; a URL
    /// that cannot be read is tried again in the background, and [`Authenticator::readiness`] tells.
    ///
    /// Tokens may be for one resource below `public_url`, by its URL. Without, only for what issuers call the
    /// audience.
    ///
    /// Needs a tokio runtime with time and I/O.
    pub async fn new(
        config: AuthConfig,
        public_url: Option<&str>,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        config.validate_for(public_url)?;
        let keys = KeyRing::load(&config.issuers, ambient.clone()).await?;
        let mut polls = keys.keep_current();
        let api_keys = match &config.api_keys {
            None => None,
            Some(config) => {
                let api_keys = ApiKeys::load(config).await;
                Some(api_keys.map_err(|cause| Error::ApiKeys {
                    path: config.file.clone(),
                    cause,
                })?)
            }
        };
        polls.extend(api_keys.as_ref().map(ApiKeys::keep_current));
        Ok(Self {
            introspection: Introspection::open(&config.issuers)?,
            trusted: config,
            public_url: public_url.map(ToOwned::to_owned),
            keys,
            api_keys,
            verified: VerifiedTokens::new(),
            revocations: RevocationWatch::default(),
            lookup: None,
            ambient,
            _polls: polls,
        })
    }

    /// The same, which refuses tokens that are revoked.
    #[must_use]
    pub fn with_revocations(self, revocations: RevocationWatch) -> Self {
        Self {
            revocations,
            ..self
        }
    }

    /// The same, which gives the callers of requests the roles and attributes that `lookup` has of them.
    #[must_use]
    pub fn with_lookup(self, lookup: CallerLookup) -> Self {
        Self {
            lookup: Some(lookup),
            ..self
        }
    }

    /// Ready while every issuer has keys that may be used.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.keys.readiness()
    }

    /// Verifies the bearer token of a request for the resource at one of `paths`. Only the one `Authorization` header is
    /// read. A token for any of `paths` is accepted: a resource and those that include it.
    pub async fn verify_request(
        &self,
        headers: &HeaderMap,
        paths: &[&str],
    ) -> Result<VerifiedCaller, TokenRefusal> {
        let verified = self.verify(bearer::bearer(headers)?, paths).await?;
        crate::listener::credit_known_caller();
        Ok(verified)
    }

    /// Verifies a token for a service behind the edges. Any of our resources is accepted as its audience, because the
    /// edge has checked it. A token that was verified before costs a digest, and is verified again once its
    /// issuer's keys change; it is never accepted after its end. Waits only for a key that is not there yet, 5 s at most.
    /// Roles and attributes are those of the token alone.
    pub async fn verify_token(&self, token: &str) -> Result<Arc<Caller>, TokenRefusal> {
        let (verified_token, _) = self.find_or_verify(token).await?;
        if verified_token.audience.includes_nothing() {
            return Err(TokenRefusal::AudienceRefused);
        }
        Ok(Arc::clone(&verified_token.caller))
    }

    /// Like [`Self::verify_token`], for a token whose audience is one of `paths`.
    async fn verify(&self, token: &str, paths: &[&str]) -> Result<VerifiedCaller, TokenRefusal> {
        let (verified_token, by) = self.find_or_verify(token).await?;
        if !verified_token.audience.includes(paths) {
            return Err(TokenRefusal::AudienceRefused);
        }
        let caller = Arc::clone(&verified_token.caller);
        let caller = match &self.lookup {
            Some(lookup) => lookup.complete(caller).await?,
            None => caller,
        };
        metrics::counter!(names::TOKENS_ACCEPTED, "by" => by).increment(1);
        Ok(VerifiedCaller {
            caller,
            scopes: Arc::clone(&verified_token.scopes),
        })
    }

    /// The verified token, and whether it came from the cache.
    async fn find_or_verify(
        &self,
        token: &str,
    ) -> Result<(Arc<VerifiedToken>, &'static str), TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TokenTooLong);
        }
        let digest = Digest::of(token.as_bytes());
        let now = self.ambient.now();
        let cached = self
            .verified
            .get(digest, now, |basis| self.is_current(basis, now));
        let (verified_token, by) = match cached {
            Some(verified_token) => (verified_token, "cache"),
            None => (self.verify_new(token, digest, now).await?, "signature"),
        };
        self.revocations.check(&verified_token.caller)?;
        Ok((verified_token, by))
    }

    /// Whether what a token was verified with is so still.
    fn is_current(&self, basis: TokenBasis, now: Timestamp) -> bool {
        match basis {
            TokenBasis::KeySet { issuer, version } => self.keys.version(issuer) == Some(version),
            TokenBasis::ApiKeys { version } => {
                self.api_keys.as_ref().map(|keys| keys.version()) == Some(version)
            }
            TokenBasis::Introspection { asked_at } => {
                let asked = self.introspection.as_ref();
                asked.is_some_and(|it| it.is_good(asked_at, now))
            }
        }
    }

    /// Verifies a token that is not cached.
    async fn verify_new(
        &self,
        text: &str,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Arc<VerifiedToken>, TokenRefusal> {
        if text.starts_with(BearerToken::API_KEY_PREFIX) {
            return self.verify_api_key(text, digest, now);
        }
        let (claims, rules, basis) = self.read_claims(text, digest, now).await?;
        let accepted = AcceptedTime::of(&claims, rules)?;
        accepted.check(now)?;
        let caller = claims::read_caller(&claims, (&self.trusted, rules), digest, accepted)?;
        let delegation = claims::delegation(&claims)?;
        let verified_token = Arc::new(VerifiedToken {
            accepted,
            audience: Audience::of(
                &claims,
                rules.audience.as_deref(),
                self.public_url.as_deref(),
            )?,
            scopes: Arc::new(claims::scopes(&claims)?),
            caller: Arc::new(
                Caller::from_verified(caller)
                    .with_token(BearerToken::new(text))
                    .with_delegation(delegation)
                    .with_sign_in(claims::sign_in(&claims)),
            ),
        });
        // A token for another audience is not cached.
        if !verified_token.audience.includes_nothing() {
            self.verified
                .insert(digest, Arc::clone(&verified_token), basis);
        }
        Ok(verified_token)
    }

    /// The claims of a token: of a signed one by the keys of its issuer, of another one as the issuer tells them.
    async fn read_claims(
        &self,
        text: &str,
        digest: Digest,
        now: Timestamp,
    ) -> Result<(VerifiedClaims, &IssuerConfig, TokenBasis), TokenRefusal> {
        let issuer = match UnverifiedToken::parse(text) {
            Ok(token) => {
                let issuer = token.issuer()?;
                let named = self.trusted.issuers.iter().enumerate();
                let mut named = named.filter(|(_, rules)| rules.issuer == issuer);
                let (index, rules) = named.next().ok_or(TokenRefusal::IssuerRefused)?;
                token.check_type(rules.token_type)?;
                if rules.introspection.is_none() {
                    let keys = self.keys.keys_with(index, token.key_id()).await?;
                    let key = keys.find(token.key_id()).ok_or(TokenRefusal::KeyUnknown)?;
                    let basis = TokenBasis::KeySet {
                        issuer: index,
                        version: keys.version(),
                    };
                    return Ok((token.verify(key)?, rules, basis));
                }
                index
            }
            // No JWT: only an issuer that is asked can know it.
            Err(TokenRefusal::TokenMalformed) => self
                .introspection
                .as_ref()
                .map(|it| it.issuer)
                .ok_or(TokenRefusal::TokenMalformed)?,
            Err(refusal) => return Err(refusal),
        };
        let (Some(rules), Some(introspection)) =
            (self.trusted.issuers.get(issuer), &self.introspection)
        else {
            return Err(TokenRefusal::IssuerRefused);
        };
        let claims = introspection.ask(text, digest, now).await?;
        let basis = TokenBasis::Introspection { asked_at: now };
        Ok((claims, rules, basis))
    }

    /// The caller of an API key, which is for all of this gateway.
    fn verify_api_key(
        &self,
        text: &str,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Arc<VerifiedToken>, TokenRefusal> {
        let keys = self.api_keys.as_ref().ok_or(TokenRefusal::ApiKeyUnknown)?;
        let (caller, scopes, version) = keys.find(digest, now)?;
        let verified_token = Arc::new(VerifiedToken {
            accepted: AcceptedTime::until(caller.expires_at),
            audience: Audience::Whole,
            scopes,
            caller: Arc::new(Caller::from_verified(caller).with_token(BearerToken::new(text))),
        });
        let basis = TokenBasis::ApiKeys { version };
        self.verified
            .insert(digest, Arc::clone(&verified_token), basis);
        Ok(verified_token)
    }
}

/// The caller of a verified token, and its scopes.
#[derive(Debug, Clone)]
pub struct VerifiedCaller {
    /// Whose it is.
    pub caller: Arc<Caller>,
    /// What its holder let the client ask for.
    pub scopes: Arc<Scopes>,
}
