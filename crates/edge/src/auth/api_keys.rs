//! API keys of machine clients: long-lived secrets, of which a file contains only the digests.
//!
//! A key consists of 32 random bytes, so it cannot be guessed from its SHA-256 digest, and the digest needs neither a
//! salt nor a slow hash. A lookup by the digest of the presented key does not leak information by its timing.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, AttributeValue, BearerToken, CallerClaims, Digest, Timestamp};
use wardgate_json::parse_strict;

use super::claim_value::{MAX_ITEMS, attribute_value, is_name};
use super::source::read_file;
use super::{ApiKeyConfig, Scopes, TokenRefusal};
use crate::error::ApiKeyError;

/// The issuer of callers that authenticate by an API key.
const ISSUER: &str = "urn:wardgate:api-keys";
/// Interval at which the file is read again. A key that is removed from the file is refused after this time.
const REREAD_EVERY: Duration = Duration::from_millis(500);
/// Maximum lifetime of the caller of a key, after which anything bound to the caller, such as an open stream, ends.
const CALLER_LIFETIME: Duration = Duration::from_hours(1);

/// The contents of the file of API keys, one JSON object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyFile {
    /// The accepted keys.
    pub keys: Vec<ApiKeyEntry>,
}

/// The entry of one key in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyEntry {
    /// The name that operators gave to the key. The record contains it as the token id.
    pub name: String,
    /// The SHA-256 digest of the key, 64 hexadecimal digits.
    pub sha256: String,
    /// The subject that policies and the record see.
    pub subject: String,
    /// The roles of the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The tenant of the caller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The attributes that policies may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
    /// The scopes of the caller, for tools that require scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The expiry in RFC 3339 format. If missing, the key is valid until it is removed from the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Generates a new key, which is to be shown once. The file contains only its digest.
pub fn generate_api_key(ambient: &Ambient) -> String {
    format!("{}{}", BearerToken::API_KEY_PREFIX, ambient.random_text())
}

impl ApiKeyFile {
    /// Parses and validates the contents of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        let file = Self::decode(bytes)?;
        KnownKeys::from_file(&file, Digest::compute(bytes))?;
        Ok(file)
    }

    /// Parses the file without validating its entries, which [`KnownKeys::from_file`] does.
    fn decode(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        let malformed = |error: &dyn std::fmt::Display| ApiKeyError::Malformed(error.to_string());
        let value = parse_strict(bytes).map_err(|error| malformed(&error))?;
        serde_json::from_value(value).map_err(|error| malformed(&error))
    }
}

/// The keys of one version of the file, by their digests.
struct KnownKeys {
    version: Digest,
    by_digest: HashMap<Digest, ApiKey>,
}

/// An accepted key.
struct ApiKey {
    caller: CallerClaims,
    scopes: Arc<Scopes>,
}

impl KnownKeys {
    fn parse(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        Self::from_file(&ApiKeyFile::decode(bytes)?, Digest::compute(bytes))
    }

    fn from_file(file: &ApiKeyFile, version: Digest) -> Result<Self, ApiKeyError> {
        let mut by_digest = HashMap::new();
        for (index, entry) in file.keys.iter().enumerate() {
            let wrong = |(field, problem)| ApiKeyError::Entry {
                index,
                field,
                problem,
            };
            let digest: Result<Digest, _> = entry.sha256.parse();
            let digest = digest.map_err(|_| wrong(("sha256", "is not 64 hexadecimal digits")))?;
            let key = entry.key().map_err(wrong)?;
            if file.keys[..index].iter().any(|it| it.name == entry.name) {
                return Err(wrong(("name", "is already used by another key")));
            }
            let former = by_digest.insert(digest, key);
            if former.is_some() {
                return Err(wrong(("sha256", "is already used by another key")));
            }
        }
        Ok(Self { version, by_digest })
    }
}

impl ApiKeyEntry {
    fn key(&self) -> Result<ApiKey, (&'static str, &'static str)> {
        const PROBLEM: &str = "is not 1 to 256 visible characters";
        for (field, names) in [
            ("name", std::slice::from_ref(&self.name)),
            ("subject", std::slice::from_ref(&self.subject)),
            ("roles", &self.roles),
            ("scopes", &self.scopes),
        ] {
            if !names.iter().all(|name| is_name(name)) {
                return Err((field, PROBLEM));
            }
            if names.len() > MAX_ITEMS {
                return Err((field, "has more than 256 entries"));
            }
        }
        if !self.tenant.is_empty() && !is_name(&self.tenant) {
            return Err(("tenant", PROBLEM));
        }
        let attributes = self.attributes.iter().map(|(name, value)| {
            let value = attribute_value(value)?;
            Some((name.clone(), value))
        });
        let attributes: Option<BTreeMap<String, AttributeValue>> = attributes.collect();
        let expires_at = match &self.expires_at {
            None => Timestamp::from_micros(i64::MAX),
            Some(text) => text
                .parse()
                .map_err(|_| ("expires_at", "is not an RFC 3339 time"))?,
        };
        Ok(ApiKey {
            caller: CallerClaims {
                issuer: ISSUER.to_owned(),
                subject: self.subject.clone(),
                tenant: self.tenant.clone(),
                roles: self.roles.clone(),
                attributes: attributes.ok_or((
                    "attributes",
                    "has a value that is not a string, whole number, Boolean or array of strings",
                ))?,
                token_id: self.name.clone(),
                expires_at,
            },
            scopes: Arc::new(self.scopes.iter().cloned().collect()),
        })
    }
}

/// The API keys of a file, kept up to date.
pub(super) struct ApiKeys {
    path: PathBuf,
    known: ArcSwap<KnownKeys>,
    /// Whether the last attempt to read the file failed.
    is_failing: AtomicBool,
}

impl ApiKeys {
    /// Reads the file. Fails if the file is not usable.
    pub(super) async fn load(config: &ApiKeyConfig) -> Result<Arc<Self>, ApiKeyError> {
        let bytes = read_file(&config.file).await?;
        Ok(Arc::new(Self {
            path: config.file.clone(),
            known: ArcSwap::from_pointee(KnownKeys::parse(&bytes)?),
            is_failing: AtomicBool::new(false),
        }))
    }

    /// Starts a task that reads the file periodically, as long as the handle lives.
    pub(super) fn keep_current(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let keys = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                tokio::time::sleep(REREAD_EVERY).await;
                keys.refresh().await;
            }
        }))
    }

    /// Applies a change of the file. If the file is not usable, the previous keys stay in force, and the fault is
    /// logged once.
    pub(super) async fn refresh(&self) {
        let changed = self.read_change().await;
        let was_failing = self.is_failing.swap(changed.is_err(), Ordering::Relaxed);
        match changed {
            Ok(Some(known)) => {
                let count = known.by_digest.len();
                self.known.store(Arc::new(known));
                tracing::info!(keys = count, "the changed API keys are in force");
            }
            Err(error) if !was_failing => tracing::error!(
                error = &error as &dyn std::error::Error,
                path = %self.path.display(),
                "the file of the API keys cannot be used; the previous keys stay in force"
            ),
            Ok(None) | Err(_) => {}
        }
    }

    /// Returns the keys in the file, or `None` if it has not changed.
    async fn read_change(&self) -> Result<Option<KnownKeys>, ApiKeyError> {
        let bytes = read_file(&self.path).await?;
        if Digest::compute(&bytes) == self.version() {
            return Ok(None);
        }
        KnownKeys::parse(&bytes).map(Some)
    }

    /// Returns the version of the keys, which changes with every change of the file.
    pub(super) fn version(&self) -> Digest {
        self.known.load().version
    }

    /// Returns the caller of a key by the digest of the key, with its scopes and the version of the file. The caller
    /// expires after an hour at the latest.
    pub(super) fn find(
        &self,
        key: Digest,
        now: Timestamp,
    ) -> Result<(CallerClaims, Arc<Scopes>, Digest), TokenRefusal> {
        let known = self.known.load();
        let found = known.by_digest.get(&key);
        let ApiKey { caller, scopes } = found.ok_or(TokenRefusal::ApiKeyUnknown)?;
        if now >= caller.expires_at {
            return Err(TokenRefusal::TokenExpired);
        }
        let mut caller = caller.clone();
        caller.expires_at = caller.expires_at.min(now.plus(CALLER_LIFETIME));
        Ok((caller, Arc::clone(scopes), known.version))
    }
}
