//! The configuration of trusted issuers and of the mapping of their claims.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use wardgate_domain::is_loopback_host;

use super::Error;
use super::claim_value::is_name;

/// Maximum length of a subject prefix, in bytes.
const MAX_PREFIX: usize = 64;

/// The settings of the authentication of callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// The trusted token issuers; at least one, unless there are API keys.
    #[serde(default)]
    pub issuers: Vec<IssuerConfig>,
    /// The API keys of machine clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_keys: Option<ApiKeyConfig>,
}

/// The settings of API keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The file that `wardgate api-key` writes. A change takes effect within a second.
    pub file: PathBuf,
}

/// The settings of one trusted issuer.
///
/// A claim is named by its key, or by a path of keys separated by dots (`realm_access.roles`). A claim whose key itself
/// contains dots, such as `https://example.com/roles`, takes precedence over a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The exact `iss` of the issuer's tokens, an absolute URL.
    pub issuer: String,
    /// The exact value that `aud` must have or contain: the name by which the issuer knows the whole gateway. In any
    /// case, `aud` may instead be the URL of a resource (RFC 8707), if the listener has a public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The source of the issuer's public keys. If missing, its metadata states it (RFC 8414, or `OpenID` Connect
    /// Discovery).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<JwksSource>,
    /// The introspection endpoint, which is asked about each token instead of verifying signatures. It is needed for
    /// tokens that are not JWTs, or if a revoked token has to be refused before it expires. At most one issuer can have
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introspection: Option<IntrospectionConfig>,
    /// The claim with the caller's roles: an array of strings, or a string that is a single role. Default `roles`.
    #[serde(default = "default_roles_claim")]
    pub roles_claim: String,
    /// The roles that the issuer's tokens may assign; others are ignored. Required if several issuers are trusted, so
    /// that no issuer can assign a role that only another issuer may assign.
    #[serde(default)]
    pub roles: Option<BTreeSet<String>>,
    /// A prefix that is added to `sub` to form the subject of a caller, so that issuers that know different people
    /// never name the same subject. Required for all issuers but one if several are trusted. Issuers that know the same
    /// people have the same prefix, which may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_prefix: Option<String>,
    /// The claim with the caller's tenant. If set, a token without the claim is refused.
    #[serde(default)]
    pub tenant_claim: Option<String>,
    /// The attributes that policies may use, as a map from attribute name to claim. The value of the claim is a text,
    /// an integer, a Boolean or an array of texts. A caller whose token lacks the claim lacks the attribute.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// The required token type. If missing, `typ` may be absent, `JWT` or `at+jwt`.
    #[serde(default)]
    pub token_type: Option<TokenType>,
    /// Maximum difference between the issuer's clock and the local clock, in seconds, 0 to 30. Default 10.
    #[serde(default = "default_leeway")]
    pub leeway_seconds: u64,
    /// Interval at which the keys are read again, in seconds, 1 to 3600. Default 50: since a fetch may take 5 s, a key
    /// that the issuer removed is refused within a minute.
    #[serde(default = "default_refresh")]
    pub refresh_seconds: u64,
    /// Maximum time for which the last keys stay in use if newer ones cannot be read, in seconds; at least
    /// `refresh_seconds`. Default 24 hours.
    #[serde(default = "default_key_ttl")]
    pub key_ttl_seconds: u64,
}

/// The source of a JSON Web Key Set (RFC 7517): exactly one of `file` and `url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "JwksFields", into = "JwksFields")]
pub enum JwksSource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// An `https` URL; plain `http` is allowed only for loopback hosts. Redirects are not followed.
    Url(String),
}

/// The settings for introspecting the tokens of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    /// The issuer's introspection endpoint: `https`, or `http` on a loopback host.
    pub url: String,
    /// The client id of the gateway at the issuer.
    pub client_id: String,
    /// The file with the client secret. It is read for each request, so that a new secret needs no restart.
    pub client_secret_file: PathBuf,
    /// The time for which an answer is cached, in seconds, 0 to 300. A revoked token is still accepted for this time.
    /// Default 10.
    #[serde(default = "default_cache")]
    pub cache_seconds: u64,
}

/// A token type that the configuration can require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenType {
    /// JWT access tokens (RFC 9068).
    #[serde(rename = "at+jwt")]
    AccessToken,
}

/// [`JwksSource`] as it is written in the configuration.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JwksFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl TryFrom<JwksFields> for JwksSource {
    type Error = &'static str;

    fn try_from(fields: JwksFields) -> Result<Self, Self::Error> {
        match fields {
            JwksFields {
                file: Some(file),
                url: None,
            } => Ok(Self::File(file)),
            JwksFields {
                file: None,
                url: Some(url),
            } => Ok(Self::Url(url)),
            _ => Err("jwks requires exactly one of `file` and `url`"),
        }
    }
}

impl From<JwksSource> for JwksFields {
    fn from(source: JwksSource) -> Self {
        match source {
            JwksSource::File(file) => Self {
                file: Some(file),
                url: None,
            },
            JwksSource::Url(url) => Self {
                file: None,
                url: Some(url),
            },
        }
    }
}

fn default_roles_claim() -> String {
    "roles".to_owned()
}

const fn default_leeway() -> u64 {
    10
}

const fn default_refresh() -> u64 {
    50
}

const fn default_key_ttl() -> u64 {
    24 * 60 * 60
}

const fn default_cache() -> u64 {
    10
}

impl AuthConfig {
    /// Creates a configuration with issuers only.
    pub fn of_issuers(issuers: Vec<IssuerConfig>) -> Self {
        Self {
            issuers,
            api_keys: None,
        }
    }

    /// Validates like [`Self::validate`], for an edge with the URL `public_url`. Without a URL, every issuer needs an
    /// audience.
    pub fn validate_for(&self, public_url: Option<&str>) -> Result<(), Error> {
        self.validate()?;
        let lacking = self.issuers.iter().position(|it| it.audience.is_none());
        match lacking.filter(|_| public_url.is_none()) {
            None => Ok(()),
            Some(index) => Err(Error::Issuer {
                index,
                field: "audience",
                problem: "is missing; set the `aud` of the accepted tokens, such as the URL of the gateway's /mcp"
                    .to_owned(),
            }),
        }
    }

    /// Checks the values that types alone cannot check. The error names the field and a valid value.
    pub fn validate(&self) -> Result<(), Error> {
        if self.issuers.is_empty() && self.api_keys.is_none() {
            return Err(Error::NoIssuer);
        }
        let asked = |it: &IssuerConfig| it.introspection.is_some();
        let (first, last) = (
            self.issuers.iter().position(asked),
            self.issuers.iter().rposition(asked),
        );
        if let Some(index) = last.filter(|_| first != last) {
            return Err(Error::Issuer {
                index,
                field: "introspection",
                problem:
                    "is also set for another issuer; only one issuer can have token introspection"
                        .to_owned(),
            });
        }
        let mut seen = BTreeSet::new();
        for (index, issuer) in self.issuers.iter().enumerate() {
            issuer
                .validate()
                .map_err(|(field, problem)| Error::Issuer {
                    index,
                    field,
                    problem,
                })?;
            if !seen.insert(&issuer.issuer) {
                let problem = "is listed twice; list each issuer once".to_owned();
                return Err(Error::Issuer {
                    index,
                    field: "issuer",
                    problem,
                });
            }
            if self.issuers.len() > 1 && issuer.roles.is_none() {
                let problem =
                    "is missing; if several issuers are trusted, list the roles that each may assign"
                        .to_owned();
                return Err(Error::Issuer {
                    index,
                    field: "roles",
                    problem,
                });
            }
        }
        self.validate_subject_prefixes()
    }

    /// Checks that two issuers can name the same subject only if the configuration states that they know the same
    /// people.
    fn validate_subject_prefixes(&self) -> Result<(), Error> {
        let wrong = |index, problem: &str| {
            let (field, problem) = ("subject_prefix", problem.to_owned());
            Err(Error::Issuer {
                index,
                field,
                problem,
            })
        };
        let issuers = self.issuers.iter().enumerate();
        let mut without = issuers.filter(|(_, it)| it.subject_prefix.is_none());
        if let Some((index, _)) = without.nth(1) {
            return wrong(
                index,
                "is missing; set a unique prefix, such as `partner:`, so that subjects of this issuer differ from those of other issuers, \
                 or the same prefix, `\"\"` included, for issuers that identify the same people",
            );
        }
        for (index, issuer) in self.issuers.iter().enumerate() {
            let prefix = issuer.subject_prefix();
            let longer = self.issuers.iter().map(IssuerConfig::subject_prefix);
            let mut longer = longer.filter(|it| *it != prefix && it.starts_with(prefix));
            if !prefix.is_empty() && longer.next().is_some() {
                return wrong(
                    index,
                    "is the beginning of the prefix of another issuer, so subjects of the two could be equal",
                );
            }
        }
        Ok(())
    }

    /// Returns the subject of a caller whom the issuer of `rules` calls `name`, or `None` if another issuer could name
    /// the same subject.
    pub(super) fn subject(&self, rules: &IssuerConfig, name: &str) -> Option<String> {
        let prefix = rules.subject_prefix();
        let subject = format!("{prefix}{name}");
        let others = self.issuers.iter().map(IssuerConfig::subject_prefix);
        let mut others = others.filter(|it| *it != prefix && !it.is_empty());
        let is_another = others.any(|it| subject.starts_with(it));
        (!is_another).then_some(subject)
    }
}

impl IssuerConfig {
    /// Creates the settings of an issuer with defaults for all other fields.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, jwks: JwksSource) -> Self {
        Self {
            issuer: issuer.into(),
            audience: Some(audience.into()),
            jwks: Some(jwks),
            introspection: None,
            roles_claim: default_roles_claim(),
            roles: None,
            subject_prefix: None,
            tenant_claim: None,
            attributes: BTreeMap::new(),
            token_type: None,
            leeway_seconds: default_leeway(),
            refresh_seconds: default_refresh(),
            key_ttl_seconds: default_key_ttl(),
        }
    }

    fn subject_prefix(&self) -> &str {
        self.subject_prefix.as_deref().unwrap_or_default()
    }

    pub(super) fn leeway(&self) -> Duration {
        Duration::from_secs(self.leeway_seconds)
    }

    pub(super) fn refresh(&self) -> Duration {
        Duration::from_secs(self.refresh_seconds)
    }

    pub(super) fn key_ttl(&self) -> Duration {
        Duration::from_secs(self.key_ttl_seconds)
    }

    fn validate(&self) -> Result<(), (&'static str, String)> {
        Url::parse(&self.issuer).map_err(|error| {
            (
                "issuer",
                format!("is not an absolute URL ({error}); copy the `iss` of its tokens"),
            )
        })?;
        if self.audience.as_ref().is_some_and(String::is_empty) {
            return Err((
                "audience",
                "is empty; set the `aud` of the tokens for this gateway".to_owned(),
            ));
        }
        if let Some(introspection) = &self.introspection {
            if self.jwks.is_some() {
                let problem = "and `introspection` are both set; remove one";
                return Err(("jwks", problem.to_owned()));
            }
            protected_url(&introspection.url).map_err(|problem| ("introspection.url", problem))?;
            let cache = introspection.cache_seconds;
            within("introspection.cache_seconds", cache, 0, 300)?;
        }
        match &self.jwks {
            Some(JwksSource::Url(url)) => {
                protected_url(url).map_err(|problem| ("jwks.url", problem))?;
            }
            Some(JwksSource::File(file)) if file.as_os_str().is_empty() => {
                return Err((
                    "jwks.file",
                    "is empty; set the path of a JSON Web Key Set".to_owned(),
                ));
            }
            Some(JwksSource::File(_)) => {}
            None if self.introspection.is_some() => {}
            None => {
                let not_found =
                    |problem| format!("{problem}; or set `jwks`, the location of its keys");
                protected_url(&self.issuer).map_err(|problem| ("issuer", not_found(problem)))?;
            }
        }
        claim_name(&self.roles_claim).map_err(|problem| ("roles_claim", problem))?;
        let prefix = self.subject_prefix();
        if !prefix.is_empty() && (!is_name(prefix) || prefix.len() > MAX_PREFIX) {
            return Err((
                "subject_prefix",
                format!("is not at most {MAX_PREFIX} visible characters"),
            ));
        }
        if let Some(claim) = &self.tenant_claim {
            claim_name(claim).map_err(|problem| ("tenant_claim", problem))?;
        }
        for (name, claim) in &self.attributes {
            attribute_name(name)
                .and_then(|()| claim_name(claim))
                .map_err(|problem| ("attributes", format!("`{name}`: {problem}")))?;
        }
        within("leeway_seconds", self.leeway_seconds, 0, 30)?;
        within("refresh_seconds", self.refresh_seconds, 1, 3_600)?;
        within(
            "key_ttl_seconds",
            self.key_ttl_seconds,
            self.refresh_seconds,
            30 * 24 * 60 * 60,
        )
    }
}

/// Parses a URL of an issuer, which must be `https`, or `http` on a loopback host.
pub(super) fn protected_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not an absolute URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user name or password; remove it".to_owned());
    }
    let is_loopback = url.host_str().is_some_and(is_loopback_host);
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        "http" => Err("is plain http to another machine; use https".to_owned()),
        scheme => Err(format!("has the scheme `{scheme}`; use https")),
    }
}

/// Checks the name of a claim. Claim names appear in error descriptions, inside a quoted string of a header.
fn claim_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("is not a claim; use visible ASCII without quotes and backslashes".to_owned());
    }
    Ok(())
}

fn attribute_name(name: &str) -> Result<(), String> {
    let mut bytes = name.bytes();
    let starts = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(
            "is not an attribute name; use letters, digits and `_`, as in a policy".to_owned(),
        );
    }
    Ok(())
}

fn within(
    field: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), (&'static str, String)> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err((
        field,
        format!("is {value}; set it between {least} and {most}"),
    ))
}

#[cfg(test)]
mod tests;
