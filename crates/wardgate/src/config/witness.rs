//! Section `witness`, of a witness of logs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use wardgate_rpc::Drain;
use wardgate_transparency::{Error, VerifierKey};

/// How a witness listens, what it is called, and which logs it cosigns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WitnessWiring {
    #[serde(default = "listen")]
    pub(crate) listen: SocketAddr,
    /// Address of probes and `/metrics`; then `/ready` is not served beside its path. None: port 9090 of loopback, or
    /// another one if that is taken.
    #[serde(default)]
    pub(crate) probes: Option<SocketAddr>,
    /// What its cosignatures name it.
    pub(crate) name: String,
    /// Its private key, which signs nothing else.
    #[serde(default)]
    pub(crate) key_file: Option<PathBuf>,
    /// Where it keeps what it saw last of each log; made when absent.
    pub(crate) state_dir: PathBuf,
    /// The keys of the logs, as `wardgate audit key` prints them.
    pub(crate) logs: Vec<String>,
    /// How it ends.
    #[serde(default)]
    pub(crate) drain: Drain,
}

impl WitnessWiring {
    /// The keys of the logs.
    pub(crate) fn keys(&self) -> Result<Vec<VerifierKey>, Error> {
        self.logs.iter().map(|key| key.parse()).collect()
    }
}

fn listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7005).into()
}
