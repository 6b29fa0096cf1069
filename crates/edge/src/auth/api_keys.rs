//! API keys of machines: secrets that last long, of which a file has the digests alone.
//!
//! A key is made of 32 random bytes. Nobody finds it by its SHA-256 digest, so the digest needs no salt and no slow hash; and
//! a lookup by the digest of what was sent tells nothing by the time it takes.

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

use super::claims::{MAX_ITEMS, attribute_value, is_name};
use super::source::read_file;
use super::{Scopes, TokenRefusal};
use crate::error::ApiKeyError;

/// The issuer of the callers that keys make.
const ISSUER: &str = "urn:wardgate:api-keys";
/// A key that is taken out of the file is refused after this time.
const REREAD_EVERY: Duration = Duration::from_millis(500);
/// What is bound to the caller of a key, such as an open stream, ends after this time, unless the key ends before.
const CALLER_LIFETIME: Duration = Duration::from_hours(1);

/// Where the API keys are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The file that `wardgate api-key` writes. A change is in force within a second.
    pub file: PathBuf,
}

/// The file of the API keys, one JSON object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyFile {
    /// The keys that are accepted.
    pub keys: Vec<ApiKeyEntry>,
}

/// What the file says of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyEntry {
    /// What operators call it. The record has it as the id of the token.
    pub name: String,
    /// SHA-256 of the key, 64 hexadecimal digits.
    pub sha256: String,
    /// Whom policies and the record see.
    pub subject: String,
    /// The roles of the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The tenant of the caller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// Attributes that policies may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Value>,
    /// The scopes of the caller, where tools need such.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// When it ends (RFC 3339). Unset, it lasts until it is taken out of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A new key, to be shown once; its digest goes into the file.
pub fn generate_api_key(ambient: &Ambient) -> String {
    format!("{}{}", BearerToken::API_KEY_PREFIX, ambient.random_text())
}

impl ApiKeyFile {
    /// Reads a file of at most 1 MiB.
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        let file = Self::decode(bytes)?;
        KnownKeys::of(&file, Digest::of(bytes))?;
        Ok(file)
    }

    /// Its form alone; what its entries say is for [`KnownKeys::of`] to check.
    fn decode(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        let malformed = |error: &dyn std::fmt::Display| ApiKeyError::Malformed(error.to_string());
        let value = parse_strict(bytes).map_err(|error| malformed(&error))?;
        serde_json::from_value(value).map_err(|error| malformed(&error))
    }
}

/// The keys of one reading of the file, by their digests.
struct KnownKeys {
    version: Digest,
    by_digest: HashMap<Digest, ApiKey>,
}

/// A key that is accepted.
struct ApiKey {
    caller: CallerClaims,
    scopes: Arc<Scopes>,
}

impl KnownKeys {
    fn read(bytes: &[u8]) -> Result<Self, ApiKeyError> {
        Self::of(&ApiKeyFile::decode(bytes)?, Digest::of(bytes))
    }

    fn of(file: &ApiKeyFile, version: Digest) -> Result<Self, ApiKeyError> {
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
                return Err(wrong(("name", "is that of another key")));
            }
            let former = by_digest.insert(digest, key);
            if former.is_some() {
                return Err(wrong(("sha256", "is that of another key")));
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
                .map_err(|_| ("expires_at", "is no time of RFC 3339"))?,
        };
        Ok(ApiKey {
            caller: CallerClaims {
                issuer: ISSUER.to_owned(),
                subject: self.subject.clone(),
                tenant: self.tenant.clone(),
                roles: self.roles.clone(),
                attributes: attributes.ok_or((
                    "attributes",
                    "has a value that is no text, whole number, truth value or array of texts",
                ))?,
                token_id: self.name.clone(),
                expires_at,
            },
            scopes: Arc::new(self.scopes.iter().cloned().collect()),
        })
    }
}

/// The API keys of a file, as it is now.
pub(super) struct ApiKeys {
    path: PathBuf,
    known: ArcSwap<KnownKeys>,
    /// Whether the last reading failed.
    is_failing: AtomicBool,
}

impl ApiKeys {
    /// Reads the file, which has to be usable.
    pub(super) async fn load(config: &ApiKeyConfig) -> Result<Arc<Self>, ApiKeyError> {
        let bytes = read_file(&config.file).await?;
        Ok(Arc::new(Self {
            path: config.file.clone(),
            known: ArcSwap::from_pointee(KnownKeys::read(&bytes)?),
            is_failing: AtomicBool::new(false),
        }))
    }

    /// Reads the file again and again, for as long as the handle lives.
    pub(super) fn keep_current(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let keys = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                tokio::time::sleep(REREAD_EVERY).await;
                keys.refresh().await;
            }
        }))
    }

    /// Takes over a change of the file. One that cannot be used leaves the former keys in force, and is logged once.
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
                "the file of the API keys cannot be used; the former keys stay in force"
            ),
            Ok(None) | Err(_) => {}
        }
    }

    /// What the file says; none where it is as it was.
    async fn read_change(&self) -> Result<Option<KnownKeys>, ApiKeyError> {
        let bytes = read_file(&self.path).await?;
        if Digest::of(&bytes) == self.version() {
            return Ok(None);
        }
        KnownKeys::read(&bytes).map(Some)
    }

    /// Changes with every change of the file.
    pub(super) fn version(&self) -> Digest {
        self.known.load().version
    }

    /// The caller of a key by the key's digest, its scopes, and the version of the file that has it. The caller lasts an
    /// hour at most.
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
