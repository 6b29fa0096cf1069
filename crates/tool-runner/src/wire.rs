//! Protobuf encoding of what the store keeps: results, requests for client input, and the terms of permits.

use prost::Message as _;
use wardgate_domain::PermitTerms;
use wardgate_proto::policy::v1::Permit;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_rpc::client::{InputRequired, ToolResult};

pub(crate) fn encode_tool_result(result: &ToolResult) -> Vec<u8> {
    pb::ToolResult::from(result.clone()).encode_to_vec()
}

pub(crate) fn decode_tool_result(bytes: &[u8]) -> Option<ToolResult> {
    pb::ToolResult::decode(bytes).ok()?.try_into().ok()
}

pub(crate) fn encode_input_required(required: &InputRequired) -> Vec<u8> {
    pb::InputRequired::from(required.clone()).encode_to_vec()
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
