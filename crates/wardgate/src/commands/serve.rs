//! `wardgate gateway | policy | tool-runner | audit | memory --config FILE`: runs one service per process.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use http::{Request, Response};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use wardgate_audit::DetailsKeys;
use wardgate_domain::{Ambient, restrict_to_owner};
use wardgate_edge::BoundListener;
use wardgate_gateway::Gateway;
use wardgate_policy::CallHistory;
use wardgate_resilience::concurrency::Limiter;
use wardgate_rpc::Service;
use wardgate_rpc::link::TlsFiles;
use wardgate_rpc::probes::{self, ProbedComponent};
use wardgate_rpc::server::BoundServer;
use wardgate_telemetry::Metrics;

use crate::Failure;
use crate::cli::{ConfigFile, LogVerbosity};
use crate::compose;
use crate::config::{GatewayWiring, ServiceWiring, Settings, concurrency};
use crate::data_dir;
use crate::shutdown;

/// Starts logs, metrics and traces of a service, as its configuration and the command line specify.
pub(crate) fn start_telemetry(
    settings: &Settings,
    service: &'static str,
    verbosity: LogVerbosity,
) -> Result<wardgate_telemetry::Guard, Failure> {
    let config = verbosity.apply(settings.optional("telemetry")?);
    Ok(wardgate_telemetry::init(&config, service)?)
}

pub(crate) async fn gateway(
    arguments: &ConfigFile,
    verbosity: LogVerbosity,
) -> Result<(), Failure> {
    let settings = Settings::load(&arguments.config)?;
    let (mut config, wiring): (wardgate_gateway::Config, GatewayWiring) =
        settings.service("gateway")?;
    let telemetry = start_telemetry(&settings, "gateway", verbosity)?;
    if config.store.is_none() {
        config.store = Some(own_store(&arguments.config, "gateway", "its sessions"));
    }
    let stop = shutdown::shutdown(wiring.drain)?;
    let listen = config.listen;
    let bound = BoundListener::bind(listen).await?;
    let bound = bound.with_certificate(wiring.https.clone())?;
    let bound = bound.behind(wiring.trusted_proxies.clone());
    let neighbours = compose::remote(&wiring)?;
    let key = require_key_file(wiring.session_key_file.as_ref(), "gateway.session_key_file")?;
    let key = data_dir::session_key(key)?;
    let url = bound.url();
    let gateway = Gateway::new(config, &bound, neighbours, &key, Ambient::system()).await?;
    // The gateway serves before the services behind it are reachable; the readiness probe reports the missing ones.
    let probes = serve_probes(wiring.probes, listen, gateway.parts(), telemetry.metrics()).await?;
    println!(
        "ready {url}/mcp (metrics: http://{}/metrics)",
        probes.address
    );
    let router = gateway.router().merge(probes.beside);
    gateway.serve(bound, router, stop).await;
    Ok(())
}

/// Returns the URL of a SQLite file for `service`, whose configuration sets no store for `what`. The file is beside the
/// configuration, or if that directory cannot be written, a new temporary file that the next start does not find.
pub(crate) fn own_store(config: &Path, service: &str, what: &str) -> String {
    let beside = config.with_file_name(format!("{service}.sqlite"));
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    let writable = restrict_to_owner(&mut options).open(&beside);
    let path = if writable.is_ok() {
        beside
    } else {
        let random = u128::from_be_bytes(Ambient::system().random());
        std::env::temp_dir().join(format!("wardgate-{service}-{random:032x}.sqlite"))
    };
    let path = path.display();
    tracing::warn!(
        "{service}.store is not set: this {service} keeps {what} in {path}, which no other {service} can read"
    );
    format!("sqlite:{path}")
}

pub(crate) async fn policy(config: &Path, verbosity: LogVerbosity) -> Result<(), Failure> {
    let settings = Settings::load(config)?;
    let (config, wiring): (wardgate_policy::Config, ServiceWiring) = settings.service("policy")?;
    let telemetry = start_telemetry(&settings, "policy", verbosity)?;
    let key = require_key_file(wiring.permit_key_file.as_ref(), "policy.permit_key_file")?;
    let signer = data_dir::permit_signer(key)?;
    let history = CallHistory::default();
    if let Some(url) = &wiring.links.audit {
        history.connect(compose::remote_record(url, wiring.tls.as_ref())?);
    }
    let service = wardgate_policy::service(config, signer, history, Ambient::system()).await?;
    serve("policy", &wiring, service, telemetry.metrics()).await
}

pub(crate) async fn tool_runner(
    arguments: &ConfigFile,
    verbosity: LogVerbosity,
) -> Result<(), Failure> {
    let settings = Settings::load(&arguments.config)?;
    let (config, wiring): (wardgate_tool_runner::Config, ServiceWiring) =
        settings.service("tool_runner")?;
    let telemetry = start_telemetry(&settings, "tool-runner", verbosity)?;
    require_key_file(
        wiring.permit_public_key_files.first(),
        "tool_runner.permit_public_key_files",
    )?;
    let verifier = data_dir::permit_verifier(&wiring.permit_public_key_files)?;
    let pseudonyms = require_key_file(
        wiring.pseudonym_key_file.as_ref(),
        "tool_runner.pseudonym_key_file",
    )?;
    let (links, tls) = (&wiring.links, wiring.tls.as_ref());
    let audit = require_link(links.audit.as_ref(), "tool_runner.links.audit", 7003)?;
    // The link is optional because everything else works without it. An operator who manages tools gets an error that names
    // the missing link.
    let policy = links.policy.as_ref();
    let memory = links.memory.as_ref();
    let (service, closing) = wardgate_tool_runner::service(
        config,
        verifier,
        data_dir::pseudonym_key(pseudonyms)?,
        data_dir::sealing_key(pseudonyms)?,
        wardgate_tool_runner::Links {
            audit: compose::remote_record(audit, tls)?,
            record_executions: true,
            policy: policy
                .map(|url| compose::remote_rights(url, tls))
                .transpose()?,
            memory: memory
                .map(|url| compose::remote_conversations(url, tls))
                .transpose()?,
            replicas: Some(replicas(wiring.tls.clone())),
        },
        Ambient::system(),
    )
    .await?;
    let served = serve("tool-runner", &wiring, service, telemetry.metrics()).await;
    closing.close().await;
    served
}

/// Returns a function that connects to another replica with the service's own certificate.
fn replicas(tls: Option<TlsFiles>) -> wardgate_tool_runner::Dial {
    Arc::new(move |url| compose::tool_runner(url, tls.as_ref()))
}

pub(crate) async fn audit(config: &Path, verbosity: LogVerbosity) -> Result<(), Failure> {
    let settings = Settings::load(config)?;
    let (config, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
    let telemetry = start_telemetry(&settings, "audit", verbosity)?;
    let key = require_key_file(wiring.mac_key_file.as_ref(), "audit.mac_key_file")?;
    let callers = wardgate_audit::CallingProcesses::OtherProcesses;
    let mac = data_dir::mac_key(key)?;
    let key = require_key_file(wiring.log_key_file.as_ref(), "audit.log_key_file")?;
    let log = data_dir::log_key(key)?;
    let details = details_keys(&wiring)?;
    let keys = wardgate_audit::AuditKeys { mac, log, details };
    // The link is optional because everything else works without it. An operator who reads the record gets an error that
    // names the missing link.
    let policy = wiring.links.policy.as_ref();
    let policy = policy.map(|url| compose::remote_rights(url, wiring.tls.as_ref()));
    let policy = policy.transpose()?;
    let service = wardgate_audit::service(config, keys, callers, policy, Ambient::system());
    let (service, closing) = Box::pin(service).await?;
    let served = serve("audit", &wiring, service, telemetry.metrics()).await;
    closing.close().await;
    served
}

pub(crate) async fn memory(arguments: &ConfigFile, verbosity: LogVerbosity) -> Result<(), Failure> {
    let settings = Settings::load(&arguments.config)?;
    let (config, wiring): (wardgate_memory::Config, ServiceWiring) = settings.service("memory")?;
    let telemetry = start_telemetry(&settings, "memory", verbosity)?;
    let key = require_key_file(wiring.master_key_file.as_ref(), "memory.master_key_file")?;
    let (links, tls) = (&wiring.links, wiring.tls.as_ref());
    let policy = require_link(links.policy.as_ref(), "memory.links.policy", 7001)?;
    let audit = require_link(links.audit.as_ref(), "memory.links.audit", 7003)?;
    let service = wardgate_memory::service(
        config,
        data_dir::memory_keys(key, &wiring.former_master_key_files)?,
        compose::remote_rights(policy, tls)?,
        compose::remote_record(audit, tls)?,
        Ambient::system(),
    )
    .await?;
    serve("memory", &wiring, service, telemetry.metrics()).await
}

/// Returns the URL of a service that is required, or an error that names the missing key.
fn require_link<'a>(url: Option<&'a String>, key: &str, port: u16) -> Result<&'a str, Failure> {
    url.map(String::as_str).ok_or_else(|| {
        format!(
            "{key} is missing: set it to the address of the service, for example https://127.0.0.1:{port}"
        )
        .into()
    })
}

/// Returns the path of a required key file. A separate service does not create keys, because it could not share them with
/// its peers.
pub(crate) fn require_key_file<'a>(
    file: Option<&'a PathBuf>,
    key: &str,
) -> Result<&'a PathBuf, Failure> {
    file.ok_or_else(|| {
        format!(
            "{key} is missing: set it to a key file; `wardgate certs dev` creates one for trials"
        )
        .into()
    })
}

/// Reads the keys for the details of calls that a configuration of separate services names.
pub(crate) fn details_keys(wiring: &ServiceWiring) -> Result<DetailsKeys, Failure> {
    let current = require_key_file(wiring.details_key_file.as_ref(), "audit.details_key_file")?;
    let former = &wiring.former_details_key_files;
    Ok(data_dir::details_keys(current, former)?)
}

async fn serve<S, L>(
    name: &'static str,
    wiring: &ServiceWiring,
    service: Service<S, L>,
    metrics: Metrics,
) -> Result<(), Failure>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let stop = shutdown::shutdown(wiring.drain)?;
    let mut bound = BoundServer::bind(&wiring.server()).await?;
    let section = name.replace('-', "_");
    if let Some(concurrency) = concurrency(&section, wiring.concurrency)? {
        bound = bound.with_limiter(Limiter::new(name, concurrency));
    }
    let service = Service {
        readiness: stop.over(service.readiness),
        ..service
    };
    if wiring.probes.is_some() {
        let parts = vec![(name, service.readiness.clone())];
        serve_probes(wiring.probes, wiring.listen, parts, metrics).await?;
    }
    println!("ready {name} {}", bound.address()?);
    Ok(bound.serve(service, stop).await?)
}

/// The address of the probes and metrics, and the probes to serve on the address for clients as well.
pub(crate) struct Probes {
    /// The address, with the port that was chosen.
    pub(crate) address: SocketAddr,
    /// The routes to add to the address for clients.
    pub(crate) beside: Router,
}

/// Serves the probes of `parts` and the metrics on a separate address: the configured one, or [`DEFAULT_PROBES`]. Without a
/// configured address, another loopback port is used if the port for clients is 0 or if the default port is taken.
///
/// Without a configured address, only this machine can reach the default one, so the probes for others are served on the
/// address for clients as well. Metrics never are, because they contain the names of tools.
pub(crate) async fn serve_probes(
    configured: Option<SocketAddr>,
    clients: SocketAddr,
    parts: Vec<ProbedComponent>,
    metrics: Metrics,
) -> Result<Probes, Failure> {
    let listener = match configured {
        Some(listen) => listen_for_probes(listen).await?,
        None if clients.port() == 0 => listen_for_probes(ANY_PORT).await?,
        None => match TcpListener::bind(DEFAULT_PROBES).await {
            Ok(listener) => listener,
            Err(error) => {
                let listener = listen_for_probes(ANY_PORT).await?;
                let address = listener.local_addr()?;
                tracing::warn!(
                    "cannot listen on {DEFAULT_PROBES} for probes and metrics ({error}); listening on {address} instead. Set `probes` to \
                     choose an address"
                );
                listener
            }
        },
    };
    let address = listener.local_addr()?;
    let beside = match configured {
        Some(_) => probes::alive(),
        None => probes::states(parts.clone()),
    };
    let router = probes::router(parts, &metrics);
    // The task ends with the process, because probes have no work to finish.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(Probes { address, beside })
}

/// Default address of probes and metrics.
const DEFAULT_PROBES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn listen_for_probes(listen: SocketAddr) -> Result<TcpListener, Failure> {
    let listening = TcpListener::bind(listen).await;
    listening.map_err(|error| format!("cannot listen on {listen} for probes: {error}").into())
}
