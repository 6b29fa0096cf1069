//! `wardgate agent`: runs the agent service, or extracts tool calls from the output of models.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use wardgate_domain::Ambient;
use wardgate_edge::{BoundListener, EdgeClient};
use wardgate_rpc::Readiness;

use crate::Failure;
use crate::cli::{AgentArgs, AgentCommand, LogVerbosity};
use crate::commands::{extract, serve};
use crate::compose;
use crate::config::{AgentWiring, Settings};
use crate::data_dir;
use crate::shutdown;

pub(crate) async fn run(arguments: AgentArgs, verbosity: LogVerbosity) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (Some(AgentCommand::Extract(arguments)), _) => extract::run(&arguments),
        (None, Some(config)) => serve(&config, verbosity).await,
        (None, None) => Err("specify a configuration file with --config".into()),
    }
}

/// Runs the agent as a separate service that listens on its own address.
async fn serve(config: &Path, verbosity: LogVerbosity) -> Result<(), Failure> {
    let settings = Settings::load(config)?;
    let (config, wiring): (wardgate_agent::Config, AgentWiring) = settings.service("agent")?;
    let telemetry = serve::start_telemetry(&settings, "agent", verbosity)?;
    let file =
        serve::require_key_file(wiring.approval_key_file.as_ref(), "agent.approval_key_file")?;
    let approvals = data_dir::approval_key(file)?;
    let stop = shutdown::shutdown(wiring.drain)?;
    let bound = BoundListener::bind(wiring.listen).await?;
    let bound = bound.with_certificate(wiring.https.clone())?;
    let bound = bound.behind(wiring.trusted_proxies.clone());
    let (connections, listen, own) = (wiring.limits.connections(), wiring.listen, wiring.probes);
    let links = &wiring.links;
    let gateway = follow(
        EdgeClient::http(&links.gateway, "wardgate-agent", links.ca.as_deref())?,
        "the gateway does not answer; chats fail until it answers. Check agent.links.gateway",
    )?;
    let agent = compose::remote_agent(&config, approvals, wiring, &Ambient::system()).await?;
    let (_goes_on, goes_on) = watch::channel(Readiness::Ready);
    let parts = vec![
        ("agent", stop.over(goes_on)),
        ("keys", agent.admission.auth.readiness()),
        ("gateway", gateway),
    ];
    let probes = serve::serve_probes(own, listen, parts, telemetry.metrics()).await?;
    let router = agent.alone(probes.beside);
    let url = bound.url();
    // The agent serves before its gateway is reachable; the readiness probe reports the state of the gateway.
    println!(
        "ready {url}/api/chat/message/ (also {url}/v1; metrics: http://{}/metrics)",
        probes.address
    );
    bound.serve(router, connections, stop, async {}).await;
    Ok(())
}

/// Interval between two probes of the gateway, and the timeout of one probe.
const INTERVAL: Duration = Duration::from_secs(5);

/// Spawns a task that probes the gateway every [`INTERVAL`], and returns the receiver of its readiness. The task ends when
/// all receivers are dropped. An unreachable gateway does not stop the process: the task logs `lost`, which describes the
/// consequence.
pub(super) fn follow(
    gateway: EdgeClient,
    lost: &'static str,
) -> Result<watch::Receiver<Readiness>, Failure> {
    let url = gateway.uri("/health")?;
    let (tell, told) = watch::channel(Readiness::NotReady("not checked yet".to_owned()));
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        while !tell.is_closed() {
            ticks.tick().await;
            let request = http::Request::get(url.clone()).body(String::new());
            let answers = match request {
                Ok(request) => timeout(INTERVAL, gateway.send(request)).await,
                Err(_) => return,
            };
            let now = match answers {
                Ok(Ok(answer)) if answer.status().is_success() => Readiness::Ready,
                _ => Readiness::NotReady("the gateway does not answer".to_owned()),
            };
            let changed = tell.send_if_modified(|before| {
                let changed = *before != now;
                before.clone_from(&now);
                changed
            });
            match (changed, now.is_ready()) {
                (true, true) => tracing::info!("the gateway answers"),
                (true, false) => tracing::warn!("{lost}"),
                (false, _) => {}
            }
        }
    });
    Ok(told)
}
