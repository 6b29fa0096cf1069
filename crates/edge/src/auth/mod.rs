//! Authentication: verification of bearer tokens, which yields callers.
//!
//! ```text
//!   Authorization ─▶ bearer ─▶ cache ─────────────────── verified recently ────────────────▶ Arc<Caller> ─▶ lookup
//!                                │                                                               ▲
//!                                ▼ new                                                           │
//!                              token (three parts, strict) ─▶ key_ring ─▶ signature ─▶ claims ───┤
//!                                │                              ▲                         ▲      │
//!                                │        file or URL ─▶ source ─▶ keys                   │      │
//!                                ├ issuer with introspection ─▶ introspection ────────────┘      │
//!                                └ with the prefix of an API key ─▶ api_keys ────────────────────┘
//! ```
//!
//! A [`Caller`] exists only for a token that a trusted issuer signed or confirmed, that is meant for this gateway and
//! valid now, or for an API key that the operator issued. The issuer of a token is found by `iss` and its key by `kid`.
//! The key alone determines the algorithm. Each kind of failure is a [`TokenRefusal`].

mod api_keys;
mod bearer;
mod cache;
mod claim_value;
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

pub use api_keys::{ApiKeyEntry, ApiKeyFile, generate_api_key};
pub use claim_value::{attribute_value, is_name};
pub use config::{
    ApiKeyConfig, AuthConfig, IntrospectionConfig, IssuerConfig, JwksSource, TokenType,
};
pub use lookup::{CallerLookup, RightsSource};
pub use refusal::TokenRefusal;
pub use revocation::RevocationWatch;
pub use scopes::Scopes;

/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// An authenticator, which verifies bearer tokens. Share it in an `Arc`. Dropping it stops the background reading of
/// key sets.
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
    /// Validates the configuration and reads every key set once. A file that is not usable is an error. A URL that
    /// cannot be read is retried in the background, and [`Authenticator::readiness`] reports it.
    ///
    /// A token may be meant for one resource below `public_url`, by its URL. Without `public_url`, only the audience
    /// that the issuer's settings name is accepted.
    ///
    /// Must be called inside a Tokio runtime with time and I/O enabled.
    pub async fn new(
        config: AuthConfig,
        public_url: Option<&str>,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        config.validate_for(public_url)?;
        let keys = KeyRing::load(&config.issuers, ambient.clone()).await?;
        let mut polls = keys.keep_current();
        let api_keys = load_api_keys(&config).await?;
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

    /// Loads the files of the configuration, key sets and API keys, as [`Authenticator::new`] does, and fails if one is not
    /// usable. Sends no request, so a key set at a URL is not checked.
    pub async fn check_files(config: &AuthConfig) -> Result<(), Error> {
        let mut issuers = config.issuers.clone();
        issuers.retain(|issuer| matches!(issuer.jwks, Some(JwksSource::File(_))));
        KeyRing::load(&issuers, Ambient::system()).await?;
        load_api_keys(config).await.map(drop)
    }

    /// Returns the same authenticator, which refuses revoked tokens.
    #[must_use]
    pub fn with_revocations(self, revocations: RevocationWatch) -> Self {
        Self {
            revocations,
            ..self
        }
    }

    /// Returns the same authenticator, which adds the roles and attributes of `lookup` to the callers of requests.
    #[must_use]
    pub fn with_lookup(self, lookup: CallerLookup) -> Self {
        Self {
            lookup: Some(lookup),
            ..self
        }
    }

    /// Returns a readiness that is ready while every issuer has usable keys.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.keys.readiness()
    }

    /// Verifies the bearer token of a request for a resource. Only the `Authorization` header is read, and it must not
    /// be repeated. `paths` are the paths of the resource and of those that include it; a token for any of them is
    /// accepted.
    pub async fn verify_request(
        &self,
        headers: &HeaderMap,
        paths: &[&str],
    ) -> Result<VerifiedCaller, TokenRefusal> {
        let verified = self.verify(bearer::bearer(headers)?, paths).await?;
        crate::listener::credit_known_caller();
        Ok(verified)
    }

    /// Verifies a token for a service behind the edges. Any resource of this gateway is accepted as the audience,
    /// because the edge has already checked it. A token that was verified before costs only a digest. It is verified
    /// again when its issuer's keys change, and it is never accepted after its expiry. The call waits only for a key
    /// that is not available yet or for the introspection of the token, each with a time limit of 5 s. Roles and
    /// attributes are those of the token alone.
    pub async fn verify_token(&self, token: &str) -> Result<Arc<Caller>, TokenRefusal> {
        let (verified_token, _) = self.find_or_verify(token).await?;
        if verified_token.audience.includes_nothing() {
            return Err(TokenRefusal::AudienceRefused);
        }
        Ok(Arc::clone(&verified_token.caller))
    }

    /// Verifies a token whose audience must be one of `paths`, and looks up the rights of its caller.
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

    /// Returns the verified token, and as a metric label whether it came from the cache.
    async fn find_or_verify(
        &self,
        token: &str,
    ) -> Result<(Arc<VerifiedToken>, &'static str), TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TokenTooLong);
        }
        let digest = Digest::compute(token.as_bytes());
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

    /// Returns whether the basis of a verification is still the same.
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
        let accepted = AcceptedTime::from_claims(&claims, rules)?;
        accepted.check(now)?;
        let caller = claims::read_caller(&claims, &self.trusted, rules, digest, accepted)?;
        let delegation = claims::delegation(&claims)?;
        let verified_token = Arc::new(VerifiedToken {
            accepted,
            audience: Audience::from_claims(
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

    /// Returns the claims of a token, either verified with the keys of its issuer or as the issuer's introspection
    /// endpoint states them.
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
            // The token is not a JWT, so only an issuer with introspection can know it.
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
        let claims = introspection.introspect(text, digest, now).await?;
        let basis = TokenBasis::Introspection { asked_at: now };
        Ok((claims, rules, basis))
    }

    /// Returns the caller of an API key. The audience of a key is the whole gateway.
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

/// Reads the file of API keys, if there is one.
async fn load_api_keys(config: &AuthConfig) -> Result<Option<Arc<ApiKeys>>, Error> {
    let Some(config) = &config.api_keys else {
        return Ok(None);
    };
    let api_keys = ApiKeys::load(config).await;
    api_keys.map(Some).map_err(|cause| Error::ApiKeys {
        path: config.file.clone(),
        cause,
    })
}

/// The caller of a verified token, with the scopes of the token.
#[derive(Debug, Clone)]
pub struct VerifiedCaller {
    /// The caller.
    pub caller: Arc<Caller>,
    /// The scopes that the caller granted to the client.
    pub scopes: Arc<Scopes>,
}
