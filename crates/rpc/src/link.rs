//! Links: client transports to a service in this process or behind a socket.

mod answer;
mod balance;
mod ejection;
mod pool;
mod replica;
mod resolve;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint};
use tower::util::BoxCloneSyncService;
use tower::{Service as TowerService, ServiceExt, service_fn};
use wardgate_domain::{Ambient, is_loopback_host};
use wardgate_tls::{EndOfTls, Files, LiveConfig};

use self::balance::BalancedTransport;
use self::pool::Pool;
use crate::access::Trust;
use crate::peer::Peer;
use crate::readiness::{Readiness, Service};
use crate::stack::Stack;

/// A client transport to one service, cheap to clone.
pub type Link = BoxCloneSyncService<Request<Body>, Response<Body>, tonic::transport::Error>;

/// A connection to a service: its transport and, if it is in this process, the methods that are called as functions.
#[derive(Debug, Clone)]
pub struct ServiceLink<L = ()> {
    /// The transport for methods that are not in `L`, and for services in other processes.
    pub transport: Link,
    /// The methods of the service in this process, and the peer that calls it.
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

/// A service that this process may call, and its readiness.
#[derive(Debug, Clone)]
pub struct LinkedService<L = ()> {
    /// The link for calls to the service.
    pub link: ServiceLink<L>,
    /// The last known readiness of the service.
    pub readiness: watch::Receiver<Readiness>,
}

/// The error for a link that cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not an `http` or `https` URL.
    #[error("`{url}` is not a service address; write https://host:port")]
    Address {
        /// The configured URL.
        url: String,
    },
    /// The URL is plain text, which was not requested or does not lead to a loopback address.
    #[error(
        "`{url}` is plain text: use https and `tls`, or a loopback address with `plaintext: true`"
    )]
    PlainText {
        /// The configured URL.
        url: String,
    },
    /// A certificate or key file is not usable.
    #[error(transparent)]
    Tls(#[from] wardgate_tls::Error),
}

/// The certificate files of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The authority that signs the certificates of peers, PEM.
    pub ca: PathBuf,
    /// The service's own certificate chain, PEM. Its DNS name identifies the component of the platform.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl From<&TlsFiles> for Files {
    fn from(files: &TlsFiles) -> Self {
        Self {
            authority: Some(files.ca.clone()),
            chain: files.cert.clone(),
            key: files.key.clone(),
        }
    }
}

/// HTTP/2 in ALPN (RFC 7301).
pub(crate) const HTTP2: &[u8] = b"h2";

/// Creates a link to a service in this process, for calls by `caller`. The methods of `L` are called as functions. Messages of
/// other methods are encoded, but without a socket and HTTP/2.
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
            // Extensions are removed because over a network, only the message arrives.
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

/// Creates a link to the service `name` (its protobuf name) at `url`: `https://host:port` with certificates, or
/// `http://` with a loopback address if `tls` is `None`. Calls are balanced over all addresses of the host, and lost
/// connections are reestablished.
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
            let config = LiveConfig::open(files.into(), EndOfTls::GrpcClient, |identity| {
                identity.client_config(&[HTTP2])
            })?;
            let server_name = ServerName::try_from(server_name.as_str()).map_err(|_| address())?;
            (
                443,
                Some(ReplicaTls {
                    config,
                    server_name,
                }),
            )
        }
        (Some("http"), None) if origin.host().is_some_and(is_loopback_host) => (80, None),
        (Some("http" | "https"), _) => {
            return Err(Error::PlainText {
                url: url.to_owned(),
            });
        }
        _ => return Err(address()),
    };
    let lookup = resolve::system(host, origin.port_u16().unwrap_or(port));
    let dial = ReplicaConnector { origin, tls };
    Ok(create_link(server_name, name, lookup, dial))
}

fn create_link<L>(
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

/// Returns the certificate that a service presents at `address` now, which may differ from the one in its file. Returns `None` if
/// the service is unreachable or not trusted.
pub async fn served_certificate(
    address: SocketAddr,
    server_name: Peer,
    files: &TlsFiles,
) -> Option<CertificateDer<'static>> {
    let open = |identity: &wardgate_tls::Identity| identity.client_config(&[HTTP2]);
    let connector = ReplicaConnector {
        origin: Uri::default(),
        tls: Some(ReplicaTls {
            config: LiveConfig::open(files.into(), EndOfTls::GrpcClient, open).ok()?,
            server_name: ServerName::try_from(server_name.as_str()).ok()?,
        }),
    };
    match connector.dial(address).await.ok()?.into_inner() {
        Either::Right(stream) => {
            let chain = stream.get_ref().1.peer_certificates()?;
            chain.first().cloned().map(CertificateDer::into_owned)
        }
        Either::Left(_) => None,
    }
}

/// Time without traffic after which a connection is pinged, and the time that it then has to respond. A connection that is lost
/// silently, with its node or its network, is detected after twice this time.
const SILENT: Duration = Duration::from_secs(2);

/// Maximum time to connect to a replica. It is short so that a dead replica is distinguished from a slow
/// one well within a second.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
/// Maximum time for the TLS handshake after that, which takes a busy server longer.
const SHAKES_HANDS_WITHIN: Duration = Duration::from_secs(5);

/// A connection to a replica, in plain text or with TLS.
type ReplicaStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connector to the replicas of one service.
#[derive(Debug, Clone)]
struct ReplicaConnector {
    /// The URL of the service, which is the same for all addresses.
    origin: Uri,
    tls: Option<ReplicaTls>,
}

/// The TLS configuration for connections to the replicas of one service.
#[derive(Debug, Clone)]
struct ReplicaTls {
    config: LiveConfig<ClientConfig>,
    /// The name in the certificate of every replica.
    server_name: ServerName<'static>,
}

impl ReplicaConnector {
    /// Connects to the replica at `address`. When the connection is lost or closed by the server, the channel reconnects with the
    /// certificates that are current then.
    async fn connect(&self, address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
        let connector = self.clone();
        let dial = service_fn(move |_: Uri| {
            let connector = connector.clone();
            async move { connector.dial(address).await }
        });
        // The endpoint is plain text because the connector performs TLS itself.
        Endpoint::from_shared(format!("http://{address}"))?
            .origin(self.origin.clone())
            .http2_keep_alive_interval(SILENT)
            .keep_alive_timeout(SILENT)
            .keep_alive_while_idle(true)
            .connect_with_connector(dial)
            .await
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TokioIo<ReplicaStream>> {
        let stream = timeout(CONNECTS_WITHIN, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let stream = match &self.tls {
            Some(tls) => {
                let connector = TlsConnector::from(tls.config.current());
                let shaking = connector.connect(tls.server_name.clone(), stream);
                Either::Right(Box::new(timeout(SHAKES_HANDS_WITHIN, shaking).await??))
            }
            None => Either::Left(stream),
        };
        Ok(TokioIo::new(stream))
    }
}
