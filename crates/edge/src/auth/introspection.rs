//! Token introspection (RFC 7662), for tokens that only their issuer can validate.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use quick_cache::sync::Cache;
use reqwest::{Client, Url};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::form_urlencoded;
use wardgate_domain::{Digest, Timestamp};
use wardgate_json::parse_strict;
use wardgate_telemetry::{SecretKind, record_secret_file};

use super::config::{IntrospectionConfig, protected_url};
use super::key_ring::apart;
use super::source::{http_client, read_response};
use super::token::VerifiedClaims;
use super::{Error, IssuerConfig, TokenRefusal};
use crate::error::KeySetError;

/// Maximum time that a request waits for the issuer, including the wait for a permit to send.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent requests to the issuer, so that a flood of invalid tokens does not become a flood of
/// introspection requests.
const MAX_QUESTIONS: usize = 32;
/// Maximum number of tokens that are remembered as inactive.
const MAX_INACTIVE: usize = 10_000;

/// The introspection client of an issuer.
pub(super) struct Introspection {
    /// The index of the issuer in the configuration.
    pub(super) issuer: usize,
    name: String,
    config: IntrospectionConfig,
    client: Client,
    url: Url,
    questions: Semaphore,
    /// The tokens that the issuer reported as inactive, with the time of the answer.
    inactive: Cache<Digest, Timestamp>,
}

impl Introspection {
    /// Creates the client of the only issuer with introspection, or returns `None` if there is no such issuer.
    pub(super) fn open(issuers: &[IssuerConfig]) -> Result<Option<Self>, Error> {
        let mut asked = issuers.iter().enumerate();
        let asked = asked.find_map(|(index, it)| Some((index, it, it.introspection.as_ref()?)));
        let Some((issuer, rules, config)) = asked else {
            return Ok(None);
        };
        let url = protected_url(&config.url).map_err(|problem| Error::Issuer {
            index: issuer,
            field: "introspection.url",
            problem,
        })?;
        Ok(Some(Self {
            issuer,
            name: rules.issuer.clone(),
            config: config.clone(),
            client: http_client()?,
            url,
            questions: Semaphore::new(MAX_QUESTIONS),
            inactive: Cache::new(MAX_INACTIVE),
        }))
    }

    /// Returns whether an answer is still valid at `now`. A clock that is set back does not extend the validity.
    pub(super) fn is_good(&self, asked_at: Timestamp, now: Timestamp) -> bool {
        apart(now, asked_at) < Duration::from_secs(self.config.cache_seconds)
    }

    /// Asks the issuer about a token. Returns its claims if it is an active access token.
    pub(super) async fn introspect(
        &self,
        token: &str,
        digest: Digest,
        now: Timestamp,
    ) -> Result<VerifiedClaims, TokenRefusal> {
        let asked_at = self.inactive.get(&digest);
        if asked_at.is_some_and(|asked_at| self.is_good(asked_at, now)) {
            return Err(TokenRefusal::TokenInactive);
        }
        let asked = tokio::time::timeout(TIME_LIMIT, self.ask_issuer(token)).await;
        let response = asked.unwrap_or(Err(IntrospectionError::Slow));
        let response = response.map_err(|error| {
            tracing::warn!(
                issuer = self.name,
                error = &error as &dyn std::error::Error,
                "the introspection of a token at its issuer failed"
            );
            TokenRefusal::IntrospectionUnavailable
        })?;
        if response.get("active") != Some(&Value::Bool(true)) {
            self.inactive.insert(digest, now);
            return Err(TokenRefusal::TokenInactive);
        }
        self.check_issuer(&response)?;
        check_use(&response)?;
        Ok(VerifiedClaims::of_issuer(response))
    }

    async fn ask_issuer(&self, token: &str) -> Result<Map<String, Value>, IntrospectionError> {
        let _turn = self.questions.acquire().await;
        let secret = tokio::fs::read_to_string(&self.config.client_secret_file).await?;
        record_secret_file(SecretKind::Credential, &self.config.client_secret_file);
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let request = self
            .client
            .post(self.url.clone())
            .header(
                AUTHORIZATION,
                basic(&self.config.client_id, secret.trim_end()),
            )
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(form);
        let response = request.send().await.map_err(KeySetError::from)?;
        match parse_strict(&read_response(response).await?) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) | Err(_) => Err(IntrospectionError::NotAnObject),
        }
    }

    /// Checks that the answer is about a token of the trusted issuer, since an endpoint may serve several issuers.
    fn check_issuer(&self, response: &Map<String, Value>) -> Result<(), TokenRefusal> {
        match response.get("iss") {
            None => Ok(()),
            Some(Value::String(issuer)) if *issuer == self.name => Ok(()),
            Some(_) => Err(TokenRefusal::IssuerRefused),
        }
    }
}

/// Checks that the token is an access token. Endpoints also accept refresh tokens and identity tokens; some state the
/// kind in `token_type` or `token_use`.
fn check_use(response: &Map<String, Value>) -> Result<(), TokenRefusal> {
    for (member, accepted) in [
        ("token_type", ["bearer", "access_token"]),
        ("token_use", ["access", "access_token"]),
    ] {
        let is_accepted = match response.get(member) {
            None | Some(Value::Null) => true,
            Some(Value::String(word)) => accepted.contains(&&*word.to_ascii_lowercase()),
            Some(_) => false,
        };
        if !is_accepted {
            return Err(TokenRefusal::TypeRefused);
        }
    }
    Ok(())
}

/// Returns the Basic authentication of a client. Both parts are form-encoded first (RFC 6749 §2.3.1).
fn basic(id: &str, secret: &str) -> String {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(id), encode(secret));
    format!("Basic {}", STANDARD.encode(pair))
}

/// The reason why the introspection of a token failed.
#[derive(Debug, thiserror::Error)]
enum IntrospectionError {
    #[error("the file of the client's secret cannot be read: {0}")]
    Secret(#[from] std::io::Error),
    #[error(transparent)]
    Response(#[from] KeySetError),
    #[error("the response is not a JSON object")]
    NotAnObject,
    #[error("it takes longer than 5 s")]
    Slow,
}
