//! `wardgate tools enable | disable | reset | switches`: changes and lists the switches of tools in a running system.

use wardgate_domain::{
    Switch, SwitchAction, SwitchKind, SwitchScope, SwitchTarget, mark_invisible,
};

use crate::Failure;
use crate::cli::{OperatorSignIn, OutputFormat, RunningSystem, SwitchChange};

use super::operator::sign_in_token;
use super::output::RowPrinter;
use super::running::tool_runner;
use super::terminal::cell;

pub(crate) async fn set(action: SwitchAction, arguments: SwitchChange) -> Result<(), Failure> {
    let kind = match (arguments.toolset, arguments.upstream) {
        (true, _) => SwitchKind::Toolset,
        (_, true) => SwitchKind::Upstream,
        _ => SwitchKind::Tool,
    };
    let scope = match (arguments.role, arguments.user) {
        (Some(role), _) => SwitchScope::Role(role),
        (None, Some(subject)) => SwitchScope::User {
            subject,
            issuer: arguments.issuer,
        },
        (None, None) => SwitchScope::Everyone,
    };
    let change = wardgate_domain::SwitchChange {
        target: SwitchTarget {
            kind,
            name: arguments.name,
        },
        scope,
        action,
    };
    let token = sign_in_token(&arguments.operator).await?;
    let tool_runner = tool_runner(&arguments.system)?;
    tool_runner.set_switch(&token, &change).await?;
    let done = match action {
        SwitchAction::Enable => "on",
        SwitchAction::Disable => "off",
        SwitchAction::Reset => "set by less specific switches",
    };
    let (kind, name) = (kind.as_str(), &change.target.name);
    println!("{kind} {name} is {done} for {}", change.scope);
    Ok(())
}

pub(crate) async fn list(
    system: &RunningSystem,
    operator: &OperatorSignIn,
    format: OutputFormat,
) -> Result<(), Failure> {
    let token = sign_in_token(operator).await?;
    let switches = tool_runner(system)?.list_switches(&token).await?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for switch in switches {
        rows.print(&line(&switch).to_string(), || {
            format!(
                "{:<3} {:<8} {:<32} {:<32} {} by {}",
                position(&switch),
                switch.target.kind.as_str(),
                cell(&switch.target.name),
                mark_invisible(&switch.scope.to_string()),
                switch.set_at,
                cell(&switch.set_by)
            )
        })?;
    }
    rows.finish()
}

fn line(switch: &Switch) -> serde_json::Value {
    let mut line = serde_json::json!({
        "kind": switch.target.kind.as_str(),
        "name": switch.target.name,
        "position": position(switch),
        "set_by": switch.set_by,
        "set_at": switch.set_at.to_string(),
    });
    match &switch.scope {
        SwitchScope::Everyone => {}
        SwitchScope::Role(role) => line["role"] = role.as_str().into(),
        SwitchScope::User { subject, issuer } => {
            line["user"] = subject.as_str().into();
            if let Some(issuer) = issuer {
                line["issuer"] = issuer.as_str().into();
            }
        }
    }
    line
}

fn position(switch: &Switch) -> &'static str {
    if switch.enabled { "on" } else { "off" }
}
