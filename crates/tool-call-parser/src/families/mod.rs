//! The notations of calls, one per file.

pub(super) mod anthropic;
pub(super) mod apertus;
pub(super) mod bare_json;
pub(super) mod cohere;
pub(super) mod deepseek;
pub(super) mod fenced;
pub(super) mod functionary;
pub(super) mod gemma;
pub(super) mod glm;
pub(super) mod granite;
pub(super) mod harmony;
pub(super) mod hermes;
pub(super) mod internlm;
mod invoke;
pub(super) mod kimi;
pub(super) mod llama;
pub(super) mod minimax;
pub(super) mod mistral;
pub(super) mod pythonic;
pub(super) mod qwen_coder;
pub(super) mod react;
pub(super) mod step;
pub(super) mod tagged_json;
pub(super) mod tool_parameters;
