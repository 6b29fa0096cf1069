//! MCP in, governed calls out.
//!
//! ```text
//!  client ──▶ http ──▶ mcp ────▶ governed_call ────▶ reply ──▶ client
//!             edge:    version,    │  ▲
//!             origin,  method      │  │ receipt
//!             Caller               ▼  │
//!               │        authority (policy) · runner (tool-runner) · audit_log (audit)
//!               └────▶ upstream: the route of one server, under the same rights
//! ```
//!
//! One job: run a verified caller's request through the pipeline in `governed_call`, in whichever protocol version
//! it came. It holds no tool and, but for open streams, no session: what outlives a request is sealed with its client
//! or in the store that all replicas share, and the rest (verified tokens, permits, the catalogue) can be lost at any
//! moment.

mod admission;
mod answer_pace;
mod audit_log;
mod authority;
mod caching;
mod call_tool;
mod catalogue;
mod change_counter;
mod client_interaction;
mod config;
mod content;
mod content_method;
mod cursor;
mod dispatch;
mod governed_call;
mod http;
mod listen;
mod measures;
mod memory;
mod post;
mod refusals;
mod replica_inbox;
mod request_context;
mod scopes;
mod session;
mod sse;
mod stages;
mod stored_arguments;
mod stored_stream;
mod streamable;
mod subscribe;
mod task_handle;
mod tasks;
mod upstream;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use wardgate_connect::{ConnectPages, GatewayParts};
use wardgate_domain::{Ambient, Caller, Event, MemoryAccess, Outcome};
use wardgate_edge::{Admission, Authenticator, BoundListener, Origins};
use wardgate_gateway_store::{Sealer, Store};
use wardgate_mcp_server::{McpResponse, RecordStatus};
use wardgate_resilience::concurrency::Limiter;
use wardgate_resilience::{Rate, RateLimiter};
use wardgate_rpc::client::{CallError, MemoryClient, PolicyClient, ToolRunnerClient};
use wardgate_rpc::probes::ProbedComponent;
use wardgate_rpc::{LinkedService, Readiness, Shutdown};

pub use config::{Config, Limits};
pub use http::{listed_metadata_routes, listed_routes};
pub use scopes::ScopesConfig;
pub use wardgate_connect::{SignInConfig, listed_routes as listed_connect_routes};
pub use wardgate_gateway_store::{LAYOUT, SessionKey};

use audit_log::AuditLog;
use authority::Authority;
use catalogue::Catalogue;
use change_counter::ChangeCounter;
use listen::{ConversationWatcher, Listeners, ResourceSubscriptions};
use refusals::Refusals;
use replica_inbox::ReplicaInbox;
use session::{SseStreams, StreamableSessions};
use sse::MessageRelay;
use stored_stream::StreamStore;
use task_handle::TaskHandles;

/// How often a start that waits says what for.
const TELL: Duration = Duration::from_secs(5);

/// No answer of the policy service, and no list of the tool-runner, takes longer.
const NEIGHBOUR_LIMIT: Duration = Duration::from_millis(900);

/// A gateway that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot be used.
    #[error("{0}")]
    Config(String),
    /// Whose requests are taken.
    #[error(transparent)]
    Edge(#[from] wardgate_edge::Error),
    /// Whom browsers are signed in by.
    #[error(transparent)]
    Connect(#[from] wardgate_connect::Error),
}

/// The services a gateway works with.
#[derive(Debug, Clone)]
pub struct Neighbours {
    /// Decides.
    pub policy: LinkedService,
    /// Runs.
    pub tool_runner: LinkedService,
    /// Records.
    pub audit: LinkedService,
    /// Remembers; without one there are no conversations.
    pub memory: Option<LinkedService>,
}

/// A gateway, ready to serve.
pub struct Gateway {
    config: Config,
    public_url: String,
    origins: Origins,
    connect_pages: Arc<ConnectPages>,
    ambient: Ambient,
    auth: Arc<Authenticator>,
    authority: Authority,
    catalogue: Catalogue,
    listeners: Listeners,
    /// What clients before 2026-07-28 are subscribed to.
    subscriptions: Arc<ResourceSubscriptions>,
    sealer: Arc<Sealer>,
    store: Arc<Store>,
    replica_inbox: ReplicaInbox,
    sessions: StreamableSessions,
    stream_store: Arc<StreamStore>,
    task_handles: TaskHandles,
    /// Sessions of HTTP+SSE whose streams are here.
    streams: SseStreams,
    relay: MessageRelay,
    runner: ToolRunnerClient,
    /// Not among the parts that must be ready: tools are of use without it.
    memory: Option<MemoryClient>,
    audit_log: Arc<AuditLog>,
    refusals: Arc<Refusals>,
    /// Requests that each caller may still make.
    request_rates: RateLimiter,
    request_rate: Rate,
    /// Lets requests in, as many as can be worked on.
    limiter: Limiter,
    /// Calls under way, whether or not their client still waits.
    calls: TaskTracker,
    parts: Vec<ProbedComponent>,
    /// Whether it goes on: the part of its readiness that is its own.
    own_readiness: watch::Sender<Readiness>,
    _recorder: AbortOnDropHandle<()>,
}

impl Gateway {
    /// Loads the issuers' keys and starts to follow the neighbours. Neighbours that are away do not stop
    /// it; `/ready` says so.
    pub async fn new(
        config: Config,
        bound: &BoundListener,
        neighbours: Neighbours,
        key: &SessionKey,
        ambient: Ambient,
    ) -> Result<Arc<Self>, Error> {
        config.validate()?;
        let origins = Origins::new(
            "gateway",
            config.public_url.as_deref(),
            config.hosts(),
            config.allowed_origins.clone(),
        )?;
        let store = config.store.as_deref().unwrap_or_default();
        let store = Store::open(store, &config.database, ambient.clone()).await;
        let store = store.map_err(|error| Error::Config(error.to_string()))?;
        let public_url = match &config.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", bound.address()),
        };
        let auth = Authenticator::new(config.auth.clone(), Some(&public_url), ambient.clone());
        let auth = Arc::new(auth.await?);
        let runner = ToolRunnerClient::new(neighbours.tool_runner.link, NEIGHBOUR_LIMIT);
        let sealer = Arc::new(Sealer::new(key, ambient.clone()));
        let parts = GatewayParts {
            runner: runner.clone(),
            store: Arc::clone(&store),
            sealer: Arc::clone(&sealer),
            origins: origins.clone(),
            public_url: public_url.clone(),
            body_limits: config.limits.body(),
            ambient: ambient.clone(),
        };
        let connect_pages =
            ConnectPages::open(config.sign_in.as_ref(), &config.auth, parts).await?;
        let policy = PolicyClient::new(neighbours.policy.link, NEIGHBOUR_LIMIT);
        let changes = ChangeCounter::default();
        let catalogue = Catalogue::follow(runner.clone(), changes.clone());
        let memory = neighbours
            .memory
            .map(|memory| MemoryClient::new(memory.link, memory::LIMIT));
        let (own_readiness, own) = watch::channel(Readiness::Ready);
        let parts = vec![
            ("gateway", own),
            ("keys", auth.readiness()),
            ("policy", neighbours.policy.readiness),
            ("tool-runner", neighbours.tool_runner.readiness),
            ("catalogue", catalogue.readiness()),
            ("audit", neighbours.audit.readiness.clone()),
        ];
        let limiter = Limiter::new("gateway", config.concurrency);
        let audit_log = AuditLog::new(
            neighbours.audit,
            config.append_limit,
            limiter.clone(),
            ambient.clone(),
        );
        let audit_log = Arc::new(audit_log);
        let refusals = Arc::new(Refusals::default());
        let recorder = refusals::record(
            Arc::clone(&refusals),
            Arc::clone(&audit_log),
            ambient.clone(),
        );
        Ok(Arc::new(Self {
            authority: Authority::new(policy, ambient.clone(), changes.clone()),
            listeners: Listeners::new(
                changes,
                memory.clone().map(ConversationWatcher::follow),
                config.limits.streams(),
            ),
            subscriptions: ResourceSubscriptions::new(Arc::clone(&store)),
            replica_inbox: ReplicaInbox::new(&store),
            sessions: StreamableSessions::new(&store, &sealer, &ambient),
            stream_store: StreamStore::new(&store, &sealer, &ambient),
            task_handles: TaskHandles::new(&store, &sealer),
            sealer,
            store,
            streams: SseStreams::default(),
            relay: MessageRelay::new()?,
            _recorder: AbortOnDropHandle::new(tokio::spawn(recorder)),
            public_url,
            request_rates: RateLimiter::default(),
            request_rate: Rate::per_minute(config.limits.requests_per_minute),
            config,
            origins,
            connect_pages,
            ambient,
            auth,
            catalogue,
            runner,
            memory,
            audit_log,
            refusals,
            limiter,
            calls: TaskTracker::new(),
            parts,
            own_readiness,
        }))
    }

    /// Waits until every part is ready.
    pub async fn ready(&self) {
        for (part, readiness) in &self.parts {
            let mut readiness = readiness.clone();
            // A sender that is gone never becomes ready; the probes tell.
            let mut becoming = pin!(readiness.wait_for(Readiness::is_ready));
            while tokio::time::timeout(TELL, becoming.as_mut()).await.is_err() {
                tracing::warn!(part, "still waiting for a part to become ready");
            }
        }
    }

    /// Every path for clients.
    pub fn router(self: &Arc<Self>) -> Router {
        http::router(self)
    }

    /// What has to be ready for it to be, for its probes.
    pub fn parts(&self) -> Vec<ProbedComponent> {
        self.parts.clone()
    }

    /// Whom it lets in, for whatever else has the same address.
    pub fn admission(&self) -> Admission {
        Admission {
            auth: Arc::clone(&self.auth),
            origins: self.origins.clone(),
            body: self.config.limits.body(),
        }
    }

    /// Serves `router`, which is the gateway's and whatever else has the same address, until `shutdown` closes. Then
    /// finishes what is in flight and records what was only counted. From when it is told to stop it is not ready.
    pub async fn serve(self: Arc<Self>, bound: BoundListener, router: Router, shutdown: Shutdown) {
        let limits = self.config.limits.connections();
        let (told, closes) = (shutdown.clone().is_told(), shutdown.clone().closes());
        let ending = async {
            told.await;
            let stops = Readiness::NotReady("it was told to stop".to_owned());
            self.own_readiness.send_replace(stops);
            closes.await;
            // Whoever listens does so elsewhere from now on.
            self.listeners.drain();
        };
        let serving = bound.serve(router, limits, shutdown, self.finish());
        tokio::join!(ending, serving);
        self.refusals.flush(&self.audit_log, &self.ambient).await;
    }

    /// Puts on record how a call ended, and counts a refusal instead where its caller had many of late. A call whose intent
    /// is on record has an outcome too, always.
    async fn record_outcome(
        &self,
        outcome: Outcome,
        has_intent: bool,
    ) -> Result<RecordStatus, CallError> {
        if !has_intent && self.refusals.folds(&outcome.call, outcome.status) {
            return Ok(RecordStatus::InSummary);
        }
        let appended = self.audit_log.append(Event::Outcome(outcome)).await;
        appended.map(RecordStatus::ByItself)
    }

    /// The same of a use of the memory, which has no intent.
    async fn record_access(&self, access: MemoryAccess) -> Result<RecordStatus, CallError> {
        if self.refusals.folds(&access.call, access.status) {
            return Ok(RecordStatus::InSummary);
        }
        let appended = self.audit_log.append(Event::MemoryAccess(access)).await;
        appended.map(RecordStatus::ByItself)
    }

    /// Waits for the calls under way, those included whose client is gone.
    async fn finish(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// How clients reach the gateway.
    fn public_url(&self) -> &str {
        &self.public_url
    }

    /// The path below which clients reach it.
    fn public_path(&self) -> &str {
        let after_scheme = self.public_url.split_once("://");
        let host_and_path = after_scheme.map_or(self.public_url.as_str(), |(_, rest)| rest);
        let path = host_and_path.find('/').map(|at| &host_and_path[at..]);
        path.unwrap_or_default().trim_end_matches('/')
    }

    /// Whether other replicas reach this one at `url`.
    fn is_at(&self, url: &str) -> bool {
        self.config.advertise.as_deref() == Some(url)
    }

    /// Counts why a message was refused. A refused call of a tool has its own record; what never became one has
    /// only this.
    fn count(&self, answer: &McpResponse, client_ip: &str, caller: &Caller) {
        for reason in answer.refused() {
            self.refusals.count(reason, client_ip, caller.subject());
        }
    }

    fn takes_direct_methods(&self) -> bool {
        self.config.direct_methods
    }

    fn limits(&self) -> Limits {
        self.config.limits
    }

    fn ambient(&self) -> &Ambient {
        &self.ambient
    }

    fn authority(&self) -> &Authority {
        &self.authority
    }

    fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    fn subscriptions(&self) -> &Arc<ResourceSubscriptions> {
        &self.subscriptions
    }

    fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    fn store(&self) -> &Arc<Store> {
        &self.store
    }

    fn replica_inbox(&self) -> &ReplicaInbox {
        &self.replica_inbox
    }

    fn runner(&self) -> &ToolRunnerClient {
        &self.runner
    }

    fn memory(&self) -> Option<&MemoryClient> {
        self.memory.as_ref()
    }

    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }
}
