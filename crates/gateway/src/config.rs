//! The gateway's configuration.

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

/// The gateway's configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address and port of every HTTP path.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How clients reach the gateway, for example `https://mcp.hospital.example`. Part of the protected
    /// resource metadata. None: `http://` and the address it listens on.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Where the other replicas reach this one, for example `http://10.1.2.3:8080`: messages to a stream of
    /// `GET /sse` are handed on to the replica that has it. None: there is one replica, or clients are led to theirs.
    #[serde(default)]
    pub advertise: Option<String>,
    /// Authorities of the other replicas' certificates, where they are reached by https.
    #[serde(default)]
    pub advertise_ca_file: Option<PathBuf>,
    /// Where sessions, their streams and what may be used once are kept: `sqlite:PATH` for one gateway,
    /// `postgres://…` for several, which share it. None is for whoever starts the gateway to fill in.
    #[serde(default)]
    pub store: Option<String>,
    /// How the store is used.
    #[serde(default)]
    pub database: DatabaseSettings,
    /// Hosts clients may name, without port, besides loopback and the public URL's.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, for example `https://console.hospital.example`, besides
    /// those on an allowed host.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// Also takes on `/message` the dialect in which the method is the tool's name: a result is
    /// `{"data":[…]}`, a refusal HTTP 403 `Forbidden: …`.
    #[serde(default)]
    pub direct_methods: bool,
    /// What one request may cost.
    #[serde(default)]
    pub limits: Limits,
    /// How many requests are worked on at once, and how many wait for their turn.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// How long a call waits for its record before it is refused, unless appends were measured to be slower; default
    /// 800 ms, at most five seconds.
    #[serde(with = "duration", default = "default_append_limit")]
    pub append_limit: Duration,
    /// Which scopes of a token operations need.
    #[serde(default)]
    pub scopes: ScopesConfig,
    /// Where the authorization server's metadata is, for clients of 2025-03-26: they ask for it at the gateway, and
    /// are redirected. None: the gateway says nothing of it, and later clients find it without.
    #[serde(default)]
    pub authorization_server_metadata: Option<String>,
    /// Whose tokens are accepted.
    pub auth: AuthConfig,
    /// The identity provider that the gateway is an authorization server in front of. None: clients go to the issuers
    /// themselves.
    #[serde(default)]
    pub authorization: Option<AuthorizationConfig>,
    /// How browsers' users are signed in, who let sources act in their name. None: nobody can.
    #[serde(default)]
    pub sign_in: Option<SignInConfig>,
}

fn default_append_limit() -> Duration {
    APPEND_LIMIT
}

fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8080).into()
}

/// What one request may cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest body, bytes.
    pub body_bytes: usize,
    /// Deepest nesting of a body.
    pub depth: usize,
    /// Seconds to send the header of a request.
    pub header_seconds: u64,
    /// Seconds to send the body of a request.
    pub body_seconds: u64,
    /// Open connections; further ones are refused, but for probes.
    pub connections: usize,
    /// How long one connection lasts, and what one client may take.
    pub listener: ListenerLimits,
    /// Open streams of changes, never more than half of `connections`: calls must get through.
    pub streams: usize,
    /// Requests that one caller may make at once, and in each minute. Sessions, pings, cancellations, answers and streams
    /// that only listen are not counted. None: 6,000, of which answers say nothing.
    pub requests_per_minute: Option<NonZeroU32>,
    /// What callers, teams or tenants may use of tools, prompts, resources and conversations. Default: none.
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
    /// Streams of changes there may really be.
    pub(crate) fn streams(&self) -> usize {
        self.streams.min(self.connections / 2)
    }

    /// Those of connections.
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }

    /// Those of a body.
    pub(crate) fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }
}

impl Config {
    /// Checks what types alone cannot.
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
                    "gateway.public_url: write `{url}` without its path; /mcp is added"
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
                duration::show(self.append_limit),
                duration::show(LONGEST_APPEND)
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
                    "gateway.advertise: write scheme, host and port, like http://10.1.2.3:8080, instead of `{url}`"
                ));
            }
        }
        Ok(())
    }

    /// Hosts that requests may name, without port: other replicas name the advertised one.
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

    fn advertising(url: &str) -> Config {
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
            advertising(good).validate().unwrap();
        }
        for bad in [
            "",
            "10.1.2.3:8080",
            "ftp://a",
            "http://a/",
            "http://a/mcp",
            "http://a?b",
        ] {
            let message = advertising(bad).validate().unwrap_err().to_string();
            assert!(message.contains("gateway.advertise"), "{bad}: {message}");
        }
    }

    #[test]
    fn other_replicas_may_name_the_advertised_host() {
        assert_eq!(
            advertising("http://10.1.2.3:8080").hosts(),
            ["own", "10.1.2.3"]
        );
        assert_eq!(
            advertising("http://[fd00::1]:8080").hosts(),
            ["own", "fd00::1"]
        );
    }
}
