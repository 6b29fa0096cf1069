//! A service behind a socket.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures::TryStreamExt;
use http::{Request, Response};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tower::Service as TowerService;
use wardgate_domain::Ambient;
use wardgate_resilience::concurrency::Limiter;

use crate::access::Trust;
use crate::aging::ConnectionAge;
use crate::link::{Error as LinkError, TlsFiles};
use crate::readiness::Service;
use crate::shutdown::Shutdown;
use crate::{health, stack::Stack};

/// Which program serves: one more name that health knows, so that an operator can ask whether an upgrade is complete.
pub const VERSION: &str = concat!("wardgate/", env!("CARGO_PKG_VERSION"));

/// How a service listens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenConfig {
    /// Address and port, for example `0.0.0.0:7001`.
    pub listen: SocketAddr,
    /// Certificates; peers must show one of the same authority.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Listen without TLS. Only on a loopback address, where every local process is then trusted.
    #[serde(default)]
    pub plaintext: bool,
}

/// A server that cannot start or went down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither certificates nor an explicit wish for plain text, or plain text beyond this machine.
    #[error(
        "{listen} has no `tls`: give certificates, or a loopback address with `plaintext: true`"
    )]
    PlainText {
        /// The address.
        listen: SocketAddr,
    },
    /// A certificate or key file.
    #[error(transparent)]
    Tls(#[from] LinkError),
    /// The address is taken or not ours.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The transport failed.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptors do not decode.
    #[error("reflection cannot be offered: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A listener with its certificates, not yet serving.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    tls: Option<ServerTlsConfig>,
    pub(crate) aging: ConnectionAge,
    limiter: Option<Limiter>,
}

impl BoundServer {
    /// Takes the address and reads the certificates, so that what is wrong with them shows at start.
    pub async fn bind(config: &ListenConfig) -> Result<Self, Error> {
        let listen = config.listen;
        let tls = match &config.tls {
            Some(files) => {
                let (authority, identity) = files.read()?;
                Some(
                    ServerTlsConfig::new()
                        .identity(identity)
                        .client_ca_root(authority),
                )
            }
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

    /// The same, which turns away what is more than `limiter` lets in.
    #[must_use]
    pub fn limited(self, limiter: Limiter) -> Self {
        Self {
            limiter: Some(limiter),
            ..self
        }
    }

    /// The address it listens on, with the port the system chose if 0 was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves `service` with health and reflection beside it until `shutdown` closes, then finishes what is in
    /// flight.
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
            // The defaults of h2 against rapid resets stay; these bound what one peer can hold.
            .max_concurrent_streams(1024)
            .http2_max_header_list_size(16 * 1024)
            .http2_keepalive_interval(Some(Duration::from_secs(10)))
            .max_connection_age(self.aging.age);
        if let Some(tls) = self.tls {
            server = server.tls_config(tls)?;
        }
        let aging = self.aging;
        let incoming = TcpListenerStream::new(self.listener).map_ok(move |stream| {
            // Answers are small and complete: none waits for more to send. Where that cannot be had, they only are slower.
            let _ = stream.set_nodelay(true);
            aging.begin(stream)
        });
        let stack = Stack::new(service.server, trust).limited(self.limiter);
        let in_flight = stack.in_flight();
        let serving = server
            .add_service(stack)
            .add_service(health)
            .add_service(reflection)
            .serve_with_incoming_shutdown(incoming, shutdown.clone().closes());
        // Watches never end by themselves, so the server ends when its calls have.
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

/// For the last answers to leave the socket, and for calls that raced the end to be counted.
const FLUSH: Duration = Duration::from_millis(100);

/// Reports while the server runs; that reporting ended is no reason to stop serving.
async fn forever(report: impl Future<Output = ()>) {
    report.await;
    std::future::pending::<()>().await;
}
