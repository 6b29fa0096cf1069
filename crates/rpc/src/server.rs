//! gRPC servers on TCP sockets.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use http::{Request, Response};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tower::Service as TowerService;
use wardgate_domain::Ambient;
use wardgate_resilience::concurrency::Limiter;
use wardgate_tls::{EndOfTls, LiveConfig};

use crate::access::Trust;
use crate::aging::{AgedStream, ConnectionAge};
use crate::link::TlsFiles;
use crate::readiness::Service;
use crate::shutdown::Shutdown;
use crate::{health, link, stack::Stack};

/// A service name that reports the running version through the health protocol, so that an operator can check whether
/// an upgrade is complete.
pub const VERSION: &str = concat!("wardgate/", env!("CARGO_PKG_VERSION"));

/// The listener configuration of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenConfig {
    /// Address and port, for example `0.0.0.0:7001`.
    pub listen: SocketAddr,
    /// Certificates. Peers must present a certificate of the same authority.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Whether to listen without TLS, which is only possible on a loopback address. Every local process is then trusted.
    #[serde(default)]
    pub plaintext: bool,
}

/// An error of a server that cannot start or that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are no certificates, and plain text was not requested or the address is not a loopback address.
    #[error(
        "{listen} has no `tls`: configure certificates, or use a loopback address with `plaintext: true`"
    )]
    PlainText {
        /// The address.
        listen: SocketAddr,
    },
    /// A certificate or key file is not usable.
    #[error(transparent)]
    Tls(#[from] wardgate_tls::Error),
    /// The address cannot be bound.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The transport failed.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The protobuf descriptors cannot be decoded.
    #[error("the reflection service cannot be configured: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A bound listener with its certificates, which does not serve yet.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    tls: Option<LiveConfig<rustls::ServerConfig>>,
    pub(crate) aging: ConnectionAge,
    limiter: Option<Limiter>,
}

impl BoundServer {
    /// Binds the address and reads the certificates, so that problems with them are found at startup.
    pub async fn bind(config: &ListenConfig) -> Result<Self, Error> {
        let listen = config.listen;
        let tls = match &config.tls {
            Some(files) => Some(LiveConfig::open(
                files.into(),
                EndOfTls::GrpcServer,
                |identity| identity.server_config(&[link::HTTP2]),
            )?),
            None if config.plaintext && listen.ip().is_loopback() => None,
            None => return Err(Error::PlainText { listen }),
        };
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| Error::Listen { listen, source })?;
        Ok(Self {
            listener,
            tls,
            aging: ConnectionAge::with_jitter(&Ambient::system()),
            limiter: None,
        })
    }

    /// Sets a limiter. Calls that it does not admit are refused.
    #[must_use]
    pub fn with_limiter(self, limiter: Limiter) -> Self {
        Self {
            limiter: Some(limiter),
            ..self
        }
    }

    /// Returns the address of the listener, with the port that the system chose if port 0 was requested.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves `service`, together with health and reflection, until `shutdown` closes, and then finishes the calls in flight.
    pub async fn serve<S, L>(self, service: Service<S, L>, shutdown: Shutdown) -> Result<(), Error>
    where
        S: TowerService<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let trust = if self.tls.is_some() {
            Trust::Certificate
        } else {
            Trust::Loopback
        };
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_service_status(VERSION, ServingStatus::Serving)
            .await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wardgate_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let mut server = Server::builder()
            // The defaults of h2 against rapid resets are kept. These settings limit what one peer can occupy.
            .max_concurrent_streams(1024)
            .http2_max_header_list_size(16 * 1024)
            .http2_keepalive_interval(Some(Duration::from_secs(10)))
            .max_connection_age(self.aging.age);
        let aging = self.aging;
        let incoming = TcpListenerStream::new(self.listener).map_ok(move |stream| {
            // Responses are small and complete, so they do not wait for more data. Without this option they would only be slower.
            let _ = stream.set_nodelay(true);
            aging.begin(stream)
        });
        let closes = shutdown.clone().closes();
        let stack = Stack::new(service.server, trust).with_limiter(self.limiter);
        let in_flight = stack.in_flight();
        let router = server
            .add_service(stack)
            .add_service(health)
            .add_service(reflection);
        let serving = match self.tls {
            Some(tls) => router
                .serve_with_incoming_shutdown(handshakes(incoming, tls), closes)
                .boxed(),
            None => router
                .serve_with_incoming_shutdown(incoming, closes)
                .boxed(),
        };
        // Watches never end by themselves, so the server ends as soon as its other calls have ended.
        let grace = shutdown.grace();
        let finished = async move {
            shutdown.closes().await;
            let calls = async {
                in_flight.idle().await;
                tokio::time::sleep(FLUSH).await;
            };
            let _ = tokio::time::timeout(grace, calls).await;
        };
        tokio::select! {
            served = serving => Ok(served?),
            () = finished => Ok(()),
            () = forever(health::report(reporter, S::NAME, service.readiness)) => Ok(()),
        }
    }
}

/// Maximum time for the TLS handshake of a client.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Maximum number of concurrent TLS handshakes. Further connections wait to be accepted.
const HANDSHAKES: usize = 256;

/// Returns the connections whose TLS handshake succeeded. Each handshake uses the current certificates.
fn handshakes(
    incoming: impl Stream<Item = io::Result<AgedStream>> + Send + 'static,
    tls: LiveConfig<rustls::ServerConfig>,
) -> impl Stream<Item = io::Result<TlsStream<AgedStream>>> + Send + 'static {
    incoming
        .map_ok(move |stream| {
            let accepting = TlsAcceptor::from(tls.current()).accept(stream);
            AbortOnDropHandle::new(tokio::spawn(tokio::time::timeout(HANDSHAKE, accepting)))
        })
        .map(|accepted| async {
            match accepted?.await {
                Ok(Ok(Ok(stream))) => Ok(Some(stream)),
                Ok(Ok(Err(error))) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    Ok(None)
                }
                Ok(Err(_)) | Err(_) => Ok(None),
            }
        })
        .buffer_unordered(HANDSHAKES)
        .try_filter_map(|stream| std::future::ready(Ok(stream)))
}

/// Time for the last responses to leave the socket, and for calls that race with the shutdown to be counted.
const FLUSH: Duration = Duration::from_millis(100);

/// Awaits `report` and then never completes, because the end of the health reporting is no reason to stop serving.
async fn forever(report: impl Future<Output = ()>) {
    report.await;
    std::future::pending::<()>().await;
}
