//! Section `console`, of a console that runs by itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use wardgate_console::{HttpLimits, SignInConfig};
use wardgate_edge::{AuthConfig, HttpsFiles, TrustedProxies};
use wardgate_rpc::Drain;
use wardgate_rpc::link::TlsFiles;
use wardgate_store::DatabaseSettings;

/// How a console that runs by itself listens, whom it lets in, and whom it calls. In `up` it shares the gateway's
/// address, and the gateway's settings hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsoleWiring {
    #[serde(default = "listen")]
    pub(crate) listen: SocketAddr,
    /// The certificate by which it terminates TLS; none: plain HTTP.
    #[serde(default)]
    pub(crate) https: Option<HttpsFiles>,
    /// Who is believed about whom it speaks for.
    #[serde(default)]
    pub(crate) trusted_proxies: TrustedProxies,
    /// Address of probes and `/metrics`; then `/ready` is not served beside the pages. None: port 9090 of loopback, or
    /// another one if that is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// How browsers reach it; where that is https, so is its cookie.
    #[serde(default)]
    pub(crate) public_url: Option<String>,
    /// Hosts browsers may name, without port, besides loopback and the public URL's.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    #[serde(default)]
    pub(crate) limits: HttpLimits,
    /// Whom people are signed in by; none: they bring a token.
    #[serde(default)]
    pub(crate) sign_in: Option<SignInConfig>,
    /// Whose tokens are accepted; the same issuers as the gateway's, which gets the same tokens.
    pub(crate) auth: AuthConfig,
    /// What sessions are sealed under, the same for every replica.
    #[serde(default)]
    pub(crate) cookie_key_file: Option<PathBuf>,
    /// Where what came of calls is kept, the same for every replica; none: a file of this one's own.
    #[serde(default)]
    pub(crate) store: Option<String>,
    #[serde(default)]
    pub(crate) database: DatabaseSettings,
    pub(crate) links: ConsoleLinks,
    /// With which certificate it calls policy and audit.
    #[serde(default)]
    pub(crate) tls: Option<TlsFiles>,
    /// How it ends.
    #[serde(default)]
    pub(crate) drain: Drain,
}

/// Whom a console calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsoleLinks {
    /// Where the gateway's paths begin.
    #[serde(deserialize_with = "super::url")]
    pub(crate) gateway: Url,
    /// The authorities of the certificates of gateway and agent; none: the system's.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// Where the agent's paths begin; none: there is no chat.
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) agent: Option<Url>,
    /// Who says who may read the record.
    #[serde(default)]
    pub(crate) policy: Option<String>,
    /// Where the record is. Without both it is not shown.
    #[serde(default)]
    pub(crate) audit: Option<String>,
}

/// Section `console` of `wardgate up`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalConsole {
    /// Whom people are signed in by; none: they bring a token.
    #[serde(default)]
    pub(crate) sign_in: Option<SignInConfig>,
}

fn some_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    super::url(deserializer).map(Some)
}

fn listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8082).into()
}

#[cfg(test)]
mod tests {
    use crate::config::{ConsoleWiring, Settings};

    fn wiring(text: &str) -> Result<ConsoleWiring, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wardgate.yaml");
        std::fs::write(&path, text).unwrap();
        let settings = Settings::load(&path).unwrap();
        settings
            .wiring("console")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_console_needs_a_gateway_and_issuers_and_nothing_more() {
        let auth = "auth: { issuers: [{ issuer: 'https://i', audience: a, jwks: { file: k } }] }";
        let least =
            format!("console:\n  {auth}\n  links: {{ gateway: 'http://127.0.0.1:8080' }}\n");
        let least = wiring(&least).unwrap();
        assert_eq!(least.listen.to_string(), "127.0.0.1:8082");
        assert!(least.links.agent.is_none() && least.links.audit.is_none());
        for (text, named) in [
            (format!("console:\n  {auth}\n  links: {{}}\n"), "gateway"),
            (
                "console:\n  links: { gateway: 'http://h' }\n".to_owned(),
                "auth",
            ),
            (
                format!("console:\n  {auth}\n  links: {{ gateway: h }}\n"),
                "not a URL",
            ),
            (
                format!("console:\n  {auth}\n  links: {{ gateway: 'http://h', agnet: x }}\n"),
                "agnet",
            ),
        ] {
            let told = wiring(&text).unwrap_err();
            assert!(told.contains(named), "{text}: {told}");
        }
    }
}
