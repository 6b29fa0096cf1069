//! Servers on the other end of a pipe: started when first needed, and again when they ended.

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

/// How long a server may take over the message that shows its era, and over `initialize`.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
const INITIALIZE_LIMIT: Duration = Duration::from_secs(30);

/// A start that the backoff puts off for longer is refused at once.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A server that ran for so long did not fail to start.
const STABLE_AFTER: Duration = Duration::from_mins(1);

const RESTARTS: Backoff = Backoff {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(5),
};

/// Starts a server's program.
#[derive(Debug)]
pub(super) struct Launcher {
    program: Program,
    events: Arc<Events>,
    tasks: TaskTracker,
    history: Mutex<StartHistory>,
    is_legacy: CachedObservation,
    /// What a legacy server may ask.
    profile: ClientProfile,
}

/// What the starts so far showed.
#[derive(Debug, Default)]
struct StartHistory {
    last_start: Option<Instant>,
    /// Starts in a row that did not last.
    short: u32,
    not_before: Option<Instant>,
}

/// A server ready for requests.
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

    /// Starts the server and finds out its era.
    pub(super) async fn connect(&self) -> Result<StdioConnection, UpstreamError> {
        self.wait_for_turn().await?;
        let (process, handshake) = self.open().await?;
        process.channel.take_into_use();
        if self.profile.is_empty() {
            self.events.set_observed(handshake.observed());
        }
        let stop = CancellationToken::new();
        let transport = StdioListenTransport {
            channel: Arc::clone(&process.channel),
            events: Arc::clone(&self.events),
            era: handshake.era,
        };
        let (events, is_plain) = (Arc::clone(&self.events), self.profile.is_empty());
        let listening = async move {
            // The plain connection hears of changes of lists too.
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
            logging: ServerLogLevel::of(handshake),
            listing: ConnectionTools::default(),
            _listening: stop.drop_guard(),
        })
    }

    fn history(&self) -> std::sync::MutexGuard<'_, StartHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server that keeps ending is started less and less often.
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
            // The first start again is free.
            let failures = history.short.saturating_sub(1);
            *history
                .not_before
                .get_or_insert_with(|| now + RESTARTS.wait(failures, &self.events.ambient))
        };
        let wait = not_before.saturating_duration_since(now);
        if wait > LONGEST_WAIT {
            return Err(UpstreamError::Unreachable(format!(
                "it ended again and again, and is started again in {wait:.0?}"
            )));
        }
        tokio::time::sleep(wait).await;
        let mut history = self.history();
        history.last_start = Some(Instant::now());
        history.short = history.short.saturating_add(1);
        history.not_before = None;
        Ok(())
    }

    /// A server that ends, or hangs, at a first message other than `initialize` gets a fresh process.
    async fn open(&self) -> Result<(ServerProcess, Handshake), UpstreamError> {
        if self.profile.is_empty() && !self.is_legacy.holds() {
            let process = self.start()?;
            let discover = era::discover();
            let probe = process.channel.request(&discover, Era::Modern, None);
            let answered = match timeout(PROBE_LIMIT, probe).await {
                Ok(Ok(result)) => {
                    self.events.learn(&result);
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
            self.events.learn(&result);
        }
        let handshake = era::read_initialize(&result)?;
        channel.notify("notifications/initialized").await?;
        Ok(handshake)
    }

    fn start(&self) -> Result<ServerProcess, UpstreamError> {
        ServerProcess::start(&self.program, &self.events, &self.tasks)
    }
}

/// What a request to listen needs of a program's streams.
#[derive(Clone)]
struct StdioListenTransport {
    channel: Arc<Channel>,
    events: Arc<Events>,
    era: Era,
}

impl ListenTransport for StdioListenTransport {
    async fn ask(&self, request: &UpstreamRequest<'_>) -> Result<Box<RawValue>, UpstreamError> {
        self.channel.request(request, self.era, None).await
    }

    /// There is but one way, on which everything is heard.
    async fn read_standalone_stream(&self) -> Result<(), UpstreamError> {
        self.events.subscriptions.opened();
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

    /// Says something that has no answer.
    pub(super) async fn say(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        self.process.channel.say(message).await
    }

    /// What the server says of its skills, if it has any.
    pub(super) fn skills(&self) -> Option<SkillsCapability> {
        self.handshake.skills
    }

    /// Tools can be called as tasks.
    pub(super) fn has_tasks(&self) -> bool {
        self.handshake.tasks
    }

    /// Asks for what nobody waits for the answer to.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>) {
        let era = self.handshake.era;
        self.process.channel.request_later(request, era);
    }

    /// The same, unless the server does not listen.
    pub(super) fn say_later(&self, message: Vec<u8>) {
        self.process.channel.say_later(message);
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
