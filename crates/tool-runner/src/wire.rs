//! Results and permits, as Protobuf has them: for the wire, and for what the store keeps.

use prost::Message;
use wardgate_domain::{PermitTerms, Status};
use wardgate_proto::policy::v1::Permit;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_rpc::client::{DroppedColumns, InputRequired, ResultFacts, Task, ToolResult};

pub(crate) fn encode_tool_result(result: &ToolResult) -> Vec<u8> {
    tool_result(result.clone()).encode_to_vec()
}

pub(crate) fn decode_tool_result(bytes: &[u8]) -> Option<ToolResult> {
    pb::ToolResult::decode(bytes).ok()?.try_into().ok()
}

pub(crate) fn encode_input_required(required: &InputRequired) -> Vec<u8> {
    input_required(required.clone()).encode_to_vec()
}

pub(crate) fn decode_input_required(bytes: &[u8]) -> Option<InputRequired> {
    pb::InputRequired::decode(bytes).ok()?.try_into().ok()
}

pub(crate) fn encode_permit_terms(terms: &PermitTerms) -> Vec<u8> {
    Permit::from(terms).encode_to_vec()
}

pub(crate) fn decode_permit_terms(bytes: &[u8]) -> Option<PermitTerms> {
    Permit::decode(bytes).ok()?.try_into().ok()
}

pub(crate) fn tool_result(result: ToolResult) -> pb::ToolResult {
    pb::ToolResult {
        content_json: result.content,
        structured_content_json: result.structured_content,
        is_error: result.is_error,
        facts: Some(result_facts(result.facts)),
        other_members_json: result.other_members,
        meta_json: result.meta,
        error_json: result.error,
    }
}

pub(crate) fn input_required(required: InputRequired) -> pb::InputRequired {
    pb::InputRequired {
        input_requests_json: required.requests.into(),
        state: required.state,
        facts: Some(result_facts(required.facts)),
        connect: required.connect.as_ref().map(Into::into),
    }
}

pub(crate) fn task(task: Task) -> pb::Task {
    pb::Task {
        state: task.state,
        task_json: task.about.into(),
        input_requests_json: task.requests.into(),
        result: task.result.map(tool_result),
        error_json: task.error.into(),
        facts: Some(result_facts(task.facts)),
    }
}

pub(crate) fn result_facts(facts: ResultFacts) -> pb::ResultFacts {
    let stages = facts.stages.into_iter();
    let stages = stages.map(|(stage, spent)| pb::StageTime {
        stage,
        // Less than ages.
        duration: spent.try_into().ok(),
    });
    let dropped = facts.dropped_columns;
    pb::ResultFacts {
        status: outcome_status(facts.status).into(),
        rows: facts.rows,
        rows_withheld: facts.rows_withheld,
        fields_redacted: facts.fields_redacted,
        phi: facts.phi,
        error_kind: facts.error_kind,
        stages: stages.collect(),
        retry_after: facts.retry_after.and_then(|wait| wait.try_into().ok()),
        dropped_columns: (dropped != DroppedColumns::default()).then_some(pb::DroppedColumns {
            unclassified: dropped.unclassified,
            not_permitted: dropped.not_permitted,
        }),
    }
}

fn outcome_status(status: Status) -> pb::OutcomeStatus {
    match status {
        Status::Ok => pb::OutcomeStatus::Ok,
        Status::InvalidArguments => pb::OutcomeStatus::InvalidArguments,
        Status::Error => pb::OutcomeStatus::ToolError,
        Status::Timeout => pb::OutcomeStatus::Timeout,
        Status::Cancelled => pb::OutcomeStatus::Cancelled,
        // Of calls that never reach a tool.
        Status::Denied | Status::UnknownTool | Status::Unknown => pb::OutcomeStatus::Unspecified,
    }
}
