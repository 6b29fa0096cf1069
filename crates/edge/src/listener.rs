//! The socket: bounded connections, bounded headers, a graceful end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use wardgate_rpc::Shutdown;

use crate::Error;

/// What connections may cost.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Open connections; further ones wait.
    pub connections: usize,
    /// Seconds to send the header of a request.
    pub header_seconds: u64,
}

/// Resolves when no request came within `limit`, and never if one did.
async fn silence(first: CancellationToken, limit: Duration) {
    if tokio::time::timeout(limit, first.cancelled()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// A listener, not yet serving.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Takes the address.
    pub async fn bind(listen: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address it listens on, with the port the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `router` until `shutdown` closes, then lets what is in flight end and waits for `finish`, both together
    /// within its grace. From when it is told to stop, connections of HTTP/1 end with their next answer, so that their
    /// clients come back elsewhere.
    pub async fn serve(
        self,
        router: Router,
        limits: ConnectionLimits,
        shutdown: Shutdown,
        finish: impl Future<Output = ()>,
    ) {
        let header = Duration::from_secs(limits.header_seconds);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // Against slow-loris: a header arrives in time or not at all.
            .header_read_timeout(header)
            .max_buf_size(64 * 1024);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(32 * 1024)
            .max_concurrent_streams(256)
            .keep_alive_interval(Some(Duration::from_secs(20)));
        let free = Arc::new(Semaphore::new(limits.connections));
        let open = GracefulShutdown::new();
        let closes = shutdown.clone().closes();
        tokio::pin!(closes);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&free) => accepted,
                () = &mut closes => break,
            };
            let Some((stream, peer, place)) = accepted else {
                continue;
            };
            let (router, stops) = (router.clone(), shutdown.clone());
            let asked = CancellationToken::new();
            let first = asked.clone();
            let service = service_fn(move |mut request: hyper::Request<Incoming>| {
                asked.cancel();
                request.extensions_mut().insert(peer);
                let is_http1 = request.version() < Version::HTTP_2;
                let answer = router.clone().oneshot(request.map(Body::new));
                let stops = stops.clone();
                async move {
                    let mut response = answer.await?;
                    if is_http1 && stops.was_told() {
                        let close = HeaderValue::from_static("close");
                        response.headers_mut().insert(header::CONNECTION, close);
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let connection = builder
                .serve_connection(TokioIo::new(stream), service)
                .into_owned();
            let connection = open.watch(connection);
            tokio::spawn(async move {
                tokio::select! {
                    ended = connection => if let Err(error) = ended {
                        tracing::debug!(error, "a connection ended early");
                    },
                    // The timer of the first header starts with its first byte; some send none.
                    () = silence(first, header) => tracing::debug!("a connection sent no request"),
                }
                drop(place);
            });
        }
        drop(self.listener);
        let finished = async {
            open.shutdown().await;
            finish.await;
        };
        if tokio::time::timeout(shutdown.grace(), finished)
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end in time");
        }
    }

    async fn accept(
        &self,
        free: &Arc<Semaphore>,
    ) -> Option<(
        tokio::net::TcpStream,
        SocketAddr,
        tokio::sync::OwnedSemaphorePermit,
    )> {
        let place = Arc::clone(free).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((stream, peer)) => {
                // An answer is one small write; waiting to fill a segment would only delay it.
                let _ = stream.set_nodelay(true);
                Some((stream, peer, place))
            }
            Err(error) => {
                // Out of descriptors, usually: let some connections end first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
        }
    }
}
