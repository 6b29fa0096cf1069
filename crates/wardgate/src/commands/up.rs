//! `wardgate up`: runs every service in one process, on a data directory.

mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use wardgate_agent::Endpoints;
use wardgate_audit::AuditKeys;
use wardgate_console::ConsoleStore;
use wardgate_domain::Ambient;
use wardgate_edge::BoundListener;
use wardgate_gateway::Gateway;
use wardgate_rpc::Drain;
use wardgate_rpc::operator::{OperatorServices, OperatorSocket};
use wardgate_store::DatabaseSettings;

use crate::Failure;
use crate::cli::{Demo, LogVerbosity, UpArgs};
use crate::commands::{program, serve};
use crate::compose::{self, LocalCloser, LocalServices, ServiceConfigs};
use crate::config::Settings;
use crate::data_dir::{self, DataDir};
use crate::demo::{self, UnpackedDemo};
use crate::issuer::{self, TokenRequest};
use crate::shutdown;

pub(crate) use settings::UpSettings;

/// Configuration file that is used if neither a configuration nor a demo is named.
const CONFIGURATION: &str = "wardgate.yaml";

/// Lifetime of the demo's tokens.
const DEMO_TOKEN: Duration = Duration::from_secs(8 * 3_600);

pub(crate) async fn run(arguments: UpArgs, verbosity: LogVerbosity) -> Result<(), Failure> {
    let ambient = Ambient::system();
    let dir = DataDir::open(&arguments.data_dir)?;
    dir.make_keys(&ambient)?;
    issuer::prepare(&dir)?;
    let (settings, demo) = load_settings(arguments.config, arguments.demo, &dir).await?;
    let mut up = UpSettings::from_settings(&settings, &dir)?;
    let telemetry = wardgate_telemetry::init(&verbosity.apply(up.telemetry.clone()), "up")?;
    // No delay is needed before the shutdown, because no load balancer has to learn of it: there is one process.
    let stop = shutdown::shutdown(Drain::at_once())?;

    if let Some(demo) = &demo {
        let variables = demo.variables.iter().cloned();
        up.tool_runner.variables.extend(variables);
    }
    let listen = arguments.listen.unwrap_or(up.gateway.listen);
    up.gateway.listen = listen;
    let own = settings.listener("gateway")?;
    let bound = BoundListener::bind(listen).await?;
    let bound = bound.with_certificate(own.https)?;
    let bound = bound.behind(own.trusted_proxies);
    let url = bound.url();
    // Services may wait for something that never happens, so a signal also ends the wait.
    let StartedServices {
        gateway,
        agent,
        console,
        operator_services,
        closing,
    } = tokio::select! {
        started = start_services(up, &dir, &bound, &ambient) => started?,
        () = stop.clone().is_told() => return Ok(()),
    };

    let operator = operator_door(&dir, operator_services);
    let chats = match &agent {
        Some(_) => format!("{url}/api/chat/message/, {url}/v1, "),
        None => String::new(),
    };
    let metrics = telemetry.metrics();
    let probes = serve::serve_probes(own.probes, listen, gateway.parts(), metrics).await?;
    println!(
        "ready {url}/mcp (also {url}/console, {url}/message, {chats}{url}/ready; metrics: http://{}/metrics; audit log in {})",
        probes.address,
        dir.path().display()
    );
    let mut router = gateway.router().merge(probes.beside).merge(console);
    if let Some(agent) = agent {
        router = router.merge(agent);
    }
    match &demo {
        Some(demo) => introduce(demo, &url, &dir, &ambient)?,
        // Without `gateway.auth`, the gateway trusts the local issuer.
        None if !settings.has("gateway.auth") => {
            let (program, data) = (program::name(), program::quote_path(dir.path()));
            println!("\nA token: {program} token --data-dir {data} --sub NAME --role ROLE");
        }
        None => {}
    }
    tokio::select! {
        () = Arc::clone(&gateway).serve(bound, router, stop) => {}
        () = operator => {}
    }
    closing.close().await;
    Ok(())
}

/// Loads the named configuration, or the one in the current directory. Without either, unpacks a demo into the data
/// directory.
async fn load_settings(
    config: Option<PathBuf>,
    chosen: Option<Demo>,
    dir: &DataDir,
) -> Result<(Settings, Option<UnpackedDemo>), Failure> {
    let own = match (config, chosen) {
        (None, None) => Path::new(CONFIGURATION)
            .exists()
            .then(|| CONFIGURATION.into()),
        (config, _) => config,
    };
    if let Some(file) = own {
        return Ok((Settings::load(&file)?, None));
    }
    let demo = demo::unpack(chosen.unwrap_or(Demo::Hospital), dir).await?;
    Ok((Settings::load(&demo.config)?, Some(demo)))
}

/// The services of this process, once they are ready.
struct StartedServices {
    gateway: Arc<Gateway>,
    agent: Option<Router>,
    console: Router,
    operator_services: OperatorServices,
    closing: LocalCloser,
}

async fn start_services(
    up: UpSettings,
    dir: &DataDir,
    bound: &BoundListener,
    ambient: &Ambient,
) -> Result<StartedServices, Failure> {
    let UpSettings {
        gateway: config,
        mut policy,
        ..
    } = up;
    // The policy service accepts the same tokens as the gateway, whatever its own section configures.
    policy.auth = config.auth.clone();
    let reached_at = match &config.public_url {
        Some(url) => url.clone(),
        None => bound.url(),
    };
    policy.public_url = Some(reached_at.clone());
    let parts = ServiceConfigs {
        policy,
        tool_runner: up.tool_runner,
        audit: up.audit,
        memory: up.memory,
        permit_signer: data_dir::permit_signer(&dir.permit_key())?,
        permit_verifier: data_dir::permit_verifier(&[dir.permit_public_key()])?,
        pseudonym_key: data_dir::pseudonym_key(&dir.pseudonym_key())?,
        sealing_key: data_dir::sealing_key(&dir.pseudonym_key())?,
        audit_keys: AuditKeys {
            mac: data_dir::mac_key(&dir.mac_key())?,
            log: data_dir::log_key(&dir.log_key())?,
            details: data_dir::details_keys_of_up(dir)?,
        },
        memory_keys: data_dir::memory_keys(&dir.memory_key(), &dir.former_memory_keys())?,
    };
    let LocalServices {
        neighbours,
        record,
        operator_services,
        closing,
    } = Box::pin(compose::local(parts, ambient)).await?;
    let public_url = config.public_url.clone();
    let key = data_dir::session_key(&dir.session_key())?;
    let gateway = Gateway::new(config, bound, neighbours, &key, ambient.clone()).await?;
    gateway.ready().await;
    let agent = agent(up.agent.as_ref(), dir, &gateway, ambient).await?;
    let agent = agent.map(Endpoints::router);
    let key = data_dir::cookie_key(&dir.console_key())?;
    let (store, database) = (dir.console_store(), DatabaseSettings::default());
    let store = ConsoleStore::open(&store, &database, &key, ambient.clone()).await?;
    let sign_in = up.console.sign_in.as_ref();
    let sign_in = compose::console_sign_in(sign_in, Some(&reached_at), ambient).await?;
    let console = compose::local_console(
        &gateway,
        agent.clone(),
        record,
        store,
        sign_in,
        public_url.as_deref(),
        ambient,
    );
    Ok(StartedServices {
        gateway,
        agent,
        console: console.router(),
        operator_services,
        closing,
    })
}

/// Serves operators on a socket in the data directory for as long as the future is polled. A fault of the socket is only a
/// warning, because everything else works without it.
fn operator_door(dir: &DataDir, operator_services: OperatorServices) -> impl Future<Output = ()> {
    let bound = OperatorSocket::bind(&dir.operator_socket());
    async move {
        let served = match bound {
            Ok(socket) => socket.serve(operator_services).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!(%error, "operators cannot use the command line with this system");
        }
        std::future::pending::<()>().await;
    }
}

/// Creates the agent if the configuration has one.
async fn agent(
    config: Option<&wardgate_agent::Config>,
    dir: &DataDir,
    gateway: &Arc<Gateway>,
    ambient: &Ambient,
) -> Result<Option<Endpoints>, Failure> {
    let Some(config) = config else {
        return Ok(None);
    };
    let approvals = data_dir::approval_key(&dir.approval_key())?;
    let agent = compose::local_agent(config, approvals, gateway, ambient).await?;
    Ok(Some(agent))
}

/// Prints tokens of the demo's people and an example of a call.
fn introduce(
    demo: &UnpackedDemo,
    url: &str,
    dir: &DataDir,
    ambient: &Ambient,
) -> Result<(), Failure> {
    println!(
        "\nTokens, valid for {} hours:",
        DEMO_TOKEN.as_secs() / 3_600
    );
    for person in &demo.people.people {
        let claims: Vec<(String, String)> = person
            .claims
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let roles = [person.role.clone()];
        let request = TokenRequest {
            subject: &person.sub,
            roles: &roles,
            claims: &claims,
            ttl: DEMO_TOKEN,
        };
        let token = issuer::token(dir, &request, ambient)?;
        println!("\n# {} ({}): {}", person.sub, person.role, person.sees);
        println!("{}={token}", person.role.to_uppercase());
    }
    let first = &demo.people.first_call;
    let request = serde_json::json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": { "name": first.tool, "arguments": first.arguments },
    });
    let role = demo
        .people
        .people
        .first()
        .map(|person| person.role.to_uppercase())
        .unwrap_or_default();
    println!("\nIn a browser, with one of the tokens above: {url}/console");
    println!("\nA first call, after you have pasted the tokens above into a shell:");
    println!(
        "curl -s {url}/message -H \"Authorization: Bearer ${role}\" -H 'Content-Type: application/json' -d '{request}'"
    );
    let (program, data) = (program::name(), program::quote_path(dir.path()));
    println!(
        "\nTo see its audit record, run: WARDGATE_TOKEN=$AUDITOR {program} audit query --data-dir {data}"
    );
    Ok(())
}
