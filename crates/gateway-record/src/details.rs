//! The details of a call that are recorded besides its outcome. They contain no value that redaction would not release.

use wardgate_domain::{ArgumentOutline, CallDetails, Caller};
use wardgate_rpc::client::ResultFacts;
use wardgate_telemetry::trace_context;

/// Returns the details of a call of `caller`. `facts` are the facts of its run, or `None` if nothing ran.
pub fn describe_call(
    caller: &Caller,
    arguments: ArgumentOutline,
    facts: Option<&ResultFacts>,
) -> CallDetails {
    let delegation = caller.delegation().cloned().unwrap_or_default();
    let dropped = facts.map(|facts| facts.dropped_columns).unwrap_or_default();
    let outline = facts.and_then(|facts| facts.outline.as_deref()).cloned();
    CallDetails {
        caller_digest: caller.digest(),
        client: delegation.client,
        actors: delegation.actors,
        arguments,
        result: outline.unwrap_or_default(),
        columns_unclassified: dropped.unclassified,
        columns_not_permitted: dropped.not_permitted,
        stages: facts.map_or_else(Vec::new, |facts| facts.stages.clone()),
        trace_id: trace_context::trace_id().unwrap_or_default(),
    }
}
