//! Composition of the services: the only module that knows where each service is.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use wardgate_agent::{Agent, ApprovalKey, Endpoints};
use wardgate_audit::LogCloser;
use wardgate_console::{
    Console, ConsoleStore, HttpLimits, ProviderSignIn, RecordLinks, SignInConfig,
};
use wardgate_domain::{Ambient, PermitSigner, PermitVerifier};
use wardgate_edge::{Admission, Authenticator, EdgeClient, Origins};
use wardgate_gateway::{Gateway, Neighbours};
use wardgate_policy::CallHistory;
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::{
    AuditClient, LocalAudit, LocalPolicy, LocalToolRunner, MemoryClient, PolicyClient,
};
use wardgate_rpc::link::TlsFiles;
use wardgate_rpc::operator::OperatorServices;
use wardgate_rpc::{LinkedService, Peer, Readiness, link};
use wardgate_tool_runner::{SealingKey, ServiceCloser};

use crate::Failure;
use crate::config::{AgentWiring, ConsoleWiring, GatewayWiring};

/// Timeout of a request to the policy service for the rights of a reader.
const RIGHTS_LIMIT: Duration = Duration::from_secs(1);

/// Timeout of a request to the memory service.
const CONVERSATIONS_LIMIT: Duration = Duration::from_secs(5);

/// Timeout of recording a change that is not a call.
const RECORD_LIMIT: Duration = Duration::from_secs(1);

/// The configurations and keys of the services of one process.
#[derive(Debug)]
pub(crate) struct ServiceConfigs {
    pub(crate) policy: wardgate_policy::Config,
    pub(crate) tool_runner: wardgate_tool_runner::Config,
    pub(crate) audit: wardgate_audit::Config,
    pub(crate) memory: wardgate_memory::Config,
    pub(crate) permit_signer: PermitSigner,
    pub(crate) permit_verifier: PermitVerifier,
    pub(crate) pseudonym_key: PseudonymKey,
    pub(crate) sealing_key: SealingKey,
    pub(crate) audit_keys: wardgate_audit::AuditKeys,
    pub(crate) memory_keys: wardgate_memory::MasterKeys,
}

/// The services of this process.
pub(crate) struct LocalServices {
    /// The services for the gateway, each behind a local link.
    pub(crate) neighbours: Neighbours,
    /// The links of the console to the policy and the record.
    pub(crate) record: RecordLinks,
    /// The services for operators.
    pub(crate) operator_services: OperatorServices,
    /// Stops the background work of the services.
    pub(crate) closing: LocalCloser,
}

/// Stops the background work of the services of this process.
pub(crate) struct LocalCloser {
    /// The policy service's link to the audit service. It is cut first because the audit service also links to the policy
    /// service.
    history: CallHistory,
    tool_runner: ServiceCloser,
    log: LogCloser,
}

impl LocalCloser {
    /// Stops the background work. Must be called after the last request is served.
    pub(crate) async fn close(self) {
        self.history.disconnect();
        self.tool_runner.close().await;
        self.log.close().await;
    }
}

/// Starts every service in this process.
pub(crate) async fn local(
    parts: ServiceConfigs,
    ambient: &Ambient,
) -> Result<LocalServices, Failure> {
    let history = CallHistory::default();
    let policy = wardgate_policy::service(
        parts.policy,
        parts.permit_signer,
        history.clone(),
        ambient.clone(),
    );
    let policy = policy.await?;
    let audit = wardgate_audit::service(
        parts.audit,
        parts.audit_keys,
        wardgate_audit::CallingProcesses::ThisProcess,
        Some(rights(link::local(policy.clone(), Peer::Audit))),
        ambient.clone(),
    );
    let (audit, log) = Box::pin(audit).await?;
    history.connect(record(link::local(audit.clone(), Peer::Policy)));
    let memory = wardgate_memory::service(
        parts.memory,
        parts.memory_keys,
        rights(link::local(policy.clone(), Peer::Memory)),
        record(link::local(audit.clone(), Peer::Memory)),
        ambient.clone(),
    )
    .await?;
    let (tool_runner, runner_closer) = wardgate_tool_runner::service(
        parts.tool_runner,
        parts.permit_verifier,
        parts.pseudonym_key,
        parts.sealing_key,
        wardgate_tool_runner::Links {
            audit: record(link::local(audit.clone(), Peer::ToolRunner)),
            // The tool-runner records executions because it cannot rely on callers in other processes. Here all services
            // share one process, so code that could omit the gateway's records could omit these too.
            record_executions: false,
            policy: Some(rights(link::local(policy.clone(), Peer::ToolRunner))),
            memory: Some(conversations(link::local(memory.clone(), Peer::ToolRunner))),
            replicas: None,
        },
        ambient.clone(),
    )
    .await?;
    let operator_services = OperatorServices::default()
        .with(policy.clone())
        .with(tool_runner.clone())
        .with(audit.clone())
        .with(memory.clone());
    let shown = RecordLinks {
        policy: rights(link::local(policy.clone(), Peer::Console)),
        audit: record(link::local(audit.clone(), Peer::Console)),
    };
    let neighbours = Neighbours {
        policy: link::local(policy, Peer::Gateway),
        tool_runner: link::local(tool_runner, Peer::Gateway),
        audit: link::local(audit, Peer::Gateway),
        memory: Some(link::local(memory, Peer::Gateway)),
    };
    Ok(LocalServices {
        neighbours,
        record: shown,
        operator_services,
        closing: LocalCloser {
            history,
            tool_runner: runner_closer,
            log,
        },
    })
}

/// Connects to every service over the network.
pub(crate) fn remote(wiring: &GatewayWiring) -> Result<Neighbours, Failure> {
    let tls = wiring.tls.as_ref();
    let links = &wiring.links;
    Ok(Neighbours {
        policy: policy(&links.policy, tls)?,
        tool_runner: tool_runner(&links.tool_runner, tls)?,
        audit: audit(&links.audit, tls)?,
        memory: match &links.memory {
            Some(url) => Some(memory(url, tls)?),
            None => None,
        },
    })
}

/// Creates the agent on the address of a gateway in this process, which the agent calls without a socket.
pub(crate) async fn local_agent(
    config: &wardgate_agent::Config,
    approvals: ApprovalKey,
    gateway: &Arc<Gateway>,
    ambient: &Ambient,
) -> Result<Endpoints, Failure> {
    let inside = wardgate_agent::GatewayEndpoint::in_process(gateway.router());
    Ok(Endpoints {
        agent: Agent::open(config, inside, approvals, ambient.clone()).await?,
        admission: gateway.admission(),
        ambient: ambient.clone(),
    })
}

/// Creates the agent of a separate service.
pub(crate) async fn remote_agent(
    config: &wardgate_agent::Config,
    approvals: ApprovalKey,
    wiring: AgentWiring,
    ambient: &Ambient,
) -> Result<Endpoints, Failure> {
    let gateway = wardgate_agent::GatewayEndpoint::over_http(
        &wiring.links.gateway,
        wiring.links.ca.as_deref(),
    )?;
    Ok(Endpoints {
        agent: Agent::open(config, gateway, approvals, ambient.clone()).await?,
        admission: Admission {
            origins: Origins::new(
                "agent",
                wiring.public_url.as_deref(),
                wiring.allowed_hosts,
                wiring.allowed_origins,
            )?,
            auth: Arc::new(Authenticator::new(wiring.auth, None, ambient.clone()).await?),
            body: wiring.limits.body(),
        },
        ambient: ambient.clone(),
    })
}

/// Creates the console on the address of a gateway in this process. It calls the gateway and the agent without a socket.
pub(crate) fn local_console(
    gateway: &Arc<Gateway>,
    agent: Option<Router>,
    record: RecordLinks,
    store: Arc<ConsoleStore>,
    sign_in: Option<ProviderSignIn>,
    public_url: Option<&str>,
    ambient: &Ambient,
) -> Arc<Console> {
    let links = wardgate_console::Links {
        gateway: EdgeClient::router(gateway.router()),
        agent: agent.map(EdgeClient::router),
        record: Some(record),
    };
    let admission = Admission {
        body: HttpLimits::default().body(),
        ..gateway.admission()
    };
    let ambient = ambient.clone();
    Console::new(links, admission, store, sign_in, public_url, ambient)
}

/// Returns the sign-in of the console if `config` names a provider. Browsers are redirected back to `public_url`.
pub(crate) async fn console_sign_in(
    config: Option<&SignInConfig>,
    public_url: Option<&str>,
    ambient: &Ambient,
) -> Result<Option<ProviderSignIn>, Failure> {
    let Some(config) = config else {
        return Ok(None);
    };
    let opened = ProviderSignIn::open(config, public_url, ambient).await;
    Ok(Some(opened.map_err(|error| format!("console.{error}"))?))
}

/// Client name of the console.
pub(crate) const CONSOLE: &str = "wardgate-console";

/// Creates the console of a separate service, and the receiver of whether the keys of its issuers are available.
pub(crate) async fn remote_console(
    wiring: ConsoleWiring,
    store: Arc<ConsoleStore>,
    ambient: &Ambient,
) -> Result<(Arc<Console>, watch::Receiver<Readiness>), Failure> {
    let (links, tls) = (&wiring.links, wiring.tls.as_ref());
    let unfit = |key: &str, error| format!("console.links.{key}: {error}");
    let record_links = match (&links.policy, &links.audit) {
        (Some(policy_url), Some(audit_url)) => Some(RecordLinks {
            policy: remote_rights(policy_url, tls)?,
            audit: remote_record(audit_url, tls)?,
        }),
        (None, None) => None,
        _ => {
            return Err(
                "console.links: set both policy and audit, or neither: the policy service decides who may read the audit log".into(),
            );
        }
    };
    let agent = links
        .agent
        .as_ref()
        .map(|url| EdgeClient::http(url, CONSOLE, links.ca.as_deref()));
    let links = wardgate_console::Links {
        gateway: EdgeClient::http(&links.gateway, CONSOLE, links.ca.as_deref())
            .map_err(|error| unfit("gateway", error))?,
        agent: agent.transpose().map_err(|error| unfit("agent", error))?,
        record: record_links,
    };
    let auth = Arc::new(Authenticator::new(wiring.auth, None, ambient.clone()).await?);
    let keys = auth.readiness();
    let public_url = wiring.public_url.as_deref();
    let admission = Admission {
        origins: Origins::new("console", public_url, wiring.allowed_hosts, Vec::new())?,
        auth,
        body: wiring.limits.body(),
    };
    let sign_in = console_sign_in(wiring.sign_in.as_ref(), public_url, ambient).await?;
    let ambient = ambient.clone();
    let console = Console::new(links, admission, store, sign_in, public_url, ambient);
    Ok((console, keys))
}

/// Connects to the policy service, for requests about the rights of readers.
pub(crate) fn remote_rights(url: &str, tls: Option<&TlsFiles>) -> Result<PolicyClient, Failure> {
    Ok(rights(policy(url, tls)?))
}

/// Connects to the memory service, for tools about conversations.
pub(crate) fn remote_conversations(
    url: &str,
    tls: Option<&TlsFiles>,
) -> Result<MemoryClient, Failure> {
    Ok(conversations(memory(url, tls)?))
}

/// Connects to the audit service, for recording changes that are not calls.
pub(crate) fn remote_record(url: &str, tls: Option<&TlsFiles>) -> Result<AuditClient, Failure> {
    Ok(record(audit(url, tls)?))
}

fn record(audit: LinkedService<LocalAudit>) -> AuditClient {
    AuditClient::new(audit.link, RECORD_LIMIT)
}

fn rights(policy: LinkedService<LocalPolicy>) -> PolicyClient {
    PolicyClient::new(policy.link, RIGHTS_LIMIT)
}

fn conversations(memory: LinkedService) -> MemoryClient {
    MemoryClient::new(memory.link, CONVERSATIONS_LIMIT)
}

/// Returns the gRPC name of the service of `peer`, or an empty string if `peer` serves none.
pub(crate) fn proto_name(peer: Peer) -> &'static str {
    match peer {
        Peer::Policy => "wardgate.policy.v1.PolicyService",
        Peer::ToolRunner => "wardgate.toolrunner.v1.ToolRunnerService",
        Peer::Audit => "wardgate.audit.v1.AuditService",
        Peer::Memory => "wardgate.memory.v1.MemoryService",
        Peer::Gateway | Peer::Console | Peer::Operator => "",
    }
}

fn connect<L>(
    url: &str,
    peer: Peer,
    tls: Option<&TlsFiles>,
) -> Result<LinkedService<L>, link::Error> {
    link::connect(url, peer, proto_name(peer), tls)
}

fn policy(url: &str, tls: Option<&TlsFiles>) -> Result<LinkedService<LocalPolicy>, link::Error> {
    connect(url, Peer::Policy, tls)
}

/// Connects to the audit service.
pub(crate) fn audit(
    url: &str,
    tls: Option<&TlsFiles>,
) -> Result<LinkedService<LocalAudit>, link::Error> {
    connect(url, Peer::Audit, tls)
}

/// Connects to the memory service.
pub(crate) fn memory(url: &str, tls: Option<&TlsFiles>) -> Result<LinkedService, link::Error> {
    connect(url, Peer::Memory, tls)
}

/// Connects to the tool-runner.
pub(crate) fn tool_runner(
    url: &str,
    tls: Option<&TlsFiles>,
) -> Result<LinkedService<LocalToolRunner>, link::Error> {
    connect(url, Peer::ToolRunner, tls)
}
