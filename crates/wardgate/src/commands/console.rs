//! `wardgate console`: runs the web console as a separate service.

use tokio::sync::watch;
use wardgate_console::ConsoleStore;
use wardgate_domain::Ambient;
use wardgate_edge::{BoundListener, EdgeClient};
use wardgate_rpc::Readiness;
use wardgate_store::DatabaseSettings;

use crate::Failure;
use crate::cli::{ConfigFile, LogVerbosity};
use crate::commands::{agent, serve};
use crate::compose;
use crate::config::{ConsoleWiring, Settings};
use crate::data_dir;
use crate::shutdown;

pub(crate) async fn run(arguments: &ConfigFile, verbosity: LogVerbosity) -> Result<(), Failure> {
    let settings = Settings::load(&arguments.config)?;
    let wiring: ConsoleWiring = settings.wiring("console")?;
    let telemetry = serve::start_telemetry(&settings, "console", verbosity)?;
    let file = serve::require_key_file(wiring.cookie_key_file.as_ref(), "console.cookie_key_file")?;
    let key = data_dir::cookie_key(file)?;
    let stop = shutdown::shutdown(wiring.drain)?;
    let bound = BoundListener::bind(wiring.listen).await?;
    let bound = bound.with_certificate(wiring.https.clone())?;
    let bound = bound.behind(wiring.trusted_proxies.clone());
    let (connections, listen, own) = (wiring.limits.connections(), wiring.listen, wiring.probes);
    let links = &wiring.links;
    let gateway = agent::follow(
        EdgeClient::http(&links.gateway, compose::CONSOLE, links.ca.as_deref())?,
        "the gateway does not answer; the console pages are unavailable until it answers. Check console.links.gateway",
    )?;
    let ambient = Ambient::system();
    // The console's own SQLite file has no other owner, so the console migrates it to the newest schema itself.
    let (store, database) = wiring.store.clone().map_or_else(
        || {
            let own = serve::own_store(
                &arguments.config,
                "console",
                "results of calls, and sessions",
            );
            (own, DatabaseSettings::default())
        },
        |store| (store, wiring.database.clone()),
    );
    let store = ConsoleStore::open(&store, &database, &key, ambient.clone()).await?;
    let (console, keys) = compose::remote_console(wiring, store, &ambient).await?;
    let (_goes_on, goes_on) = watch::channel(Readiness::Ready);
    // The record is not part of the readiness, because all other pages work without it.
    let parts = vec![
        ("console", stop.over(goes_on)),
        ("keys", keys),
        ("gateway", gateway),
    ];
    let probes = serve::serve_probes(own, listen, parts, telemetry.metrics()).await?;
    let router = console.alone(probes.beside);
    // The console serves before its gateway is reachable; the readiness probe reports the state of the gateway.
    println!(
        "ready {}/console (metrics: http://{}/metrics)",
        bound.url(),
        probes.address
    );
    bound.serve(router, connections, stop, async {}).await;
    Ok(())
}
