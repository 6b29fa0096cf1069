//! `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes 2 and 3, Qwen 2.5, Qwen 3, QwQ, and many later models.
//!
//! Sources: the chat template of `NousResearch/Hermes-2-Pro-Llama-3-8B`, `QwenLM/Qwen-Agent`
//! (`qwen_agent/llm/fncall_prompts/nous_fncall_prompt.py`). Qwen2.5-Coder also writes `<tools>` and
//! `<function_call>` around the object.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json;
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

/// Tags that can also enclose other content.
pub(in super::super) static COMMON_TAGS: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_common,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.any_of(&["<tool_call>", "<function_call>", "<toolcall>"])?;
    reading.json(cursor)
}

fn read_common(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.any_of(&["<tools>", "<tool>", "<json>"])?;
    cursor.blanks();
    let value = json::value(cursor)?;
    reading.calls_from_json(&value, CallCertainty::Common)
}
