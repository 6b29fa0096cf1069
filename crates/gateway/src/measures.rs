//! How calls ended, in numbers. What a client named is no label before the catalogue knows it: whoever asks for made-up
//! tools neither fills the metrics nor finds a name in them.

use metrics::{SharedString, counter, histogram};
use wardgate_domain::{CallFacts, Outcome};
use wardgate_telemetry::{labels, names};

use crate::content;

/// A call has come to its end.
pub(crate) fn ended(outcome: &Outcome) {
    let (call, status) = (&outcome.call, outcome.status.as_str());
    if call.method.is_empty() {
        let tool = tool(call);
        histogram!(names::TOOL_CALL_SECONDS, "tool" => tool.clone()).record(outcome.duration);
        counter!(names::TOOL_CALLS, "tool" => tool, "status" => status).increment(1);
    } else {
        let method = content::Method::named(&call.method);
        let method = method.map_or(labels::OTHER, content::Method::as_str);
        counter!(names::CONTENT_REQUESTS, "method" => method, "status" => status).increment(1);
    }
}

/// The record did not take how a call ended.
pub(crate) fn not_recorded(call: &CallFacts) {
    counter!(names::TOOL_CALLS, "tool" => tool(call), "status" => "not_recorded").increment(1);
}

fn tool(call: &CallFacts) -> SharedString {
    match &call.tool {
        Some(tool) => labels::TOOLS.label(tool.as_str()),
        None => labels::UNKNOWN.into(),
    }
}
