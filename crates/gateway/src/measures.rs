//! Metrics of the outcomes of calls. A name that a client sent is a label only if the catalogue knows it, so that requests for
//! made-up tools neither flood the metrics nor put names into them.

use metrics::{SharedString, counter, histogram};
use wardgate_domain::{CallFacts, Outcome};
use wardgate_telemetry::{labels, names};

use wardgate_mcp_server::ContentMethod;

/// Counts a call that has ended. A call of a tool that is hidden from its caller is counted as unknown, because readers of the
/// metrics may not be allowed to see every tool.
pub(crate) fn record_ended_call(outcome: &Outcome, is_hidden: bool) {
    let (call, status) = (&outcome.call, outcome.status.as_str());
    if call.method.is_empty() {
        let tool = tool(call, is_hidden);
        histogram!(names::TOOL_CALL_SECONDS, "tool" => tool.clone()).record(outcome.duration);
        counter!(names::TOOL_CALLS, "tool" => tool, "status" => status).increment(1);
    } else {
        let method = ContentMethod::from_name(&call.method);
        let method = method.map_or(labels::OTHER, ContentMethod::as_str);
        counter!(names::CONTENT_REQUESTS, "method" => method, "status" => status).increment(1);
    }
}

/// Counts a call whose outcome could not be recorded.
pub(crate) fn not_recorded(call: &CallFacts, is_hidden: bool) {
    counter!(names::TOOL_CALLS, "tool" => tool(call, is_hidden), "status" => "not_recorded")
        .increment(1);
}

fn tool(call: &CallFacts, is_hidden: bool) -> SharedString {
    match call.tool.as_ref().filter(|_| !is_hidden) {
        Some(tool) => labels::TOOLS.label(tool.as_str()),
        None => labels::UNKNOWN.into(),
    }
}
