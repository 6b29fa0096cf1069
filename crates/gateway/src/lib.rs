//! The MCP gateway: turns MCP requests into governed calls.
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
//! The gateway runs a verified caller's request through the pipeline in `governed_call`, in any protocol version. It holds no
//! tools and, except for open streams, no sessions: what outlives a request is sealed and held by its client, or in the store
//! that all replicas share. All other state (verified tokens, permits, the catalogue) is a cache and can be lost at any moment.

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
use tokio::time::timeout;
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
use sse::{MessageRelay, SseTransport};
use stored_stream::StreamStore;
use task_handle::TaskHandles;

/// Interval at which a start that waits logs the part that it waits for.
const TELL: Duration = Duration::from_secs(5);

/// Time limit of a request to the policy service, and of a list of the tool-runner.
const NEIGHBOUR_LIMIT: Duration = Duration::from_millis(900);

/// Time in which cancelled calls record their outcome when the process exits.
const LAST_RECORDS: Duration = Duration::from_secs(3);

/// The reason for which a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("{0}")]
    Config(String),
    /// The authentication of requests cannot be set up.
    #[error(transparent)]
    Edge(#[from] wardgate_edge::Error),
    /// The sign-in of browsers cannot be set up.
    #[error(transparent)]
    Connect(#[from] wardgate_connect::Error),
    /// The authorization server cannot be set up.
    #[error(transparent)]
    Authorization(#[from] wardgate_authorization_facade::Error),
}

/// The services that a gateway uses.
#[derive(Debug, Clone)]
pub struct Neighbours {
    /// The policy service, which authorizes calls.
    pub policy: LinkedService<LocalPolicy>,
    /// The tool-runner, which runs tools.
    pub tool_runner: LinkedService<LocalToolRunner>,
    /// The audit service, which records calls.
    pub audit: LinkedService<LocalAudit>,
    /// The memory service, or `None` if there are no conversations.
    pub memory: Option<LinkedService>,
}

/// A gateway, ready to serve.
pub struct Gateway {
    limits: Limits,
    /// Whether `/message` also accepts names of tools as methods.
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
    /// The memory service. It is not among the parts that must be ready, because tools work without it.
    memory: Option<Arc<ConversationMemory>>,
    recorder: Arc<CallRecorder>,
    revocations: Arc<Revocations>,
    limits_view: LimitsView,
    admission: Arc<RequestAdmission>,
    pipeline: Arc<CallPipeline>,
    /// The calls in progress, including those whose client no longer waits.
    calls: TaskTracker,
    parts: Vec<ProbedComponent>,
    /// The gateway's own part of its readiness: not ready from the beginning of a shutdown.
    own_readiness: watch::Sender<Readiness>,
}

/// The resources that are opened before a gateway can start.
struct GatewayResources {
    /// The URL at which clients reach the gateway.
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
    /// Creates a gateway: loads the issuers' keys and starts to follow the neighbouring services. A neighbour that is
    /// unreachable does not prevent the start; `/ready` reports it.
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
        let approvals = Approvals::new(&store, &sealer, policy.clone(), &recorder, &ambient);
        let revocations =
            Revocations::new(revocations, &store, policy.clone(), &recorder, &ambient);
        let quotas = config.limits.quotas.clone();
        let per_minute = config.limits.requests_per_minute;
        let admission =
            RequestAdmission::new(limiter.clone(), per_minute, quotas, &store, &ambient);
        let limits_view = LimitsView::new(&admission, policy.clone(), &recorder);
        let (changed, clock) = (changes.clone(), ambient.clone());
        let authority = Authority::new(policy, limiter, clock, changed, looks_up_callers);
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
        let (inbox, draining) = (ReplicaInbox::new(&store), listeners.drain_token());
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
            Arc::clone(&store),
            Arc::new(approvals),
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

    /// Loads the files that the settings name as [`Gateway::new`] does: key sets, API keys, client secrets, and the
    /// certificates of other replicas. Sends no request.
    pub async fn check_files(config: &Config) -> Result<(), Error> {
        Authenticator::check_files(&config.auth).await?;
        if let Some(sign_in) = &config.sign_in {
            sign_in.check_files(&config.auth).await?;
        }
        if let Some(authorization) = &config.authorization {
            authorization.check_files().await?;
        }
        MessageRelay::new(config.advertise_ca_file.as_deref()).map(drop)
    }

    /// Waits until every part is ready.
    pub async fn ready(&self) {
        for (part, readiness) in &self.parts {
            let mut readiness = readiness.clone();
            // A part whose sender is dropped never becomes ready, which the probes report.
            let mut becoming = pin!(readiness.wait_for(Readiness::is_ready));
            while timeout(TELL, becoming.as_mut()).await.is_err() {
                tracing::warn!(part, "still waiting for a component to become ready");
            }
        }
    }

    /// Returns the router of all paths for clients.
    pub fn router(self: &Arc<Self>) -> Router {
        http::router(self)
    }

    /// Returns the parts that must be ready for the gateway to be ready, for its probes.
    pub fn parts(&self) -> Vec<ProbedComponent> {
        self.parts.clone()
    }

    /// Returns the admission of callers, for other services on the same address.
    pub fn admission(&self) -> Admission {
        self.guard.admission().clone()
    }

    /// Serves `router`, which has the gateway's paths and those of other services on the same address, until `shutdown` closes.
    /// Then finishes the requests in flight, cancels those that take too long, and records the refusals that were only counted.
    /// The gateway is not ready from the moment the shutdown is announced.
    pub async fn serve(self: Arc<Self>, bound: BoundListener, router: Router, shutdown: Shutdown) {
        let limits = self.limits.connections();
        let (announced, closes) = (shutdown.clone().is_told(), shutdown.clone().closes());
        let ending = async {
            announced.await;
            let stops = Readiness::NotReady("the gateway is shutting down".to_owned());
            self.own_readiness.send_replace(stops);
            closes.await;
            // Clients reconnect their streams to another replica from now on.
            self.listeners.drain();
        };
        let serving = bound.serve(router, limits, shutdown, self.finish());
        tokio::join!(ending, serving);
        // Calls that did not complete within the grace period end now, so that each has an outcome on record.
        self.pipeline.cancel_calls();
        if timeout(LAST_RECORDS, self.finish()).await.is_err() {
            tracing::warn!("some calls ended without a record of their outcome");
        }
        self.recorder.flush().await;
    }

    /// Waits for the calls in progress, including those whose client is gone.
    async fn finish(&self) {
        self.calls.close();
        self.calls.wait().await;
    }
}
