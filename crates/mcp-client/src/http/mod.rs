//! Connections to servers over Streamable HTTP, in both eras.

mod exchange;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::info;
use url::Url;
use wardgate_egress::{EgressClient, EgressError, HttpSettings};
use wardgate_mcp::Era;
use wardgate_mcp::error_code::UNSUPPORTED_VERSION;
use wardgate_mcp::header;

use self::exchange::Exchange;
use super::era::{self, CachedObservation, Handshake, Probe, SkillsCapability, SupportedEras};
use super::error::UpstreamError;
use super::events::Events;
use super::listen;
use super::listing::ConnectionTools;
use super::logging::ServerLogLevel;
use super::message::{MODERN, UpstreamRequest};
use super::participation::ClientProfile;
use super::server_message::Listener;

/// Maximum time for the response of a server of 2026-07-28 to `initialize`.
const INITIALIZE_LIMIT: Duration = Duration::from_secs(5);

/// Maximum time to end a session.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time until a server begins its standalone stream, on which it sends requests outside of responses. Some servers send
/// the headers only with the first message.
const BEGIN_LIMIT: Duration = Duration::from_secs(1);

/// Maximum length of a session id in bytes.
const MAX_SESSION_ID: usize = 1024;

/// A connector to one server.
pub(super) struct Dialer {
    client: Arc<EgressClient>,
    url: Url,
    /// Maximum size of one message in bytes.
    max_bytes: usize,
    events: Arc<Events>,
    tasks: TaskTracker,
    is_legacy: CachedObservation,
    /// Whether a server that declares no legacy version accepts `initialize`, and the time of this observation.
    takes_initialize: Mutex<Option<(bool, Instant)>>,
    /// The features that a legacy server may ask clients for.
    profile: ClientProfile,
}

/// A connection to a server of known era, with its session if there is one.
pub(super) struct HttpConnection {
    exchange: Arc<Exchange>,
    pub(super) logging: ServerLogLevel,
    pub(super) listing: ConnectionTools,
    /// Whether tools can be called as tasks of 2025-11-25.
    pub(super) tasks: bool,
    pub(super) skills: Option<SkillsCapability>,
    since: Instant,
    /// Whether the server is no longer the one that this connection was made to.
    lost: AtomicBool,
    /// Stops listening and then ends the session.
    _stop: DropGuard,
}

impl Dialer {
    pub(super) fn open(
        settings: &HttpSettings,
        events: Arc<Events>,
        tasks: TaskTracker,
        profile: ClientProfile,
    ) -> Result<Self, EgressError> {
        Ok(Self {
            client: Arc::new(EgressClient::open(&settings.client, &events.ambient)?),
            url: settings.url.clone(),
            max_bytes: settings.client.egress.max_response_bytes,
            events,
            tasks,
            is_legacy: CachedObservation::default(),
            takes_initialize: Mutex::default(),
            profile,
        })
    }

    /// Determines the era of the server, and begins a session with a legacy server.
    pub(super) async fn connect(&self) -> Result<HttpConnection, UpstreamError> {
        let (handshake, session) = match self.probe().await? {
            Probe::Modern(handshake) => (self.with_known_eras(handshake), None),
            Probe::Legacy => {
                let (result, begun) = self.initialize().await?;
                if self.profile.is_empty() {
                    self.events.store_instructions(&result);
                }
                begun
            }
        };
        let exchange = Arc::new(self.exchange(handshake.era, Some(handshake.version), session));
        if handshake.era == Era::Legacy {
            exchange.notify("notifications/initialized", &[]).await?;
        }
        self.is_legacy.set(handshake.era == Era::Legacy);
        if self.profile.is_empty() {
            self.events.set_observed(handshake.observed_server());
        }
        info!(
            upstream = self.events.upstream,
            version = handshake.version,
            "connected to an upstream server"
        );
        let (stop, begun) = (CancellationToken::new(), CancellationToken::new());
        let stream = if self.profile.is_empty() {
            ServerStream::Changes(handshake)
        } else {
            ServerStream::Requests(begun.clone(), handshake)
        };
        self.tasks
            .spawn(run_listeners(Arc::clone(&exchange), stream, stop.clone()));
        if !self.profile.is_empty() {
            // Requests that the server sends before the stream is open would be lost.
            let _ = timeout(BEGIN_LIMIT, begun.cancelled()).await;
        }
        Ok(HttpConnection {
            exchange,
            logging: ServerLogLevel::from_handshake(handshake),
            listing: ConnectionTools::default(),
            tasks: handshake.tasks,
            skills: handshake.skills,
            since: Instant::now(),
            lost: AtomicBool::new(false),
            _stop: stop.drop_guard(),
        })
    }

    /// Adds what is known about the legacy era if discovery declared only 2026-07-28.
    fn with_known_eras(&self, handshake: Handshake) -> Handshake {
        if handshake.eras != SupportedEras::Modern {
            return handshake;
        }
        let eras = match self.known_to_take_initialize() {
            Some(true) => SupportedEras::Both,
            Some(false) => SupportedEras::Modern,
            None => SupportedEras::Unsettled,
        };
        Handshake { eras, ..handshake }
    }

    fn known_to_take_initialize(&self) -> Option<bool> {
        let known = *self
            .takes_initialize
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = known.filter(|(_, since)| era::still_holds(*since));
        known.map(|(takes_initialize, _)| takes_initialize)
    }

    /// Returns whether the server accepts `initialize`. It is tried once, and again after an hour.
    pub(super) async fn takes_initialize(&self) -> bool {
        if let Some(known) = self.known_to_take_initialize() {
            return known;
        }
        let taken = timeout(INITIALIZE_LIMIT, self.initialize()).await;
        let taken = taken.unwrap_or(Err(UpstreamError::Timeout));
        if let Ok((_, (handshake, session))) = &taken {
            // The session was only begun to find this out.
            let exchange = self.exchange(handshake.era, Some(handshake.version), session.clone());
            let ending = async move { timeout(END_SESSION_TIMEOUT, exchange.end_session()).await };
            self.tasks.spawn(ending);
        }
        *self
            .takes_initialize
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((taken.is_ok(), Instant::now()));
        taken.is_ok()
    }

    /// Determines the era of the server. A refusal indicates a legacy server, unless any request would have been refused like
    /// this. No response indicates nothing.
    async fn probe(&self) -> Result<Probe, UpstreamError> {
        // The features of a profile can only be declared with `initialize`.
        if !self.profile.is_empty() || self.is_legacy.holds() {
            return Ok(Probe::Legacy);
        }
        let exchange = Arc::new(self.exchange(Era::Modern, Some(MODERN), None));
        match exchange.request(&era::discover(), None).await {
            Ok(result) => {
                self.events.store_instructions(&result);
                era::read_probe(Ok(result))
            }
            Err(UpstreamError::Rpc(error)) => era::read_probe(Err(error)),
            Err(UpstreamError::Status(status))
                if !matches!(status, 401 | 403 | 407 | 429 | 502..=504) =>
            {
                Ok(Probe::Legacy)
            }
            Err(UpstreamError::BadResult(_)) => Ok(Probe::Legacy),
            Err(other) => Err(other),
        }
    }

    /// Sends `initialize`. Returns the result of the server, the handshake, and the session id.
    async fn initialize(
        &self,
    ) -> Result<(Box<RawValue>, (Handshake, Option<HeaderValue>)), UpstreamError> {
        let exchange = Arc::new(self.exchange(Era::Legacy, None, None));
        let (result, headers) = exchange
            .first_request(&era::initialize(self.profile))
            .await?;
        let session = headers.get(header::SESSION_ID);
        if session.is_some_and(|id| !is_session_id(id)) {
            return Err(UpstreamError::BadResult("its session id is not valid"));
        }
        let session = session.map(|id| {
            let mut id = id.clone();
            id.set_sensitive(true);
            id
        });
        let handshake = era::read_initialize(&result)?;
        Ok((result, (handshake, session)))
    }

    fn exchange(
        &self,
        era: Era,
        version: Option<&'static str>,
        session: Option<HeaderValue>,
    ) -> Exchange {
        Exchange {
            client: Arc::clone(&self.client),
            url: self.url.clone(),
            max_bytes: self.max_bytes,
            events: Arc::clone(&self.events),
            tasks: self.tasks.clone(),
            era,
            version,
            session,
            proven: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            open: Mutex::default(),
        }
    }
}

/// Returns whether `id` is a valid session id.
fn is_session_id(id: &HeaderValue) -> bool {
    id.len() <= MAX_SESSION_ID && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// The messages outside of responses that a connection listens to.
enum ServerStream {
    /// Changes of lists and resources, on the plain connection.
    Changes(Handshake),
    /// Requests of the server and changes of resources, on a connection for clients that can be asked for input. The token is
    /// cancelled once the stream is open, or cannot be opened.
    Requests(CancellationToken, Handshake),
}

/// Listens until `stop` is cancelled, and then ends the session.
async fn run_listeners(exchange: Arc<Exchange>, stream: ServerStream, stop: CancellationToken) {
    let events = Arc::clone(&exchange.events);
    match stream {
        ServerStream::Changes(handshake) => {
            let listening = listen::run_listener(Arc::clone(&exchange), events, handshake);
            Box::pin(stop.run_until_cancelled(listening)).await;
        }
        ServerStream::Requests(begun, handshake) => {
            let once = || exchange.read_standalone_stream(|| begun.cancel());
            let requests = listen::run_request_listener(&events.ambient, &begun, once);
            let transport = Arc::clone(&exchange);
            let resources =
                listen::run_resource_listener(transport, Arc::clone(&events), handshake);
            let listening = async { tokio::join!(requests, resources) };
            Box::pin(stop.run_until_cancelled(listening)).await;
        }
    }
    stop.cancelled().await;
    // The server discards unused sessions, so a failure does no harm.
    let _ = timeout(END_SESSION_TIMEOUT, exchange.end_session()).await;
}

impl HttpConnection {
    /// Returns whether requests can use the connection. A connection to a legacy server is replaced from time to time, because
    /// the server may have been upgraded.
    pub(super) fn is_usable(&self) -> bool {
        let is_fresh = self.exchange.era == Era::Modern || era::still_holds(self.since);
        is_fresh && !self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn era(&self) -> Era {
        self.exchange.era
    }

    /// Returns whether the connection has a session, which identifies the server instance.
    pub(super) fn has_session(&self) -> bool {
        self.exchange.session.is_some()
    }

    /// Sends a message that has no response.
    pub(super) async fn send_message(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        self.exchange.send_message(message).await
    }

    /// Sends a request in the background and ignores the response.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>) {
        self.exchange.request_later(request);
    }

    /// Sends a message that has no response, in the background.
    pub(super) fn send_message_later(&self, message: Vec<u8>) {
        self.exchange.send_message_later(message);
    }

    /// Returns whether marked arguments must be repeated as headers.
    pub(super) fn repeats_arguments(&self) -> bool {
        self.exchange.era == Era::Modern
    }

    pub(super) async fn request(
        &self,
        request: &UpstreamRequest<'_>,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let outcome = self.exchange.request(request, listener).await;
        let is_stranger = match &outcome {
            Err(UpstreamError::Gone | UpstreamError::Status(400 | 404 | 405 | 406 | 415)) => true,
            Err(UpstreamError::Rpc(error)) => error.code == UNSUPPORTED_VERSION,
            _ => false,
        };
        if is_stranger {
            self.lost.store(true, Ordering::Relaxed);
        }
        outcome
    }
}
