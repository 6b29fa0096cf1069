//! A running system, as an operator reaches it.

use std::time::Duration;

use wardgate_rpc::client::ToolRunnerClient;
use wardgate_rpc::{Link, operator};

use crate::Failure;
use crate::cli::RunningSystem;
use crate::compose;
use crate::config::{OperatorWiring, Settings};
use crate::data_dir::DataDir;

/// Longer than any part of the way may take, the record and the store included.
const LIMIT: Duration = Duration::from_secs(10);

/// Through the socket in its data directory.
pub(crate) fn operator_socket(system: &RunningSystem) -> Result<Link, Failure> {
    let socket = DataDir::existing(&system.data_dir)?.operator_socket();
    if !socket.exists() {
        let socket = socket.display();
        return Err(format!(
            "{socket} is not there: start `wardgate up` on this directory, or name services that run by themselves with --config"
        )
        .into());
    }
    Ok(operator::connect(&socket)?)
}

/// The tool-runner of a running system.
pub(crate) fn tool_runner(system: &RunningSystem) -> Result<ToolRunnerClient, Failure> {
    let link = if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        compose::tool_runner(&wiring.links.tool_runner, wiring.tls.as_ref())?.link
    } else {
        operator_socket(system)?.into()
    };
    Ok(ToolRunnerClient::new(link, LIMIT))
}
