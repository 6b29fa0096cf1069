//! The conversion between the domain's types and the Protobuf bytes that the store holds.

use prost::Message as _;
use wardgate_domain::AnsweredCall;
use wardgate_proto::memory::v1 as pb;

use crate::Error;

/// Encodes the call of a tool's result for the store.
pub(crate) fn encode_call(call: &AnsweredCall) -> Vec<u8> {
    pb::ToolCall::from(call).encode_to_vec()
}

/// Decodes a call that was encoded by [`encode_call`].
pub(crate) fn decode_call(bytes: &[u8]) -> Result<AnsweredCall, Error> {
    let call = pb::ToolCall::decode(bytes).map_err(|_| Error::Damaged("message"))?;
    Ok(call.try_into()?)
}
