//! One file for each way to write calls.

pub(super) mod bare_json;
pub(super) mod fenced;
pub(super) mod hermes;
pub(super) mod tool_parameters;
