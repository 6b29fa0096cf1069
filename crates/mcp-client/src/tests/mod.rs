//! Tests of the client with real servers (rmcp) and with servers that misbehave.

mod conditional_tools;
mod http;
mod lists;
mod personal;
mod scripted;
mod stdio;
mod subscriptions;
mod transports;

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use wardgate_domain::Ambient;

use super::{CallResult, ServerMessage, Transport, Upstream, UpstreamError, UpstreamOperation};

fn upstream(transport: &Transport) -> Upstream {
    Upstream::new("test", transport, &Ambient::system()).unwrap()
}

/// Returns a deadline that is long enough for any machine.
fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

/// Returns a deadline that is too short for a server that hangs.
fn at_once() -> Instant {
    Instant::now() + Duration::from_millis(300)
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Returns a call of any tool of that name.
fn tool_call(tool: &str, arguments: &str) -> UpstreamOperation {
    UpstreamOperation::Tool {
        name: tool.to_owned(),
        arguments: raw(arguments),
        pin: None,
        may_be_task: false,
    }
}

/// Calls a tool with `arguments`.
async fn call(
    upstream: &Upstream,
    tool: &str,
    arguments: &str,
) -> Result<CallResult, UpstreamError> {
    let operation = tool_call(tool, arguments);
    let result = upstream.call_tool(&operation, soon(), None).await?;
    CallResult::parse(&result)
}

fn parse_result(result: &RawValue) -> CallResult {
    CallResult::parse(result).unwrap()
}

/// Returns the text of the first content block.
fn text(result: &CallResult) -> String {
    let content: Value = serde_json::from_str(result.content.as_ref().unwrap().get()).unwrap();
    content[0]["text"].as_str().unwrap().to_owned()
}

/// Records the text of a progress message.
fn record_report(reports: &mut Vec<String>, message: ServerMessage) -> bool {
    match message {
        ServerMessage::Progress(report) => reports.push(report.message.unwrap()),
        other => panic!("{other:?}"),
    }
    true
}

#[test]
#[ignore = "the program that other tests start"]
fn program() {
    crate::testing::program::run();
}
