//! `wardgate tools connections | disconnect`: who let which source act in their name.

use serde_json::json;
use wardgate_rpc::client::RemoveConnections;

use crate::Failure;
use crate::cli::{DisconnectArgs, OutputFormat, RunningSystem};

use super::operator::operator_name;
use super::output::RowPrinter;
use super::running::tool_runner;
use super::terminal::cell;

pub(crate) async fn list(system: &RunningSystem, format: OutputFormat) -> Result<(), Failure> {
    let connections = tool_runner(system)?.list_connections().await?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for connection in connections {
        let person = &connection.person;
        let line = json!({
            "source": connection.source,
            "tenant": person.tenant,
            "issuer": person.issuer,
            "user": person.subject,
            "connected_at": connection.connected_at.to_string(),
            "changed_at": connection.changed_at.to_string(),
        });
        rows.print(&line.to_string(), || {
            format!(
                "{:<24} {:<32} {:<40} {}",
                cell(&connection.source),
                cell(&person.subject),
                cell(&person.issuer),
                connection.connected_at
            )
        })?;
    }
    rows.finish()
}

pub(crate) async fn remove(arguments: DisconnectArgs) -> Result<(), Failure> {
    let by = operator_name(arguments.by);
    let removed = tool_runner(&arguments.system)?
        .remove_connections(RemoveConnections {
            subject: &arguments.user,
            issuer: arguments.issuer.as_deref(),
            source: arguments.source.as_deref(),
            by: &by,
        })
        .await?;
    println!("{removed} forgotten");
    Ok(())
}
