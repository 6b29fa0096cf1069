//! The conversion between the domain's types and the Protobuf bytes that the store holds.

use prost::Message as _;
use wardgate_domain::AnsweredCall;
use wardgate_proto::memory::v1 as pb;

use crate::Error;

/// The bytes under which the store holds the call that a tool's result answers.
pub(crate) fn encode_call(call: &AnsweredCall) -> Vec<u8> {
    pb::ToolCall::from(call).encode_to_vec()
}

/// The call of bytes that [`encode_call`] made.
pub(crate) fn decode_call(bytes: &[u8]) -> Result<AnsweredCall, Error> {
    let call = pb::ToolCall::decode(bytes).map_err(|_| Error::Damaged("message"))?;
    Ok(call.try_into()?)
}
