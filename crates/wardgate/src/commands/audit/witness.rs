//! `wardgate audit witness`: runs a witness of transparency logs as a separate service.

use std::sync::Arc;

use tokio::sync::watch;
use wardgate_domain::Ambient;
use wardgate_edge::{BoundListener, ConnectionLimits, ListenerLimits};
use wardgate_rpc::Readiness;
use wardgate_transparency::Cosigner;
use wardgate_witness::Witness;

use crate::Failure;
use crate::cli::{AuditWitness, LogVerbosity, WitnessCommand};
use crate::commands::serve;
use crate::config::{Settings, WitnessWiring};
use crate::data_dir;
use crate::shutdown;

/// Limits of the listener. They are low because a witness has few logs, and each log uses one connection.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 256,
    header_seconds: 10,
    listener: ListenerLimits {
        idle_seconds: 30,
        age_seconds: 3_600,
        connections_per_address: None,
        control_frames: 1_000,
    },
};

pub(super) async fn run(arguments: AuditWitness, verbosity: LogVerbosity) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (Some(WitnessCommand::Key(file)), _) => {
            let wiring: WitnessWiring = Settings::load(&file.config)?.wiring("witness")?;
            let cosigner = Cosigner::from_pkcs8(&wiring.name, &key(&wiring)?)?;
            println!("{}", cosigner.verifier_key());
            Ok(())
        }
        (None, Some(file)) => serve(&Settings::load(&file)?, verbosity).await,
        (None, None) => Err("specify a configuration file with --config".into()),
    }
}

fn key(wiring: &WitnessWiring) -> Result<Vec<u8>, Failure> {
    let file = serve::require_key_file(wiring.key_file.as_ref(), "witness.key_file")?;
    Ok(data_dir::read_pkcs8(file)?)
}

async fn serve(settings: &Settings, verbosity: LogVerbosity) -> Result<(), Failure> {
    let wiring: WitnessWiring = settings.wiring("witness")?;
    let telemetry = serve::start_telemetry(settings, "witness", verbosity)?;
    let (key, listen) = (key(&wiring)?, wiring.listen);
    let ambient = Ambient::system();
    let keys = wiring.keys()?;
    let witness = Witness::open(&wiring.name, &key, keys, &wiring.state_dir, ambient)?;
    let key = witness.verifier_key();
    tracing::info!(%key, "verify the cosignatures of this witness with this key");
    let stop = shutdown::shutdown(wiring.drain)?;
    let bound = BoundListener::bind(listen).await?;
    let (_goes_on, goes_on) = watch::channel(Readiness::Ready);
    let parts = vec![("witness", stop.over(goes_on))];
    let probes = serve::serve_probes(wiring.probes, listen, parts, telemetry.metrics()).await?;
    println!(
        "ready http://{} (metrics: http://{}/metrics)",
        bound.address(),
        probes.address
    );
    let router = wardgate_witness::router(&Arc::new(witness)).merge(probes.beside);
    bound.serve(router, LIMITS, stop, async {}).await;
    Ok(())
}
