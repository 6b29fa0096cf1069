//! The connection to a server: made when first used, made again when lost, and kept alive.

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
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::Service;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Servers in the wild end connections that are pinged more often than they like, so only a call that
/// hears nothing for long makes us ask.
const PING_AFTER: Duration = Duration::from_secs(20);
const PONG_LIMIT: Duration = Duration::from_secs(10);
const MAX_HEADER_BYTES: u32 = 16 << 10;
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// One HTTP/2 connection, shared by all clones.
#[derive(Clone)]
pub(super) struct Connection {
    channel: Channel,
    made: Arc<AtomicU64>,
}

impl Connection {
    /// Connects to nothing yet. `ca` in PEM stands in for the certificate authorities of the system.
    pub(super) fn new(url: &Uri, ca: Option<&str>) -> Result<Self, tonic::transport::Error> {
        let mut endpoint = Endpoint::from(url.clone())
            .user_agent(concat!("wardgate/", env!("CARGO_PKG_VERSION")))?
            .connect_timeout(CONNECT_LIMIT)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_LIMIT)
            .http2_max_header_list_size(MAX_HEADER_BYTES);
        if url.scheme() == Some(&http::uri::Scheme::HTTPS) {
            let tls = ClientTlsConfig::new().timeout(CONNECT_LIMIT);
            endpoint = endpoint.tls_config(match ca {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            })?;
        }
        let made = Arc::new(AtomicU64::new(0));
        let connector = Connector {
            made: Arc::clone(&made),
        };
        Ok(Self {
            channel: endpoint.connect_with_connector_lazy(connector),
            made,
        })
    }

    /// How many connections were made so far.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Service<Request<Body>> for Connection {
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

/// tonic takes status details for well-formed and panics when they are not; nobody here reads them.
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

#[derive(Clone)]
struct Connector {
    made: Arc<AtomicU64>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<TokioIo<TcpStream>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let made = Arc::clone(&self.made);
        Box::pin(async move {
            let stream = dial(&url).await?;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(TokioIo::new(stream))
        })
    }
}

async fn dial(url: &Uri) -> Result<TcpStream, std::io::Error> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, port(url))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn port(url: &Uri) -> u16 {
    url.port_u16().unwrap_or(match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    })
}
