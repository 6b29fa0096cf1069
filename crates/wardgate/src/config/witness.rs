//! The section `witness` of a witness of transparency logs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use wardgate_rpc::Drain;
use wardgate_transparency::{Error, VerifierKey};

/// Wiring of a witness: its listener, its name and the logs that it cosigns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WitnessWiring {
    #[serde(default = "listen")]
    pub(crate) listen: SocketAddr,
    /// Address of probes and `/metrics`. If it is set, `/ready` is not served on the address for clients. If it is `None`,
    /// port 9090 of loopback is used, or another port if that one is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// The name of the witness in its cosignatures.
    pub(crate) name: String,
    /// The file of the witness's private key, which signs nothing else.
    #[serde(default)]
    pub(crate) key_file: Option<PathBuf>,
    /// The directory for the latest state of each log, which is created if it is missing.
    pub(crate) state_dir: PathBuf,
    /// The verifier keys of the logs, as `wardgate audit key` prints them.
    pub(crate) logs: Vec<String>,
    /// Timing of the graceful shutdown.
    #[serde(default)]
    pub(crate) drain: Drain,
}

impl WitnessWiring {
    /// Parses the verifier keys of the logs.
    pub(crate) fn keys(&self) -> Result<Vec<VerifierKey>, Error> {
        self.logs.iter().map(|key| key.parse()).collect()
    }
}

fn listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7005).into()
}
