//! Connections to servers over stdio: programs that are started on demand, and again after they ended.

mod channel;
mod lines;
mod process;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::info;
use wardgate_mcp::Era;

use self::channel::Channel;
use self::process::ServerProcess;
use super::backoff::Backoff;
use super::era::{self, CachedObservation, Handshake, Probe, SkillsCapability};
use super::error::UpstreamError;
use super::events::Events;
use super::listen::{self, ListenTransport};
use super::listing::ConnectionTools;
use super::logging::ServerLogLevel;
use super::message::UpstreamRequest;
use super::participation::ClientProfile;
use super::server_message::Listener;
use super::settings::Program;

/// Maximum time for the response to the request that determines the era.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum time for the response to `initialize`.
const INITIALIZE_LIMIT: Duration = Duration::from_secs(30);

/// Maximum delay of a start by the backoff. A start that would be delayed longer is refused immediately.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Time after which a running server does not count as failed to start.
const STABLE_AFTER: Duration = Duration::from_mins(1);

const RESTARTS: Backoff = Backoff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
};

/// A launcher of a server's program.
#[derive(Debug)]
pub(super) struct Launcher {
    program: Program,
    events: Arc<Events>,
    tasks: TaskTracker,
    history: Mutex<StartHistory>,
    is_legacy: CachedObservation,
    /// The features that a legacy server may ask clients for.
    profile: ClientProfile,
}

/// The history of starts.
#[derive(Debug, Default)]
struct StartHistory {
    last_start: Option<Instant>,
    /// Number of consecutive starts that did not last.
    short: u32,
    not_before: Option<Instant>,
}

/// A connection to a running server that is ready for requests.
#[derive(Debug)]
pub(super) struct StdioConnection {
    process: ServerProcess,
    handshake: Handshake,
    pub(super) logging: ServerLogLevel,
    pub(super) listing: ConnectionTools,
    _listening: DropGuard,
}

impl Launcher {
    pub(super) fn new(
        program: Program,
        events: Arc<Events>,
        tasks: TaskTracker,
        profile: ClientProfile,
    ) -> Self {
        Self {
            program,
            events,
            tasks,
            history: Mutex::default(),
            is_legacy: CachedObservation::default(),
            profile,
        }
    }

    /// Starts the server and determines its era.
    pub(super) async fn connect(&self) -> Result<StdioConnection, UpstreamError> {
        self.wait_for_turn().await?;
        let (process, handshake) = self.open().await?;
        process.channel.take_into_use();
        if self.profile.is_empty() {
            self.events.set_observed(handshake.observed_server());
        }
        let stop = CancellationToken::new();
        let transport = StdioListenTransport {
            channel: Arc::clone(&process.channel),
            events: Arc::clone(&self.events),
            era: handshake.era,
        };
        let (events, is_plain) = (Arc::clone(&self.events), self.profile.is_empty());
        let listening = async move {
            // Only the plain connection listens to changes of lists too.
            if is_plain {
                listen::run_listener(transport, events, handshake).await;
            } else {
                listen::run_resource_listener(transport, events, handshake).await;
            }
        };
        self.tasks
            .spawn(stop.clone().run_until_cancelled_owned(listening));
        info!(
            upstream = self.events.upstream,
            version = handshake.version,
            "an upstream server was started"
        );
        Ok(StdioConnection {
            process,
            handshake,
            logging: ServerLogLevel::from_handshake(handshake),
            listing: ConnectionTools::default(),
            _listening: stop.drop_guard(),
        })
    }

    fn history(&self) -> std::sync::MutexGuard<'_, StartHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the server may be started. A server that keeps ending is started with increasing delays.
    async fn wait_for_turn(&self) -> Result<(), UpstreamError> {
        let now = Instant::now();
        let not_before = {
            let mut history = self.history();
            let lasted = history
                .last_start
                .is_some_and(|at| now - at >= STABLE_AFTER);
            if lasted {
                history.short = 0;
            }
            // The first restart has no delay.
            let failures = history.short.saturating_sub(1);
            *history
                .not_before
                .get_or_insert_with(|| now + RESTARTS.wait(failures, &self.events.ambient))
        };
        let wait = not_before.saturating_duration_since(now);
        if wait > LONGEST_WAIT {
            return Err(UpstreamError::Unreachable(format!(
                "it exited repeatedly, and is restarted in {wait:.0?}"
            )));
        }
        tokio::time::sleep(wait).await;
        let mut history = self.history();
        history.last_start = Some(Instant::now());
        history.short = history.short.saturating_add(1);
        history.not_before = None;
        Ok(())
    }

    /// Starts the server and performs the handshake. A server that ends or hangs at a first message other than
    /// `initialize` is started again.
    async fn open(&self) -> Result<(ServerProcess, Handshake), UpstreamError> {
        if self.profile.is_empty() && !self.is_legacy.holds() {
            let process = self.start()?;
            let discover = era::discover();
            let probe = process.channel.request(&discover, Era::Modern, None);
            let answered = match timeout(PROBE_LIMIT, probe).await {
                Ok(Ok(result)) => {
                    self.events.store_instructions(&result);
                    era::read_probe(Ok(result))?
                }
                Ok(Err(UpstreamError::Rpc(error))) => era::read_probe(Err(error))?,
                Ok(Err(_)) | Err(_) => Probe::Legacy,
            };
            if let Probe::Modern(handshake) = answered {
                return Ok((process, handshake));
            }
            if let Ok(handshake) = self.initialize(&process.channel).await {
                self.is_legacy.set(true);
                return Ok((process, handshake));
            }
        }
        let process = self.start()?;
        let handshake = self.initialize(&process.channel).await?;
        if !self.is_legacy.holds() {
            self.is_legacy.set(true);
        }
        Ok((process, handshake))
    }

    async fn initialize(&self, channel: &Channel) -> Result<Handshake, UpstreamError> {
        let initialize = era::initialize(self.profile);
        let result = timeout(
            INITIALIZE_LIMIT,
            channel.request(&initialize, Era::Legacy, None),
        )
        .await
        .unwrap_or(Err(UpstreamError::Timeout))?;
        if self.profile.is_empty() {
            self.events.store_instructions(&result);
        }
        let handshake = era::read_initialize(&result)?;
        channel.notify("notifications/initialized").await?;
        Ok(handshake)
    }

    fn start(&self) -> Result<ServerProcess, UpstreamError> {
        ServerProcess::start(&self.program, &self.events, &self.tasks)
    }
}

/// The parts of a connection that are needed to listen.
#[derive(Clone)]
struct StdioListenTransport {
    channel: Arc<Channel>,
    events: Arc<Events>,
    era: Era,
}

impl ListenTransport for StdioListenTransport {
    async fn send_request(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        self.channel.request(request, self.era, None).await
    }

    /// Waits forever, because all messages of a program arrive on its standard output anyway.
    async fn read_standalone_stream(&self) -> Result<(), UpstreamError> {
        self.events.subscriptions.record_stream_start();
        std::future::pending().await
    }
}

impl StdioConnection {
    pub(super) fn is_usable(&self) -> bool {
        self.process.channel.is_open()
    }

    pub(super) fn era(&self) -> Era {
        self.handshake.era
    }

    /// Sends a message that has no response.
    pub(super) async fn send_message(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        self.process.channel.send_message(message).await
    }

    /// Returns the skills capability of the server, or `None` if it has no skills.
    pub(super) fn skills(&self) -> Option<SkillsCapability> {
        self.handshake.skills
    }

    /// Returns whether tools can be called as tasks of 2025-11-25.
    pub(super) fn has_tasks(&self) -> bool {
        self.handshake.tasks
    }

    /// Sends a request in the background and ignores the response.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>) {
        let era = self.handshake.era;
        self.process.channel.request_later(request, era);
    }

    /// Sends a message that has no response, unless the queue is full because the server does not read.
    pub(super) fn send_message_later(&self, message: Vec<u8>) {
        self.process.channel.send_message_later(message);
    }

    pub(super) async fn request(
        &self,
        request: &UpstreamRequest<'_>,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        self.process
            .channel
            .request(request, self.handshake.era, listener)
            .await
    }
}
