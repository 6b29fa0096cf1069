//! The configuration of the gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_authorization_facade::AuthorizationConfig;
use wardgate_connect::SignInConfig;
use wardgate_domain::duration;
use wardgate_edge::{AuthConfig, BodyLimits, ConnectionLimits, ListenerLimits};
use wardgate_gateway_record::APPEND_LIMIT;
use wardgate_resilience::concurrency::Config as Concurrency;
use wardgate_resilience::quota::Quota;
use wardgate_rpc::client::LONGEST_APPEND;
use wardgate_store::DatabaseSettings;

use crate::{Error, ScopesConfig};

/// The configuration of the gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address and port on which the gateway listens for HTTP.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// The URL at which clients reach the gateway, for example `https://mcp.hospital.example`. It is part of the protected
    /// resource metadata. Default: `http://` and the address the gateway listens on.
    #[serde(default)]
    pub public_url: Option<String>,
    /// The URL at which other replicas reach this one, for example `http://10.1.2.3:8080`. A message for a stream of `GET /sse`
    /// is forwarded to the replica that serves the stream. `None` if there is one replica, or if clients are routed to their
    /// replica by other means.
    #[serde(default)]
    pub advertise: Option<String>,
    /// File with the CA certificates of the other replicas, if they are reached by https.
    #[serde(default)]
    pub advertise_ca_file: Option<PathBuf>,
    /// The store of sessions, their streams and values that may be used once: `sqlite:PATH` for one gateway, `postgres://…` for
    /// several that share it. `None` leaves the choice to the code that starts the gateway.
    #[serde(default)]
    pub store: Option<String>,
    /// The settings of the store's database.
    #[serde(default)]
    pub database: DatabaseSettings,
    /// Hosts that clients may name, without port, besides loopback and the host of the public URL.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the gateway, for example `https://console.hospital.example`, besides those on an
    /// allowed host.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// Whether `/message` also accepts the dialect in which the method is the tool's name: a result is `{"data":[…]}`, a
    /// refusal is HTTP 403 `Forbidden: …`.
    #[serde(default)]
    pub direct_methods: bool,
    /// The limits of a request.
    #[serde(default)]
    pub limits: Limits,
    /// How many requests are processed at once, and how many wait in the queue.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Time that a call waits for its record before it is refused, unless appends were measured to be slower. Default: 800 ms;
    /// maximum: five seconds.
    #[serde(with = "duration", default = "default_append_limit")]
    pub append_limit: Duration,
    /// The scopes that operations require of a token.
    #[serde(default)]
    pub scopes: ScopesConfig,
    /// The URL of the authorization server's metadata. Clients of 2025-03-26 request the metadata from the gateway, and are
    /// redirected there. `None` disables the redirect; later clients do not need it.
    #[serde(default)]
    pub authorization_server_metadata: Option<String>,
    /// The issuers whose tokens are accepted, and how tokens are verified.
    pub auth: AuthConfig,
    /// The identity provider in front of which the gateway acts as an authorization server. `None`: clients use the issuers
    /// directly.
    #[serde(default)]
    pub authorization: Option<AuthorizationConfig>,
    /// How users of browsers sign in to let sources act in their name. `None`: nobody can sign in.
    #[serde(default)]
    pub sign_in: Option<SignInConfig>,
}

fn default_append_limit() -> Duration {
    APPEND_LIMIT
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8080).into()
}

/// The limits of requests, connections and streams.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum size of a body, in bytes.
    pub body_bytes: usize,
    /// Maximum nesting depth of a body.
    pub depth: usize,
    /// Maximum time to send the header of a request, in seconds.
    pub header_seconds: u64,
    /// Maximum time to send the body of a request, in seconds.
    pub body_seconds: u64,
    /// Maximum number of open connections. Further connections are refused, except for probes.
    pub connections: usize,
    /// Lifetime of a connection, and the share of the connections that one client may take.
    pub listener: ListenerLimits,
    /// Maximum number of open streams of changes, never more than half of `connections`, so that calls get through.
    pub streams: usize,
    /// Number of requests that one caller may make at once, and in each minute. Sessions, pings, cancellations, responses and
    /// streams that only listen are not counted. `None`: 6,000, and answers do not mention the limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Quotas of callers, teams or tenants for tools, prompts, resources and conversations. Default: none.
    pub quotas: Vec<Quota>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            depth: 64,
            header_seconds: 10,
            body_seconds: 30,
            connections: 4_096,
            listener: ListenerLimits::default(),
            streams: 2_048,
            requests_per_minute: None,
            quotas: Vec::new(),
        }
    }
}

impl Limits {
    /// Returns the effective maximum number of streams of changes.
    pub(crate) fn streams(&self) -> usize {
        self.streams.min(self.connections / 2)
    }

    /// Returns the limits of connections.
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }

    /// Returns the limits of a body.
    pub(crate) fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }
}

impl Config {
    /// Checks the constraints that the types alone do not express.
    pub fn validate(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Config(what));
        if let Some(url) = &self.public_url {
            let parsed = url.parse::<http::Uri>().ok();
            if parsed
                .as_ref()
                .is_none_or(|url| url.scheme().is_none() || url.host().is_none())
            {
                return wrong(format!(
                    "gateway.public_url: `{url}` is not an absolute URL"
                ));
            }
            if url.ends_with("/api") || url.ends_with("/mcp") {
                return wrong(format!(
                    "gateway.public_url: remove the path of `{url}`; /mcp is appended"
                ));
            }
        }
        AuthorizationConfig::validate_either(
            self.authorization.as_ref(),
            self.authorization_server_metadata.as_deref(),
            &self.auth,
        )?;
        if self.append_limit.is_zero() || self.append_limit > LONGEST_APPEND {
            return wrong(format!(
                "gateway.append_limit: `{}` is not between 1ms and {}",
                duration::format(self.append_limit),
                duration::format(LONGEST_APPEND)
            ));
        }
        if let Err(error) = Quota::validate(&self.limits.quotas) {
            return wrong(format!("gateway.limits.quotas: {error}"));
        }
        if let Err(error) = self.concurrency.validate() {
            return wrong(format!("gateway.{error}"));
        }
        if let Err(scope) = self.scopes.validate() {
            return wrong(format!(
                "gateway.scopes: `{scope}` is not a scope; use visible ASCII without quotes and backslashes"
            ));
        }
        if let Some(url) = &self.advertise {
            let parsed = url.parse::<http::Uri>().ok();
            let bare = parsed.is_some_and(|parsed| {
                matches!(parsed.scheme_str(), Some("http" | "https"))
                    && parsed.host().is_some()
                    && parsed.path() == "/"
                    && parsed.query().is_none()
            });
            if !bare || url.ends_with('/') {
                return wrong(format!(
                    "gateway.advertise: `{url}` is not a URL of scheme, host and port, like http://10.1.2.3:8080"
                ));
            }
        }
        Ok(())
    }

    /// Returns the hosts that requests may name, without port. Other replicas name the advertised host.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let advertised = self.advertise.as_ref();
        let advertised = advertised.and_then(|url| url.parse::<http::Uri>().ok());
        let advertised = advertised.and_then(|url| {
            let host = url.host()?.trim_matches(['[', ']']);
            Some(host.to_owned())
        });
        self.allowed_hosts
            .iter()
            .cloned()
            .chain(advertised)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertising_config(url: &str) -> Config {
        let auth = serde_json::json!({ "issuers": [] });
        let config =
            serde_json::json!({ "advertise": url, "allowed_hosts": ["own"], "auth": auth });
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn an_advertised_address_is_scheme_host_and_port() {
        for good in [
            "http://10.1.2.3:8080",
            "https://gateway-0.gateways",
            "http://[fd00::1]:8080",
        ] {
            advertising_config(good).validate().unwrap();
        }
        for bad in [
            "",
            "10.1.2.3:8080",
            "ftp://a",
            "http://a/",
            "http://a/mcp",
            "http://a?b",
        ] {
            let message = advertising_config(bad).validate().unwrap_err().to_string();
            assert!(message.contains("gateway.advertise"), "{bad}: {message}");
        }
    }

    #[test]
    fn other_replicas_may_name_the_advertised_host() {
        assert_eq!(
            advertising_config("http://10.1.2.3:8080").hosts(),
            ["own", "10.1.2.3"]
        );
        assert_eq!(
            advertising_config("http://[fd00::1]:8080").hosts(),
            ["own", "fd00::1"]
        );
    }
}
