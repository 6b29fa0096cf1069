//! The TCP listener, with limits on connections and headers, and a graceful shutdown.
//!
//! ```text
//!  accept ─▶ PROXY protocol ─▶ TLS, if configured; then, for each connection
//!         ─▶ slots: a rate and a share for each client ─▶ stream: frames charged, messages tracked ─▶ hyper ─▶ router
//!                                                                                 │
//!                             idle, too old, replaced, or shutdown of the process ┴──▶ GOAWAY, then closed
//! ```

mod connection;
mod http1;
mod http2;
mod limits;
mod proxies;
mod refusals;
mod slots;
mod stream;
mod token_bucket;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{self, Builder};
use metrics::counter;
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use wardgate_rpc::{Shutdown, probes};
use wardgate_telemetry::names;
use wardgate_tls::{EndOfTls, Files, LiveConfig};

use crate::Error;

pub(crate) use connection::credit_known_caller;
pub use limits::{ConnectionLimits, ListenerLimits};
pub use proxies::{ForwardingHeader, TrustedProxies};

use connection::{AnswerBody, ClientConnection};
use slots::{ConnectionSlot, ConnectionSlots, SlotUse};
use stream::WatchedStream;

/// Time for which a connection that is being closed stays open without a request in flight, so that its client notices.
const CLOSING: Duration = Duration::from_secs(1);
/// The same time for a connection that was replaced by another one.
const REPLACED: Duration = Duration::from_millis(100);
/// Maximum time for which a connection that may only serve probes stays open.
const PROBE: Duration = Duration::from_secs(5);

/// A connection served by hyper.
type ServedConnection<S> =
    auto::Connection<'static, TokioIo<WatchedStream<ClientStream>>, S, TokioExecutor>;

/// A connection to a client, either plain or with TLS.
type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The certificate with which an edge terminates TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpsFiles {
    /// The file of the certificate chain, in PEM format.
    pub cert: PathBuf,
    /// The file of the private key, in PEM format.
    pub key: PathBuf,
}

impl HttpsFiles {
    /// Checks that a listener can use the certificate and its key. Must be called in a Tokio runtime.
    pub fn check(&self) -> Result<(), Error> {
        self.clone().load().map(drop)
    }

    /// Loads the certificate and its key, and follows changes of the files for as long as the result is in use.
    fn load(self) -> Result<LiveConfig<ServerConfig>, Error> {
        let files = Files {
            authority: None,
            chain: self.cert,
            key: self.key,
        };
        let tls = LiveConfig::open(files, EndOfTls::HttpServer, |identity| {
            identity.server_config(&[b"h2", b"http/1.1"])
        });
        Ok(tls?)
    }
}

/// A listener that is bound to an address but does not serve yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<LiveConfig<ServerConfig>>,
    proxies: TrustedProxies,
}

impl BoundListener {
    /// Binds to the address.
    pub async fn bind(listen: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            tls: None,
            proxies: TrustedProxies::default(),
        })
    }

    /// Returns the same listener with TLS, if a certificate is given. A renewed certificate takes effect within
    /// seconds.
    pub fn with_certificate(self, files: Option<HttpsFiles>) -> Result<Self, Error> {
        let tls = files.map(HttpsFiles::load).transpose()?;
        Ok(Self { tls, ..self })
    }

    /// Returns the same listener behind trusted proxies, whose statements about client addresses are used.
    #[must_use]
    pub fn behind(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Returns the base URL of the listener on this machine: `https://127.0.0.1:8080`.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the bound address, with the port that the system chose if the requested port was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `router` until `shutdown` closes, then lets requests in flight finish and waits for `finish`, both within
    /// the grace period of `shutdown`. As soon as the shutdown is announced, HTTP/1 connections are closed after their
    /// next response, so that their clients reconnect elsewhere.
    pub async fn serve(
        self,
        router: Router,
        limits: ConnectionLimits,
        shutdown: Shutdown,
        finish: impl Future<Output = ()>,
    ) {
        let limits = limits.within_open_files();
        let slots = ConnectionSlots::new(
            limits.connections,
            limits.per_address(),
            limits.listener.control_frames,
        );
        let server = Arc::new(HttpServer {
            router,
            slots: Arc::clone(&slots),
            builder: builder(&limits),
            limits,
            shutdown: shutdown.clone(),
            closing: CancellationToken::new(),
            tls: self.tls.clone(),
            proxies: self.proxies.clone(),
        });
        let open = TaskTracker::new();
        let mut closes = pin!(shutdown.clone().closes());
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&slots) => accepted,
                () = &mut closes => break,
            };
            let Some((stream, peer)) = accepted else {
                continue;
            };
            // A response is often one small write, which waiting for a full segment would only delay.
            let _ = stream.set_nodelay(true);
            let peer = proxies::canonical(peer);
            if server.proxies.announces(peer) {
                open.spawn(Arc::clone(&server).serve_announced(stream, peer));
            } else if let Some(slot) = server.admit(peer) {
                open.spawn(Arc::clone(&server).serve(stream, peer, slot));
            } else {
                // The connection is reset, so that no state of it remains.
                let _ = stream.set_zero_linger();
            }
        }
        drop(self.listener);
        server.closing.cancel();
        open.close();
        let finished = async {
            open.wait().await;
            finish.await;
        };
        if tokio::time::timeout(shutdown.grace(), finished)
            .await
            .is_err()
        {
            tracing::warn!("some requests did not complete in time");
        }
    }

    async fn accept(&self, slots: &ConnectionSlots) -> Option<(TcpStream, SocketAddr)> {
        match self.listener.accept().await {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                // Usually the process is out of file descriptors, so some connections are closed first.
                tracing::warn!(%error, "a connection could not be accepted");
                slots.make_room();
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
        }
    }
}

fn builder(limits: &ConnectionLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The timeout protects against slow-loris attacks.
        .header_read_timeout(limits.header())
        .max_buf_size(http1::MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(32 * 1024)
        .max_concurrent_streams(256)
        .keep_alive_interval(Some(Duration::from_secs(20)));
    builder
}

/// The state that all connections of a listener share.
struct HttpServer {
    router: Router,
    slots: Arc<ConnectionSlots>,
    builder: Builder<TokioExecutor>,
    limits: ConnectionLimits,
    shutdown: Shutdown,
    /// A token that is cancelled when no new connections are accepted.
    closing: CancellationToken,
    tls: Option<LiveConfig<ServerConfig>>,
    proxies: TrustedProxies,
}

impl HttpServer {
    /// Takes a slot for a connection of `peer`. A connection of a trusted proxy serves many clients, so it is not
    /// limited to the share of one client.
    fn admit(&self, peer: SocketAddr) -> Option<ConnectionSlot> {
        if self.proxies.contains(peer.ip()) {
            self.slots.admit_proxy(peer)
        } else {
            self.slots.admit(peer)
        }
    }

    /// Serves a connection that begins with the PROXY protocol, as a connection of the client that the header names.
    async fn serve_announced(self: Arc<Self>, mut stream: TcpStream, proxy: SocketAddr) {
        let reading = proxies::read_proxy_header(&mut stream);
        let client = match tokio::time::timeout(self.limits.header(), reading).await {
            Ok(Ok(client)) => client.unwrap_or(proxy),
            Ok(Err(error)) => {
                tracing::warn!(%proxy, %error, "a connection of a trusted proxy is refused");
                return;
            }
            Err(_) => return,
        };
        match self.admit(client) {
            Some(slot) => self.serve(stream, client, slot).await,
            None => drop(stream.set_zero_linger()),
        }
    }

    /// Opens the connection to a client, with TLS if there is a certificate. Returns `None` if the handshake fails or
    /// takes longer than a header may take.
    async fn open(&self, stream: TcpStream, connection: &ClientConnection) -> Option<ClientStream> {
        let Some(tls) = &self.tls else {
            return Some(Either::Left(stream));
        };
        let shaking = TlsAcceptor::from(tls.current()).accept(stream);
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.limits.header(), shaking) => shaken,
            () = connection.replaced.cancelled() => return None,
            () = self.closing.cancelled() => return None,
        };
        match shaken {
            Ok(Ok(stream)) => Some(Either::Right(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }

    /// Serves one connection until it ends.
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
        let (connection, use_for) = (Arc::clone(&slot.connection), slot.use_for);
        let Some(stream) = self.open(stream, &connection).await else {
            return;
        };
        let stream = WatchedStream::new(stream, slot, self.limits.listener.control_frames);
        let (server, shared) = (Arc::clone(&self), Arc::clone(&connection));
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, connection) = (Arc::clone(&server), Arc::clone(&shared));
            async move { server.answer(request, peer, connection, use_for).await }
        });
        let served = self
            .builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        match use_for {
            SlotUse::Everything => self.drive(pin!(served), &connection).await,
            SlotUse::Probes => {
                tokio::select! {
                    _ = served => {}
                    () = connection.replaced.cancelled() => {}
                    () = tokio::time::sleep(PROBE) => {}
                }
            }
        }
    }

    /// Responds to one request.
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        connection: Arc<ClientConnection>,
        use_for: SlotUse,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let in_flight = connection.begin_request();
        let is_http1 = request.version() < Version::HTTP_2;
        let path = request.uri().path();
        let mut response = match refusals::answer_to_substitute(request.method(), path) {
            Some(refusal) => refusal,
            None if use_for == SlotUse::Probes && !probes::is_probe(path) => {
                refusals::too_many_connections()
            }
            None => {
                let client = self.proxies.client(peer, request.headers());
                request.extensions_mut().insert(client);
                let answer = self.router.clone().oneshot(request.map(Body::new));
                connection.scope(answer).await?
            }
        };
        if is_http1 && (use_for == SlotUse::Probes || self.shutdown.was_told()) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response.map(|body| AnswerBody {
            body,
            _request: in_flight,
        }))
    }

    /// Drives a connection until it ends by itself or has to be closed: because it is idle or too old, because another
    /// connection replaces it, or because the process shuts down.
    async fn drive<S>(
        &self,
        mut served: Pin<&mut ServedConnection<S>>,
        connection: &ClientConnection,
    ) where
        S: Service<Request<Incoming>, Response = Response<AnswerBody>, Error = Infallible>,
        S::Future: Send + 'static,
    {
        let oldest = connection.opened_at() + self.limits.age();
        let reason = loop {
            // Requests begin and end in the meantime, so the state is checked again after at most the idle time.
            let soon = Instant::now() + self.limits.idle();
            let wake = self.idle_end(connection).map_or(soon, |end| end.min(soon));
            tokio::select! {
                ended = served.as_mut() => return self.note_end(ended, connection),
                () = self.closing.cancelled() => break None,
                () = connection.replaced.cancelled() => break Some("no_place"),
                () = tokio::time::sleep_until(wake.min(oldest)) => {}
            }
            let now = Instant::now();
            if self.idle_end(connection).is_some_and(|end| end <= now) {
                break Some("idle");
            }
            if oldest <= now {
                break Some("age");
            }
        };
        if let Some(reason) = reason {
            counter!(names::ENDED_CONNECTIONS, "reason" => reason).increment(1);
        }
        served.as_mut().graceful_shutdown();
        let patience = if reason == Some("no_place") {
            REPLACED
        } else {
            CLOSING
        };
        let began = Instant::now();
        let end = |now: Instant| {
            let idle_since = connection.idle_since();
            idle_since.map_or(now, |since| since.max(began)) + patience
        };
        loop {
            tokio::select! {
                ended = served.as_mut() => return self.note_end(ended, connection),
                () = tokio::time::sleep_until(end(Instant::now())) => {}
            }
            let now = Instant::now();
            if end(now) <= now {
                return;
            }
        }
    }

    /// Returns the time at which a connection will have been idle for too long, or `None` while a request is in flight.
    /// The first request has as much time as a header may take.
    fn idle_end(&self, connection: &ClientConnection) -> Option<Instant> {
        let patience = if connection.is_used() {
            self.limits.idle()
        } else {
            self.limits.header()
        };
        connection.idle_since().map(|since| since + patience)
    }

    /// Penalises the client of a connection that was closed because of a protocol error or excessive frames.
    fn note_end(
        &self,
        ended: Result<(), Box<dyn std::error::Error + Send + Sync>>,
        connection: &ClientConnection,
    ) {
        let Err(error) = ended else {
            return;
        };
        tracing::debug!(error, "a connection closed early");
        let mut causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| {
            error.source()
        });
        let is_refused = causes
            .find_map(|cause| cause.downcast_ref::<h2::Error>())
            .is_some_and(|error| error.is_library() && error.is_go_away());
        if is_refused {
            self.slots.penalise(connection.network, "protocol_error");
        }
    }
}
