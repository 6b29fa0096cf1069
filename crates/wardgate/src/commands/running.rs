//! Clients of a running system, for operators.

use std::path::Path;
use std::time::Duration;

use wardgate_domain::BearerToken;
use wardgate_rpc::client::{OperatorAuditClient, PolicyClient, ToolRunnerClient};
use wardgate_rpc::{Link, operator};

use crate::Failure;
use crate::cli::{RecordSource, RunningSystem};
use crate::compose;
use crate::config::{OperatorWiring, Settings};
use crate::data_dir::DataDir;

/// Timeout of a request, which is longer than the timeouts of all services behind it, including the record and the store.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Connects to the operator socket in the data directory of a running system.
pub(crate) fn operator_socket(data_dir: &Path) -> Result<Link, Failure> {
    let socket = DataDir::open_existing(data_dir)?.operator_socket();
    if !socket.exists() {
        let socket = socket.display();
        return Err(format!(
            "{socket} does not exist: start `wardgate up` with this data directory, or specify the services with --config"
        )
        .into());
    }
    Ok(operator::connect(&socket)?)
}

/// Returns a client of the tool-runner of a running system.
pub(crate) fn tool_runner(system: &RunningSystem) -> Result<ToolRunnerClient, Failure> {
    let link = if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        compose::tool_runner(&wiring.links.tool_runner, wiring.tls.as_ref())?.link
    } else {
        operator_socket(&system.data_dir)?.into()
    };
    Ok(ToolRunnerClient::new(link, LIMIT))
}

/// Returns a client of the policy service of a running system.
pub(crate) fn policy(system: &RunningSystem) -> Result<PolicyClient, Failure> {
    if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        let url = wiring.links.policy.ok_or(
            "operator.links.policy is missing: set it to the address of the policy service, for example https://127.0.0.1:7001",
        )?;
        return compose::remote_rights(&url, wiring.tls.as_ref());
    }
    Ok(PolicyClient::new(operator_socket(&system.data_dir)?, LIMIT))
}

/// Returns a client of the record of a running system, for the operator who owns the token.
pub(crate) fn operator_audit(
    system: &RecordSource,
    token: BearerToken,
) -> Result<OperatorAuditClient, Failure> {
    let link = if let Some(file) = &system.config {
        let wiring: OperatorWiring = Settings::load(file)?.wiring("operator")?;
        let url = wiring.links.audit.ok_or(
            "operator.links.audit is missing: set it to the address of the audit service, for example https://127.0.0.1:7003",
        )?;
        compose::audit(&url, wiring.tls.as_ref())?.link.transport
    } else {
        operator_socket(&system.data_dir)?
    };
    Ok(OperatorAuditClient::new(link, token))
}
