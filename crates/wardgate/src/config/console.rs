//! The section `console`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use wardgate_console::{HttpLimits, SignInConfig};
use wardgate_edge::{AuthConfig, HttpsFiles, TrustedProxies};
use wardgate_rpc::Drain;
use wardgate_rpc::link::TlsFiles;
use wardgate_store::DatabaseSettings;

/// Wiring of a separate console: its listener, its admission of browsers and its links. In `up` the console shares the
/// gateway's address and settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsoleWiring {
    #[serde(default = "listen")]
    pub(crate) listen: SocketAddr,
    /// The certificate for TLS termination, or `None` for plain HTTP.
    #[serde(default)]
    pub(crate) https: Option<HttpsFiles>,
    /// The proxies whose statements about the client's address are trusted.
    #[serde(default)]
    pub(crate) trusted_proxies: TrustedProxies,
    /// Address of probes and `/metrics`. If it is set, `/ready` is not served beside the pages. If it is `None`, port 9090
    /// of loopback is used, or another port if that one is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// The URL at which browsers reach the console. If it is `https`, the cookie is `Secure`.
    #[serde(default)]
    pub(crate) public_url: Option<String>,
    /// Additional hosts that are allowed in `Host` headers, without port, besides loopback and the host of the public URL.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    #[serde(default)]
    pub(crate) limits: HttpLimits,
    /// The provider that signs people in, or `None` if people enter a token.
    #[serde(default)]
    pub(crate) sign_in: Option<SignInConfig>,
    /// The issuers whose tokens are accepted. They must be those of the gateway, because it receives the same tokens.
    pub(crate) auth: AuthConfig,
    /// The key file for sealing sessions, which must be the same for every replica.
    #[serde(default)]
    pub(crate) cookie_key_file: Option<PathBuf>,
    /// The store of sessions and of the results of calls, which must be the same for every replica. If it is `None`, this
    /// process uses its own file.
    #[serde(default)]
    pub(crate) store: Option<String>,
    #[serde(default)]
    pub(crate) database: DatabaseSettings,
    pub(crate) links: ConsoleLinks,
    /// The certificate for calls to the policy and audit services.
    #[serde(default)]
    pub(crate) tls: Option<TlsFiles>,
    /// Timing of the graceful shutdown.
    #[serde(default)]
    pub(crate) drain: Drain,
}

/// URLs of the services that a console calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsoleLinks {
    /// The base URL of the gateway.
    #[serde(deserialize_with = "super::url")]
    pub(crate) gateway: Url,
    /// The authorities of the certificates of the gateway and the agent, or `None` for those of the system.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// The base URL of the agent, or `None` if there is no chat.
    #[serde(default, deserialize_with = "some_url")]
    pub(crate) agent: Option<Url>,
    /// The policy service, which decides who may read the record.
    #[serde(default)]
    pub(crate) policy: Option<String>,
    /// The audit service. The record is shown only if this and `policy` are set.
    #[serde(default)]
    pub(crate) audit: Option<String>,
}

/// The section `console` of `wardgate up`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalConsole {
    /// The provider that signs people in, or `None` if people enter a token.
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

    fn read_wiring(text: &str) -> Result<ConsoleWiring, String> {
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
        let least = read_wiring(&least).unwrap();
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
            let told = read_wiring(&text).unwrap_err();
            assert!(told.contains(named), "{text}: {told}");
        }
    }
}
