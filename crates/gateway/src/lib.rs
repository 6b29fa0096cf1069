//! MCP in, governed calls out.
//!
//! ```text
//!  client ──▶ http ──▶ dispatch ─▶ governed_call ─────────────▶ client
//!             edge:    version,    │  ▲
//!             origin,  method      │  │ receipt
//!             Caller               ▼  │
//!               │        authority (policy) · runner (tool-runner) · recorder (audit)
//!               └────▶ upstream: the route of one server, under the same rights
//! ```
//!
//! One job: run a verified caller's request through the pipeline in `governed_call`, in whichever protocol version
//! it came. It holds no tool and, but for open streams, no session: what outlives a request is sealed with its client
//! or in the store that all replicas share, and the rest (verified tokens, permits, the catalogue) can be lost at any
//! moment.

mod answer_pace;
mod authority;
mod caching;
mod call_tool;
mod catalogue;
mod change_counter;
mod client_interaction;
mod config;
mod content;
mod discovery;
mod dispatch;
mod governed_call;
mod http;
mod listen;
mod measures;
mod memory;
mod post;
mod replica_inbox;
mod request_context;
mod scopes;
mod session;
mod sse;
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
use tokio_util::task::TaskTracker;
use wardgate_approvals::Approvals;
use wardgate_authorization_facade::{AuthorizationServer, FacadeParts};
use wardgate_connect::{ConnectPages, GatewayParts};
use wardgate_domain::Ambient;
use wardgate_edge::{Admission, Authenticator, BoundListener, CallerLookup, Origins};
use wardgate_gateway_record::{AuditLog, CallRecorder};
use wardgate_gateway_store::{Sealer, Store};
use wardgate_limits::{LimitsView, RequestAdmission};
use wardgate_resilience::concurrency::Limiter;
use wardgate_revocations::{RevocationFollower, Revocations};
use wardgate_rpc::client::{
    LocalAudit, LocalPolicy, LocalToolRunner, MemoryClient, PolicyClient, ToolRunnerClient,
};
use wardgate_rpc::probes::ProbedComponent;
use wardgate_rpc::{LinkedService, Readiness, Shutdown};

pub use config::{Config, Limits};
pub use http::{listed_metadata_routes, listed_routes};
pub use scopes::ScopesConfig;
pub use wardgate_authorization_facade::{
    AuthorizationConfig, listed_routes as listed_oauth_routes,
};
pub use wardgate_connect::{SignInConfig, listed_routes as listed_connect_routes};
pub use wardgate_gateway_store::{LAYOUT, SessionKey};
pub use wardgate_mcp_server::{METHODS, McpMethod};

use authority::Authority;
use catalogue::Catalogue;
use change_counter::ChangeCounter;
use client_interaction::{ClientChannels, ResponseRouter};
use discovery::Discovery;
use governed_call::{CallPipeline, OperationServices};
use http::HttpGuard;
use listen::{ConversationWatcher, Listeners, ResourceSubscriptions, ResourceWatcher};
use memory::ConversationMemory;
use replica_inbox::ReplicaInbox;
use session::StreamableSessions;
use sse::SseTransport;
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
    /// Whom clients get tokens from.
    #[error(transparent)]
    Authorization(#[from] wardgate_authorization_facade::Error),
}

/// The services a gateway works with.
#[derive(Debug, Clone)]
pub struct Neighbours {
    /// Decides.
    pub policy: LinkedService<LocalPolicy>,
    /// Runs.
    pub tool_runner: LinkedService<LocalToolRunner>,
    /// Records.
    pub audit: LinkedService<LocalAudit>,
    /// Remembers; without one there are no conversations.
    pub memory: Option<LinkedService>,
}

/// A gateway, ready to serve.
pub struct Gateway {
    limits: Limits,
    /// Whether `/message` also takes the names of tools as methods.
    takes_direct_methods: bool,
    guard: HttpGuard,
    connect_pages: Arc<ConnectPages>,
    authorization: AuthorizationServer,
    discovery: Arc<Discovery>,
    listeners: Listeners,
    resource_watcher: Arc<ResourceWatcher>,
    sessions: StreamableSessions,
    stream_store: Arc<StreamStore>,
    sse: SseTransport,
    /// Not among the parts that must be ready: tools are of use without it.
    memory: Option<Arc<ConversationMemory>>,
    recorder: Arc<CallRecorder>,
    revocations: Arc<Revocations>,
    limits_view: LimitsView,
    admission: Arc<RequestAdmission>,
    pipeline: Arc<CallPipeline>,
    /// Calls under way, whether or not their client still waits.
    calls: TaskTracker,
    parts: Vec<ProbedComponent>,
    /// Whether it goes on: the part of its readiness that is its own.
    own_readiness: watch::Sender<Readiness>,
}

/// What is opened before a gateway can start.
struct GatewayResources {
    /// How clients reach the gateway.
    public_url: String,
    edge: Admission,
    store: Arc<Store>,
    revocations: Arc<RevocationFollower>,
    sealer: Arc<Sealer>,
    connect_pages: Arc<ConnectPages>,
    authorization: AuthorizationServer,
}

impl GatewayResources {
    async fn open(
        config: &Config,
        bound: &BoundListener,
        runner: &ToolRunnerClient,
        lookup: CallerLookup,
        key: &SessionKey,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
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
            None => bound.url(),
        };
        let auth = Authenticator::new(config.auth.clone(), Some(&public_url), ambient.clone());
        let revocations = RevocationFollower::open(&store).await;
        let auth = auth.await?.with_revocations(revocations.watch());
        let edge = Admission {
            auth: Arc::new(auth.with_lookup(lookup)),
            origins,
            body: config.limits.body(),
        };
        let sealer = Arc::new(Sealer::new(key, ambient.clone()));
        let parts = GatewayParts {
            runner: runner.clone(),
            store: Arc::clone(&store),
            sealer: Arc::clone(&sealer),
            origins: edge.origins.clone(),
            public_url: public_url.clone(),
            body_limits: edge.body,
            ambient: ambient.clone(),
        };
        let connect_pages = ConnectPages::open(config.sign_in.as_ref(), &config.auth, parts);
        let parts = FacadeParts {
            store: Arc::clone(&store),
            sealer: Arc::clone(&sealer),
            auth: Arc::clone(&edge.auth),
            origins: edge.origins.clone(),
            public_url: public_url.clone(),
            body_limits: edge.body,
            ambient: ambient.clone(),
        };
        let elsewhere = config.authorization_server_metadata.as_deref();
        let facade = config.authorization.as_ref();
        let authorization = AuthorizationServer::open(facade, elsewhere, &config.auth, parts);
        Ok(Self {
            connect_pages: connect_pages.await?,
            authorization: authorization.await?,
            public_url,
            edge,
            store,
            revocations,
            sealer,
        })
    }
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
        let runner = ToolRunnerClient::new(neighbours.tool_runner.link, NEIGHBOUR_LIMIT);
        let policy = PolicyClient::new(neighbours.policy.link, NEIGHBOUR_LIMIT);
        let (looks_up_callers, in_force) = watch::channel(None);
        let lookup = CallerLookup::of_policy(policy.clone(), in_force, ambient.clone());
        let GatewayResources {
            public_url,
            edge,
            store,
            revocations,
            sealer,
            connect_pages,
            authorization,
        } = GatewayResources::open(&config, bound, &runner, lookup, key, &ambient).await?;
        let changes = ChangeCounter::default();
        let catalogue = Catalogue::follow(runner.clone(), changes.clone());
        let (own_readiness, own) = watch::channel(Readiness::Ready);
        let parts = vec![
            ("gateway", own),
            ("keys", edge.auth.readiness()),
            ("revocations", revocations.readiness()),
            ("policy", neighbours.policy.readiness),
            ("tool-runner", neighbours.tool_runner.readiness),
            ("catalogue", catalogue.readiness()),
            ("audit", neighbours.audit.readiness.clone()),
        ];
        let limiter = Limiter::new("gateway", config.concurrency);
        let (audit, limit) = (neighbours.audit, config.append_limit);
        let audit_log = AuditLog::new(audit, limit, limiter.clone(), ambient.clone());
        let recorder = CallRecorder::new(audit_log, ambient.clone());
        let approvals = Approvals::new((&store, &sealer), policy.clone(), &recorder, &ambient);
        let revocations = (revocations, &store);
        let revocations = Revocations::new(revocations, policy.clone(), &recorder, &ambient);
        let quotas = config.limits.quotas.clone();
        let per_minute = config.limits.requests_per_minute;
        let admission =
            RequestAdmission::new(limiter.clone(), per_minute, quotas, &store, &ambient);
        let limits_view = LimitsView::new(&admission, policy.clone(), &recorder);
        let told = (changes.clone(), looks_up_callers);
        let authority = Authority::new(policy, limiter, ambient.clone(), told);
        let memory = (neighbours.memory).map(|it| MemoryClient::new(it.link, memory::LIMIT));
        let discovery = Arc::new(Discovery::new(catalogue, authority, memory.is_some()));
        let resource_watcher = ResourceWatcher::new(
            Arc::clone(&discovery),
            runner.clone(),
            ResourceSubscriptions::new(&store, &sealer),
            changes.clone(),
            ambient.clone(),
        );
        let watcher = memory.clone().map(ConversationWatcher::follow);
        let (streams, revoked) = (config.limits.streams(), revocations.watch());
        let listeners = Listeners::new(changes, watcher, streams, revoked, ambient.clone());
        let calls = TaskTracker::new();
        let memory = memory.map(|client| {
            ConversationMemory::new(client, &discovery, &recorder, &admission, &calls, &ambient)
        });
        let stream_store = StreamStore::new(&store, &sealer, &ambient);
        let (inbox, draining) = (ReplicaInbox::new(&store), listeners.draining());
        let router = ResponseRouter::new(Arc::clone(&sealer), ambient.clone(), inbox, draining);
        let services = OperationServices {
            runner,
            discovery: Arc::clone(&discovery),
            connect_pages: Arc::clone(&connect_pages),
            task_handles: TaskHandles::new(&store, &sealer),
            sealer: Arc::clone(&sealer),
            admission: Arc::clone(&admission),
            ambient: ambient.clone(),
        };
        let pipeline = CallPipeline::new(
            services,
            Arc::clone(&recorder),
            (Arc::clone(&store), Arc::new(approvals)),
            ClientChannels::new(Arc::clone(&stream_store), router),
            calls.clone(),
        );
        Ok(Arc::new(Self {
            limits: config.limits.clone(),
            takes_direct_methods: config.direct_methods,
            sse: SseTransport::new(&sealer, &ambient, &config, &public_url)?,
            guard: HttpGuard::new(edge, &config, public_url),
            connect_pages,
            authorization,
            discovery,
            listeners,
            resource_watcher,
            sessions: StreamableSessions::new(&store, &sealer, &ambient),
            stream_store,
            memory,
            recorder,
            revocations,
            limits_view,
            admission,
            pipeline: Arc::new(pipeline),
            calls,
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
        self.guard.admission().clone()
    }

    /// Serves `router`, which is the gateway's and whatever else has the same address, until `shutdown` closes. Then
    /// finishes what is in flight and records what was only counted. From when it is told to stop it is not ready.
    pub async fn serve(self: Arc<Self>, bound: BoundListener, router: Router, shutdown: Shutdown) {
        let limits = self.limits.connections();
        let (announced, closes) = (shutdown.clone().is_told(), shutdown.clone().closes());
        let ending = async {
            announced.await;
            let stops = Readiness::NotReady("it was told to stop".to_owned());
            self.own_readiness.send_replace(stops);
            closes.await;
            // Whoever listens does so elsewhere from now on.
            self.listeners.drain();
        };
        let serving = bound.serve(router, limits, shutdown, self.finish());
        tokio::join!(ending, serving);
        self.recorder.flush().await;
    }

    /// Waits for the calls under way, those included whose client is gone.
    async fn finish(&self) {
        self.calls.close();
        self.calls.wait().await;
    }
}
