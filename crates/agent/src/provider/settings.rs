//! The configuration section `providers`: the address, the credentials and the timeouts of each provider.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;
use wardgate_domain::{duration, is_loopback_host};
use wardgate_egress::{InvalidProxy, NetworkSettings, TlsSettings};

use super::secret::Secret;

const LONGEST_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// One entry of `providers`. Durations are written like `30s` or as whole seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSettings {
    /// The API that the provider supports.
    #[serde(rename = "type")]
    pub(crate) kind: ProviderKind,
    /// The URL to which the API's paths are appended: up to `/v1` for `openai`, the bare server for the others.
    pub(crate) base_url: String,
    /// The API key. An empty key counts as absent.
    #[serde(default)]
    pub(crate) api_key: Option<Secret>,
    /// Additional headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Whether plain HTTP to another machine is allowed, for example inside a cluster.
    #[serde(default)]
    pub(crate) allow_http: bool,
    /// The trusted authorities and the client certificate of TLS connections.
    #[serde(default)]
    pub(crate) tls: Option<ProviderTls>,
    /// URL of the HTTP proxy for all connections. It may contain a password.
    #[serde(default)]
    pub(crate) proxy: Option<Secret>,
    /// Timeout from the request to the first byte of the answer.
    #[serde(with = "duration", default = "one_minute")]
    pub(crate) timeout: Duration,
    /// Timeout between two pieces of an answer.
    #[serde(with = "duration", default = "one_minute")]
    pub(crate) idle_timeout: Duration,
    /// Timeout of the complete answer, including all attempts.
    #[serde(with = "duration", default = "ten_minutes")]
    pub(crate) total_timeout: Duration,
    /// Maximum number of attempts, including the first.
    #[serde(default = "three")]
    pub(crate) attempts: u32,
    /// Maximum total size of the text, reasoning and calls of an answer, in bytes.
    #[serde(default = "one_mebibyte")]
    pub(crate) max_answer_bytes: usize,
}

/// The contents of the files of `tls`, in PEM format.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderTls {
    /// The authorities that are trusted instead of the system's.
    #[serde(default)]
    ca: Option<String>,
    /// The client certificate.
    #[serde(default)]
    cert: Option<String>,
    #[serde(default)]
    key: Option<Secret>,
}

/// The API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    /// OpenAI's Chat Completions API, which many servers provide.
    OpenAi,
    /// The Anthropic Messages API.
    Anthropic,
    /// Ollama's `/api/generate`, which takes a prompt and returns text.
    Ollama,
}

impl ProviderKind {
    /// Returns the name used by the configuration and by the OpenTelemetry conventions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    /// Returns whether the API supports function calls. For other APIs, the prompt describes the tools.
    pub(crate) fn carries_calls(self) -> bool {
        self != Self::Ollama
    }
}

fn one_minute() -> Duration {
    Duration::from_secs(60)
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

fn three() -> u32 {
    3
}

fn one_mebibyte() -> usize {
    1 << 20
}

/// An error in the settings of a provider. It shows no values, because they may contain a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider `{provider}`: {problem}")]
pub(crate) struct SettingsError {
    provider: String,
    problem: String,
}

impl SettingsError {
    pub(super) fn new(provider: &str, problem: impl Into<String>) -> Self {
        Self {
            provider: provider.to_owned(),
            problem: problem.into(),
        }
    }
}

impl ProviderSettings {
    /// Returns the URL to post to, and the headers of every request.
    pub(super) fn target(&self, name: &str) -> Result<(Url, HeaderMap), SettingsError> {
        let faulty = |problem: String| SettingsError::new(name, problem);
        if self.attempts == 0 || self.max_answer_bytes == 0 {
            let problem = "`attempts` and `max_answer_bytes` must be at least 1".to_owned();
            return Err(faulty(problem));
        }
        let limits = [self.timeout, self.idle_timeout, self.total_timeout];
        if limits
            .into_iter()
            .any(|limit| limit.is_zero() || limit > LONGEST_LIMIT)
        {
            let problem = "a time limit must be above zero and at most 24h".to_owned();
            return Err(faulty(problem));
        }
        let url = self.url().map_err(|why| {
            faulty(format!(
                "`base_url` {why}; write a URL like https://api.example.com/v1"
            ))
        })?;
        Ok((url, self.headers().map_err(faulty)?))
    }

    /// Returns the TLS and proxy settings for connections to `url`.
    pub(super) fn network(&self, name: &str, url: &Url) -> Result<NetworkSettings, SettingsError> {
        let faulty = |problem: String| SettingsError::new(name, problem);
        let tls = match &self.tls {
            None => TlsSettings::default(),
            Some(_) if url.scheme() == "http" => {
                let problem = "has `tls`, and `base_url` is http; write https, or omit `tls`";
                return Err(faulty(problem.to_owned()));
            }
            Some(ProviderTls { ca, cert, key }) => {
                let key = key.as_ref().map(|key| key.expose().to_owned());
                let tls = TlsSettings::from_pem(ca.clone(), cert.clone(), key);
                tls.map_err(|invalid| faulty(format!("`tls`: {invalid}")))?
            }
        };
        let proxy = self.proxy.as_ref().map(Secret::expose);
        let network = NetworkSettings::new(tls, proxy.filter(|it| !it.is_empty()));
        network.map_err(|invalid| {
            let problem = match invalid {
                InvalidProxy::Url => "`proxy` is not an http(s) URL; write for example http://proxy.example.com:3128",
                InvalidProxy::ReceivesIdentity => {
                    "has `tls` and a proxy with an https URL, which would receive the client certificate; use a proxy with an http URL"
                }
            };
            faulty(problem.to_owned())
        })
    }

    fn url(&self) -> Result<Url, &'static str> {
        let mut url = Url::parse(&self.base_url).map_err(|_| "is not a URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("contains user info; use `api_key` or `headers` instead");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("contains a query or a fragment");
        }
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http || url.host_str().is_some_and(is_loopback_host) => {}
            "http" => {
                return Err(
                    "is plain http to another machine; use https, or set `allow_http: true`",
                );
            }
            _ => return Err("is not an http(s) URL"),
        }
        let base = url.path().trim_end_matches('/');
        let path = match self.kind {
            ProviderKind::OpenAi => format!("{base}/chat/completions"),
            ProviderKind::Anthropic if base.ends_with("/v1") => format!("{base}/messages"),
            ProviderKind::Anthropic => format!("{base}/v1/messages"),
            ProviderKind::Ollama => format!("{base}/api/generate"),
        };
        url.set_path(&path);
        Ok(url)
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
        const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

        let mut headers = HeaderMap::new();
        if self.kind == ProviderKind::Anthropic {
            headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        for (name, secret) in &self.headers {
            let framing = [CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];
            let name = HeaderName::try_from(name)
                .ok()
                .filter(|name| !framing.contains(name))
                .ok_or_else(|| {
                    "`headers` contains a name that cannot be set; use letters, digits and `-`"
                        .to_owned()
                })?;
            let value = sensitive(secret.expose()).ok_or_else(|| not_a_value("headers"))?;
            headers.insert(name, value);
        }
        let key = self.api_key.as_ref().map(Secret::expose);
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            let (name, text) = match self.kind {
                ProviderKind::Anthropic => (API_KEY, key.to_owned()),
                ProviderKind::OpenAi | ProviderKind::Ollama => {
                    (AUTHORIZATION, format!("Bearer {key}"))
                }
            };
            let value = sensitive(&text).ok_or_else(|| not_a_value("api_key"))?;
            if headers.insert(name, value).is_some() {
                return Err("`api_key` is also in `headers`; keep one of them".to_owned());
            }
        }
        Ok(headers)
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn not_a_value(key: &str) -> String {
    format!(
        "`{key}` contains characters that are not valid in a header; use printable ASCII characters"
    )
}

#[cfg(test)]
mod tests;
