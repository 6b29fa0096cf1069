//! The decision to which hosts, and to which of their addresses, requests may be sent.
//!
//! A name is resolved here, once for each connection, and only the addresses that passed are given to the connector. So
//! the checked address is the one that is connected to, even if the name resolves differently a moment later (DNS
//! rebinding).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::EgressError;
use super::address::PrivateAddresses;

/// A resolver of names.
pub(crate) trait DnsResolver: Send + Sync {
    /// Returns all addresses of `name`.
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub(super) struct SystemDns;

impl DnsResolver for SystemDns {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

/// A host to which requests may be sent: `name`, or `name:port` for a port that is not the default of the scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    host: Host<String>,
    port: Option<u16>,
}

/// The text is not a host.
#[derive(Debug, thiserror::Error)]
#[error("not a host or host:port")]
pub struct NotAHost;

impl AllowedHost {
    /// Returns the host of a URL.
    pub fn from_url(url: &Url) -> Option<Self> {
        Some(Self {
            host: url.host()?.to_owned(),
            port: url.port(),
        })
    }

    fn admits(&self, url: &Url) -> bool {
        url.port() == self.port && url.host().is_some_and(|host| host == self.host)
    }
}

impl FromStr for AllowedHost {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        if text.contains(['/', '\\', '@', '?', '#', '*']) || text.trim() != text {
            return Err(NotAHost);
        }
        Url::parse(&format!("http://{text}/"))
            .ok()
            .and_then(|url| Self::from_url(&url))
            .ok_or(NotAHost)
    }
}

/// The hosts and addresses that one source may reach.
pub struct AddressGuard {
    hosts: Vec<AllowedHost>,
    private: PrivateAddresses,
    dns: Arc<dyn DnsResolver>,
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressGuard")
            .field("hosts", &self.hosts)
            .field("private", &self.private)
            .finish_non_exhaustive()
    }
}

impl AddressGuard {
    /// Creates a guard that resolves names by the operating system.
    pub fn new(hosts: Vec<AllowedHost>, private: PrivateAddresses) -> Self {
        Self::with_dns(hosts, private, Arc::new(SystemDns))
    }

    pub(super) fn with_dns(
        hosts: Vec<AllowedHost>,
        private: PrivateAddresses,
        dns: Arc<dyn DnsResolver>,
    ) -> Self {
        Self {
            hosts,
            private,
            dns,
        }
    }

    /// Checks whether `url` may be requested, as far as this is possible without resolving its name. A literal address
    /// is checked here, because connectors do not resolve it.
    pub fn check(&self, url: &Url) -> Result<(), EgressError> {
        let plain = url.username().is_empty() && url.password().is_none();
        let host = match url.host() {
            Some(host) if plain && matches!(url.scheme(), "http" | "https") => host,
            _ => return Err(EgressError::NotHttp),
        };
        if !self.hosts.iter().any(|allowed| allowed.admits(url)) {
            return Err(EgressError::HostNotListed(host.to_string()));
        }
        let address = match host {
            Host::Domain(_) => return Ok(()),
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
        };
        if self.private.admit(address) {
            Ok(())
        } else {
            Err(EgressError::AddressRefused(host.to_string()))
        }
    }

    /// Returns whether `url` is at the service's own host.
    pub(super) fn is_own(&self, url: &Url) -> bool {
        let own = self.hosts.first();
        own.is_some_and(|own| own.admits(url))
    }

    /// Returns all addresses of `name`.
    async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        self.dns.lookup(name.to_owned()).await.map_err(|error| {
            EgressError::Unreachable(format!("the name {name} has no address: {error}"))
        })
    }

    /// Returns the addresses of `name` that may be connected to. Fails if there are none.
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, EgressError> {
        let mut addresses = self.lookup(name).await?;
        addresses.retain(|address| self.private.admit(*address));
        if addresses.is_empty() {
            return Err(EgressError::AddressRefused(name.to_owned()));
        }
        Ok(addresses)
    }
}

/// The guard in the role of an HTTP client's resolver.
pub(super) struct GuardedDns {
    pub(super) guard: Arc<AddressGuard>,
    /// The configured proxy, which may have any address.
    pub(super) proxy: Option<Url>,
}

impl Resolve for GuardedDns {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.guard);
        let proxy = self.proxy.as_ref().and_then(Url::host_str);
        let is_proxy = proxy.is_some_and(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let addresses = if is_proxy {
                guard.lookup(name.as_str()).await?
            } else {
                guard.resolve(name.as_str()).await?
            };
            let addresses = addresses.into_iter();
            // The connector sets the port of the URL.
            Ok(Box::new(addresses.map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}
