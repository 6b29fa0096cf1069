//! A running `wardgate up`, as an operator reaches it.

use wardgate_rpc::{Link, operator};

use crate::Failure;
use crate::cli::RunningSystem;
use crate::data_dir::DataDir;

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
