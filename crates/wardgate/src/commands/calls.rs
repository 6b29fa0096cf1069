//! `wardgate tools call` and `wardgate bench`: call tools over MCP, once or under load.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_bench::{CallToolParams, Load, McpClient, Pace, Settings};
use wardgate_domain::{escape_invisible_json, mark_invisible};

use super::login;
use super::operator::{NO_TOKEN, environment_token, read_token};
use super::output::print_document;
use crate::Failure;
use crate::cli::{BenchArgs, CallArgs, ClientOptions, ProtocolEra};

/// Calls one tool and prints its result. A failed call is returned as an error.
pub(crate) async fn call(arguments: CallArgs) -> Result<(), Failure> {
    let tool = CallToolParams::new(&arguments.tool, &arguments.arguments)?;
    let result = client(arguments.caller, true).await?.call(1, &tool).await?;
    print_document(arguments.output, result.get(), || texts(result.get()))
}

/// Formats the content of a result: text blocks as text, other blocks as JSON.
fn texts(result: &str) -> String {
    #[derive(Deserialize)]
    struct CallResult {
        content: Vec<Value>,
    }
    let parsed = serde_json::from_str(result);
    let CallResult { content } = parsed.unwrap_or(CallResult {
        content: Vec::new(),
    });
    let lines = content.iter().map(|block| match block["text"].as_str() {
        Some(text) => format!("{}\n", mark_invisible(text)),
        None => format!("{}\n", escape_invisible_json(&block.to_string())),
    });
    lines.collect()
}

/// Runs the benchmark and prints its report. Returns an error if any call had no verified answer.
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
    let client = client(arguments.caller, !arguments.direct).await?;
    let report = wardgate_bench::run(&client, &load).await?;
    let json = serde_json::to_string(&report)?;
    print_document(arguments.output.format(), &json, || report.to_string())?;
    match report.bad {
        0 => Ok(()),
        bad => Err(format!("{bad} calls had no valid answer").into()),
    }
}

/// Returns the URL of the gateway and the token of a caller, or `None` if no token is named and nobody is signed in. A
/// token that is named explicitly is never sent to the gateway of a sign-in, and the token of a sign-in is never sent to
/// another gateway.
pub(crate) async fn credentials(caller: &ClientOptions) -> Result<Option<(Url, String)>, Failure> {
    let url = || match &caller.url {
        Some(url) => Ok(url.clone()),
        None => Url::parse(LOCAL),
    };
    if let Some(token) = &caller.token {
        return Ok(Some((url()?, token.clone())));
    }
    if let Some(file) = &caller.token_file {
        let token = read_token(file)?;
        return Ok(Some((url()?, token.expose().to_owned())));
    }
    if caller.context.is_none()
        && let Some(token) = environment_token()
    {
        return Ok(Some((url()?, token.expose().to_owned())));
    }
    let signed_in = login::signed_in(caller.context.as_deref()).await?;
    let is_asked = |of: &Url| {
        let asked = caller.url.as_ref();
        asked.is_none_or(|url| url.origin() == of.origin())
    };
    Ok(signed_in.filter(|(of, _)| is_asked(of)))
}

/// URL of the gateway that `wardgate up` runs.
const LOCAL: &str = "http://127.0.0.1:8080";

pub(crate) async fn client(
    caller: ClientOptions,
    requires_receipt: bool,
) -> Result<McpClient, Failure> {
    let found = credentials(&caller).await?;
    let (url, token) = found.ok_or(NO_TOKEN)?;
    Ok(McpClient::new(Settings {
        url,
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
