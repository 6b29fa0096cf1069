//! `wardgate tools call` and `wardgate bench`: tools called over MCP, once or under load.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_bench::{CallToolParams, Load, McpClient, Pace, Settings};
use wardgate_domain::escape_invisible_json;

use super::TOKEN;
use crate::Failure;
use crate::cli::{BenchArgs, CallArgs, ClientOptions, ProtocolEra};

/// Prints the result; a failure is the exit code.
pub(crate) async fn call(arguments: CallArgs) -> Result<(), Failure> {
    let tool = CallToolParams::new(&arguments.tool, &arguments.arguments)?;
    let result = client(arguments.caller, true)?.call(1, &tool).await?;
    println!("{}", escape_invisible_json(result.get()));
    Ok(())
}

/// Prints the report. Calls without a verified answer are part of it, and the exit code says that there were some.
pub(crate) async fn bench(arguments: BenchArgs) -> Result<(), Failure> {
    let load = Load {
        tools: tools(&arguments)?,
        pace: match arguments.rate {
            Some(per_second) => Pace::Open { per_second },
            None => Pace::Closed {
                callers: arguments.connections,
            },
        },
        warm_up: Duration::from_secs(arguments.warm_up),
        duration: Duration::from_secs(arguments.seconds),
    };
    let client = client(arguments.caller, !arguments.direct)?;
    let report = wardgate_bench::run(&client, &load).await?;
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    match report.bad {
        0 => Ok(()),
        bad => Err(format!("{bad} calls had no verified answer").into()),
    }
}

fn client(caller: ClientOptions, requires_receipt: bool) -> Result<McpClient, Failure> {
    let token = match (caller.token, caller.token_file) {
        (Some(token), _) => token,
        (None, Some(file)) => std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?,
        (None, None) => std::env::var(TOKEN).map_err(|_| {
            format!("there is no token: name its file with --token-file, or set {TOKEN}")
        })?,
    };
    Ok(McpClient::new(Settings {
        url: caller.url,
        token,
        era: match caller.era {
            ProtocolEra::Modern => wardgate_bench::Era::Modern,
            ProtocolEra::Legacy => wardgate_bench::Era::Legacy,
        },
        limit: Duration::from_secs(caller.limit),
        requires_receipt,
    })?)
}

fn tools(arguments: &BenchArgs) -> Result<Vec<CallToolParams>, Failure> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ToolLine {
        tool: String,
        arguments: Box<RawValue>,
    }
    if let Some(tool) = &arguments.tool {
        return Ok(vec![CallToolParams::new(tool, &arguments.arguments)?]);
    }
    let Some(file) = &arguments.calls else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let wrong = |what: String| format!("{} line {}: {what}", file.display(), at + 1);
            let call: ToolLine =
                serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            CallToolParams::new(&call.tool, call.arguments.get())
                .map_err(|fault| wrong(fault.to_string()).into())
        })
        .collect()
}
