//! The connection to a server, which is opened on first use, reopened when lost, and kept alive.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::Service;
use url::{Host, Url};

use wardgate_egress::{AddressGuard, ClientIdentity, EgressError, NetworkSettings};

use super::proxy::tunnel;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Idle time of a call before the connection is pinged. It is long, because many servers close connections that are
/// pinged too often.
const PING_AFTER: Duration = Duration::from_secs(20);
const PONG_LIMIT: Duration = Duration::from_secs(10);
const MAX_HEADER_BYTES: u32 = 16 << 10;
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// One HTTP/2 connection, which all clones share.
#[derive(Clone)]
pub(super) struct GrpcChannel {
    channel: Channel,
    made: Arc<AtomicU64>,
}

impl GrpcChannel {
    /// Creates a channel that connects on first use, and only to addresses that `guard` admits. If a proxy is set, the proxy
    /// decides which addresses are admitted.
    pub(super) fn new(
        url: &Url,
        guard: AddressGuard,
        network: &NetworkSettings,
    ) -> Result<Self, tonic::transport::Error> {
        let tls = &network.tls;
        let mut endpoint = Endpoint::from_shared(url.as_str().to_owned())?
            .user_agent(concat!("wardgate/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT_LIMIT)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_LIMIT)
            .http2_max_header_list_size(MAX_HEADER_BYTES);
        if url.scheme() == "https" {
            let mut config = ClientTlsConfig::new().timeout(CONNECT_LIMIT);
            config = match &tls.ca {
                Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
                None => config.with_native_roots(),
            };
            if let Some(ClientIdentity { certificate, key }) = &tls.identity {
                config = config.identity(Identity::from_pem(certificate, key.expose()));
            }
            endpoint = endpoint.tls_config(config)?;
        }
        let made = Arc::new(AtomicU64::new(0));
        let connector = Connector {
            url: url.clone(),
            guard: Arc::new(guard),
            proxy: network.proxy.clone(),
            made: Arc::clone(&made),
        };
        Ok(Self {
            channel: endpoint.connect_with_connector_lazy(connector),
            made,
        })
    }

    /// Returns the number of connections made so far.
    pub(super) fn connection_count(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Service<Request<Body>> for GrpcChannel {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, tonic::transport::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let response = self.channel.call(request);
        Box::pin(async move { Ok(without_details(response.await?)) })
    }
}

/// Removes the status details, because tonic panics if they are malformed, and this client does not use them.
fn without_details(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().remove(DETAILS);
    response.map(|body| {
        Body::new(body.map_frame(|frame| match frame.into_trailers() {
            Ok(trailers) => http_body::Frame::trailers(drop_details(trailers)),
            Err(frame) => frame,
        }))
    })
}

fn drop_details(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(DETAILS);
    headers
}

/// Makes the TCP connections of a channel, which uses TLS on top of them.
#[derive(Clone)]
struct Connector {
    url: Url,
    guard: Arc<AddressGuard>,
    proxy: Option<Url>,
    made: Arc<AtomicU64>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = EgressError;
    type Future = BoxFuture<'static, Result<TokioIo<TcpStream>, EgressError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), EgressError>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the configured URL. The argument is ignored, because the channel passes only this URL.
    fn call(&mut self, _: Uri) -> Self::Future {
        let Self {
            url,
            guard,
            proxy,
            made,
        } = self.clone();
        Box::pin(async move {
            let stream = match proxy {
                Some(proxy) => {
                    guard.check(&url)?;
                    tunnel(&url, &proxy).await?
                }
                None => TokioIo::new(dial(&url, &guard).await?),
            };
            made.fetch_add(1, Ordering::Relaxed);
            Ok(stream)
        })
    }
}

/// Connects to `url`. The host is resolved once, and only the addresses that were admitted then are tried.
async fn dial(url: &Url, guard: &AddressGuard) -> Result<TcpStream, EgressError> {
    guard.check(url)?;
    let hosts = match url.host() {
        Some(Host::Domain(name)) => guard.resolve(name).await?,
        Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
        Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
        None => Vec::new(),
    };
    let port = url.port_or_known_default().unwrap_or_default();
    let addresses: Vec<_> = hosts
        .into_iter()
        .map(|host| SocketAddr::new(host, port))
        .collect();
    let connect = async {
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connect
        .await
        .map_err(|error: std::io::Error| EgressError::Unreachable(error.to_string()))
}
