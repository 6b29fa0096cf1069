//! Links: the same client transport to a service in this process or to one behind a socket.

mod answer;
mod balance;
mod ejection;
mod pool;
mod replica;
mod resolve;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tower::util::BoxCloneSyncService;
use tower::{Service as TowerService, ServiceExt};
use wardgate_domain::Ambient;

use self::balance::BalancedTransport;
use self::pool::Pool;
use crate::access::Trust;
use crate::peer::Peer;
use crate::readiness::{Readiness, Service};
use crate::stack::Stack;

/// A client transport to one service; cheap to clone.
pub type Link = BoxCloneSyncService<Request<Body>, Response<Body>, tonic::transport::Error>;

/// The way to a service: its transport and, where it is in this process, the methods that are called as functions.
#[derive(Debug, Clone)]
pub struct ServiceLink<L = ()> {
    /// For the methods that are not in `L`, and for a service in another process.
    pub transport: Link,
    /// The service in this process, and who calls it.
    pub(crate) local: Option<(L, Peer)>,
}

impl<L> From<Link> for ServiceLink<L> {
    fn from(transport: Link) -> Self {
        Self {
            transport,
            local: None,
        }
    }
}

/// A service that this process may call, and whether it is ready.
#[derive(Debug, Clone)]
pub struct LinkedService<L = ()> {
    /// Where calls go.
    pub link: ServiceLink<L>,
    /// Whether it can do its work, as last heard.
    pub readiness: watch::Receiver<Readiness>,
}

/// A link that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a URL, or not one of http or https.
    #[error("`{url}` is not a service address; write https://host:port")]
    Address {
        /// What was configured.
        url: String,
    },
    /// Plain text was not asked for, or not to this machine.
    #[error(
        "`{url}` is plain text: use https and `tls`, or a loopback address with `plaintext: true`"
    )]
    PlainText {
        /// What was configured.
        url: String,
    },
    /// A certificate or key file.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Certificates that do not fit together.
    #[error("the certificates of {url} cannot be used: {source}")]
    Tls {
        /// For which address.
        url: String,
        /// Why not.
        source: tonic::transport::Error,
    },
}

/// Certificates of one service: its own, its key, and the authority that signed its peers'.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Authority, PEM.
    pub ca: PathBuf,
    /// Own certificate chain, PEM; its DNS name says which part of the platform this is.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl TlsFiles {
    pub(crate) fn read(&self) -> Result<(Certificate, Identity), Error> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| Error::File {
                path: path.clone(),
                source,
            })
        };
        Ok((
            Certificate::from_pem(read(&self.ca)?),
            Identity::from_pem(read(&self.cert)?, read(&self.key)?),
        ))
    }
}

/// A link to a service in this process, for calls by `caller`. The methods of `L` are called as functions; the messages of
/// the others are encoded, without socket and HTTP/2.
pub fn local<S, L>(service: Service<S, L>, caller: Peer) -> LinkedService<L>
where
    S: TowerService<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let link = Stack::new(service.server, Trust::Certificate)
        .map_request(move |mut request: Request<Body>| {
            // Over a wire nothing but the message arrives; here neither.
            request.extensions_mut().clear();
            request.extensions_mut().insert(caller);
            request
        })
        .map_err(|never: std::convert::Infallible| match never {});
    LinkedService {
        link: ServiceLink {
            transport: BoxCloneSyncService::new(link),
            local: Some((service.local, caller)),
        },
        readiness: service.readiness,
    }
}

/// A link to the service `name` (its proto name) at `url`: `https://host:port` with certificates, or
/// plain `http://` to a loopback address when `tls` is none. Calls are spread over every address that the host has,
/// and connections are made anew whenever they are lost.
pub fn connect<L>(
    url: &str,
    server_name: Peer,
    name: &'static str,
    tls: Option<&TlsFiles>,
) -> Result<LinkedService<L>, Error> {
    let address = || Error::Address {
        url: url.to_owned(),
    };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| address())?;
    let origin = endpoint.uri().clone();
    let host = origin.host().ok_or_else(address)?;
    let (port, tls) = match (origin.scheme_str(), tls) {
        (Some("https"), Some(files)) => {
            let (authority, identity) = files.read()?;
            let config = ClientTlsConfig::new()
                .ca_certificate(authority)
                .identity(identity)
                .domain_name(server_name.as_str());
            (443, Some(config))
        }
        (Some("http"), None) if is_loopback(&origin) => (80, None),
        (Some("http" | "https"), _) => {
            return Err(Error::PlainText {
                url: url.to_owned(),
            });
        }
        _ => return Err(address()),
    };
    let lookup = resolve::system(host, origin.port_u16().unwrap_or(port));
    let dial = ReplicaConnector { origin, tls };
    // What is wrong with the certificates shows at start.
    let unspecified = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    dial.endpoint(unspecified).map_err(|source| Error::Tls {
        url: url.to_owned(),
        source,
    })?;
    Ok(balanced(server_name, name, lookup, dial))
}

fn balanced<L>(
    server_name: Peer,
    name: &'static str,
    lookup: resolve::Lookup,
    dial: ReplicaConnector,
) -> LinkedService<L> {
    let (pool, readiness) = Pool::open(server_name.as_str(), name, lookup, dial);
    let calls = BalancedTransport::new(pool, readiness.clone(), Ambient::system())
        .map_err(|never: std::convert::Infallible| match never {});
    LinkedService {
        link: BoxCloneSyncService::new(calls).into(),
        readiness,
    }
}

/// A connection on which nothing came for so long is asked whether it lives, and has as long again to answer: what is
/// lost without a word, with its node or its network, is noticed after twice this.
const SILENT: Duration = Duration::from_secs(2);

/// The connector to the replica at an address.
#[derive(Debug)]
struct ReplicaConnector {
    /// What the service is called, whatever its address.
    origin: http::Uri,
    tls: Option<ClientTlsConfig>,
}

impl ReplicaConnector {
    fn endpoint(&self, address: SocketAddr) -> Result<Endpoint, tonic::transport::Error> {
        let scheme = self.tls.as_ref().map_or("http", |_| "https");
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?;
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.clone())?;
        }
        Ok(endpoint
            .origin(self.origin.clone())
            // A dead neighbour must be told from a slow one well within a second.
            .connect_timeout(Duration::from_millis(500))
            .http2_keep_alive_interval(SILENT)
            .keep_alive_timeout(SILENT)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true))
    }
}

fn is_loopback(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}
