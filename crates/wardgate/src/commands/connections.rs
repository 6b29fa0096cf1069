//! `wardgate tools connections | disconnect`: lists and removes the tokens with which sources act in the name of people.

use serde_json::json;
use wardgate_rpc::client::RemoveConnections;

use crate::Failure;
use crate::cli::{DisconnectArgs, OperatorSignIn, OutputFormat, RunningSystem};

use super::operator::sign_in_token;
use super::output::RowPrinter;
use super::running::tool_runner;
use super::terminal::cell;

pub(crate) async fn list(
    system: &RunningSystem,
    operator: &OperatorSignIn,
    format: OutputFormat,
) -> Result<(), Failure> {
    let token = sign_in_token(operator).await?;
    let connections = tool_runner(system)?.list_connections(&token).await?;
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
    let token = sign_in_token(&arguments.operator).await?;
    let remove = RemoveConnections {
        subject: &arguments.user,
        issuer: arguments.issuer.as_deref(),
        source: arguments.source.as_deref(),
    };
    let tool_runner = tool_runner(&arguments.system)?;
    let removed = tool_runner.remove_connections(&token, remove).await?;
    println!("{removed} forgotten");
    Ok(())
}
