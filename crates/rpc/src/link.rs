//! Links: the same client transport to a service in this process or to one behind a socket.

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
    /// Certificates or a key.
    #[error(transparent)]
    Tls(#[from] wardgate_tls::Error),
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

impl From<&TlsFiles> for Files {
    fn from(files: &TlsFiles) -> Self {
        Self {
            authority: Some(files.ca.clone()),
            chain: files.cert.clone(),
            key: files.key.clone(),
        }
    }
}

/// HTTP/2 as TLS names it (RFC 7301).
pub(crate) const HTTP2: &[u8] = b"h2";

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

/// The certificate that a service shows at `address` just now, which need not be the one in its file. None where the
/// service is not reached or not trusted.
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

/// A connection on which nothing came for so long is asked whether it lives, and has as long again to answer: what is
/// lost without a word, with its node or its network, is noticed after twice this.
const SILENT: Duration = Duration::from_secs(2);

/// A replica that does not take a connection in this time is dead: it must be told from a slow one well within a second.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
/// The same for the handshake that follows, which costs a busy server more.
const SHAKES_HANDS_WITHIN: Duration = Duration::from_secs(5);

/// A connection to a replica, plain or within TLS.
type ReplicaStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The connector to the replicas of one service.
#[derive(Debug, Clone)]
struct ReplicaConnector {
    /// What the service is called, whatever its address.
    origin: Uri,
    tls: Option<ReplicaTls>,
}

/// How the replicas of one service are verified, and what they are shown.
#[derive(Debug, Clone)]
struct ReplicaTls {
    config: LiveConfig<ClientConfig>,
    /// The name in the certificate of each.
    server_name: ServerName<'static>,
}

impl ReplicaConnector {
    /// Connects to the replica at `address`. A connection that this channel makes later, when this one is lost or its server
    /// goes away, has the certificates of that moment.
    async fn connect(&self, address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
        let connector = self.clone();
        let dial = service_fn(move |_: Uri| {
            let connector = connector.clone();
            async move { connector.dial(address).await }
        });
        // Plain to the library: TLS is the connector's work.
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
