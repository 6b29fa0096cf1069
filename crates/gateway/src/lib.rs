//! The HTTP edge: MCP in, governed calls out.
//!
//! ```text
//!  client ──▶ http ──▶ auth ──▶ mcp ──▶ call_tool ──▶ reply ──▶ client
//!            limits,   Caller   version,   │  ▲
//!            origin             method     │  │ receipt
//!                                          ▼  │
//!                        authority (policy) · runner (tool-runner) · trail (audit)
//! ```
//!
//! One job: let a verified caller's call through the story in `call_tool`, in whichever protocol version
//! it came. It holds no session and no tool; what it keeps (verified tokens, permits, the catalogue) can be
//! lost at any moment without losing anything.

mod auth;
mod authority;
mod call_tool;
mod catalogue;
mod config;
mod http;
mod mcp;
mod refusals;
mod reply;
mod stages;
mod trail;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use wardgate_domain::Ambient;
use wardgate_rpc::client::{PolicyClient, ToolRunnerClient};
use wardgate_rpc::{Neighbour, Readiness};
use wardgate_telemetry::Metrics;

pub use auth::{AuthConfig, IssuerConfig, JwksSource, TokenType};
pub use config::{Config, Limits};
pub use http::Bound;

use auth::Authenticator;
use authority::Authority;
use catalogue::Catalogue;
use refusals::Refusals;
use trail::Trail;

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
    /// The issuers or their keys.
    #[error(transparent)]
    Auth(#[from] auth::Error),
    /// The address is taken or not ours.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// The services a gateway cannot work without.
#[derive(Debug, Clone)]
pub struct Neighbours {
    /// Decides.
    pub policy: Neighbour,
    /// Runs.
    pub tool_runner: Neighbour,
    /// Records.
    pub audit: Neighbour,
}

/// A gateway, ready to serve.
pub struct Gateway {
    config: Config,
    public_url: String,
    ambient: Ambient,
    auth: Authenticator,
    authority: Authority,
    catalogue: Catalogue,
    runner: ToolRunnerClient,
    trail: Arc<Trail>,
    refusals: Arc<Refusals>,
    /// Calls under way, whether or not their client still waits.
    stories: TaskTracker,
    parts: Vec<(&'static str, watch::Receiver<Readiness>)>,
    metrics: Metrics,
    _recorder: AbortOnDropHandle<()>,
}

impl Gateway {
    /// Loads the issuers' keys and starts to follow the neighbours. Neighbours that are away do not stop
    /// it; `/ready` says so.
    pub async fn new(
        config: Config,
        bound: &Bound,
        neighbours: Neighbours,
        metrics: Metrics,
        ambient: Ambient,
    ) -> Result<Arc<Self>, Error> {
        config.validate()?;
        let auth = Authenticator::new(config.auth.clone(), ambient.clone()).await?;
        let runner = ToolRunnerClient::new(neighbours.tool_runner.link, NEIGHBOUR_LIMIT);
        let policy = PolicyClient::new(neighbours.policy.link, NEIGHBOUR_LIMIT);
        let catalogue = Catalogue::follow(runner.clone());
        let parts = vec![
            ("keys", auth.readiness()),
            ("policy", neighbours.policy.readiness),
            ("tool-runner", neighbours.tool_runner.readiness),
            ("catalogue", catalogue.readiness()),
            ("audit", neighbours.audit.readiness.clone()),
        ];
        let trail = Arc::new(Trail::new(neighbours.audit, ambient.clone()));
        let refusals = Arc::new(Refusals::default());
        let recorder = refusals::record(Arc::clone(&refusals), Arc::clone(&trail), ambient.clone());
        Ok(Arc::new(Self {
            authority: Authority::new(policy, ambient.clone()),
            _recorder: AbortOnDropHandle::new(tokio::spawn(recorder)),
            public_url: config
                .public_url
                .clone()
                .unwrap_or_else(|| format!("http://{}", bound.address())),
            config,
            ambient,
            auth,
            catalogue,
            runner,
            trail,
            refusals,
            stories: TaskTracker::new(),
            parts,
            metrics,
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

    /// Waits for the calls under way, those included whose client is gone. Call it once nothing is served
    /// any more.
    async fn finish(&self) {
        self.stories.close();
        self.stories.wait().await;
    }

    /// Records what is still only counted. Call it once nothing is served any more.
    pub async fn drain(&self) {
        self.refusals.flush(&self.trail, &self.ambient).await;
    }

    /// How clients reach the gateway.
    fn public_url(&self) -> &str {
        &self.public_url
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

    fn runner(&self) -> &ToolRunnerClient {
        &self.runner
    }

    fn trail(&self) -> &Trail {
        &self.trail
    }
}
