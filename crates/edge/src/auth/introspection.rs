//! Tokens that only their issuer can read: it is asked about each (RFC 7662).

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use quick_cache::sync::Cache;
use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::form_urlencoded;
use wardgate_domain::{Digest, Timestamp};
use wardgate_json::parse_strict;

use super::config::protected_url;
use super::key_ring::apart;
use super::source::{http_client, read_response};
use super::token::VerifiedClaims;
use super::{Error, IssuerConfig, TokenRefusal};
use crate::error::KeySetError;

/// The longest that a request waits for the issuer, and for its turn to ask.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Questions to the issuer at once, so that a flood of tokens that nobody issued is none of questions.
const MAX_QUESTIONS: usize = 32;
/// Tokens that are known not to be active, at most.
const MAX_INACTIVE: usize = 10_000;

/// How an issuer is asked about a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    /// The issuer's introspection endpoint: `https`, or `http` on this machine.
    pub url: String,
    /// What the gateway is called there.
    pub client_id: String,
    /// A file with its secret, read for each question, so that a new secret needs no restart.
    pub client_secret_file: PathBuf,
    /// How long an answer is good for, in seconds, 0 to 300: a token that is revoked is accepted for so long. Default 10.
    #[serde(default = "default_cache")]
    pub cache_seconds: u64,
}

const fn default_cache() -> u64 {
    10
}

/// An issuer that is asked about its tokens.
pub(super) struct Introspection {
    /// The position of the issuer in the configuration.
    pub(super) issuer: usize,
    name: String,
    config: IntrospectionConfig,
    client: Client,
    url: Url,
    questions: Semaphore,
    /// When it was said of a token that it is not active.
    inactive: Cache<Digest, Timestamp>,
}

impl Introspection {
    /// The one issuer that is asked, if there is one.
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

    /// Whether an answer is good still at `now`. A clock that was set back makes none good for longer.
    pub(super) fn is_good(&self, asked_at: Timestamp, now: Timestamp) -> bool {
        apart(now, asked_at) < Duration::from_secs(self.config.cache_seconds)
    }

    /// What the issuer says of a token that is active and meant for access.
    pub(super) async fn ask(
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
                "an issuer cannot be asked about a token"
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

    /// An issuer that answers for several has to be the one that is trusted.
    fn check_issuer(&self, response: &Map<String, Value>) -> Result<(), TokenRefusal> {
        match response.get("iss") {
            None => Ok(()),
            Some(Value::String(issuer)) if *issuer == self.name => Ok(()),
            Some(_) => Err(TokenRefusal::IssuerRefused),
        }
    }
}

/// Issuers also answer for refresh tokens and identity tokens; some say by `token_type` or `token_use` which one it is.
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

/// Basic authentication of a client, both parts form-encoded first (RFC 6749 §2.3.1).
fn basic(id: &str, secret: &str) -> String {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(id), encode(secret));
    format!("Basic {}", STANDARD.encode(pair))
}

/// Why an issuer did not say what a token is.
#[derive(Debug, thiserror::Error)]
enum IntrospectionError {
    #[error("the file of the client's secret cannot be read: {0}")]
    Secret(#[from] std::io::Error),
    #[error(transparent)]
    Response(#[from] KeySetError),
    #[error("the answer is no JSON object")]
    NotAnObject,
    #[error("it takes longer than 5 s")]
    Slow,
}
