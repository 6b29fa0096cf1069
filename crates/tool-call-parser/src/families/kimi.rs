//! `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`: Kimi K2.
//!
//! Sources: `docs/tool_call_guidance.md` of `MoonshotAI/Kimi-K2`; `vllm-project/vllm`,
//! `vllm/entrypoints/openai/tool_parsers/kimi_k2_tool_parser.py`. The number is the index of the call in the conversation.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    for section in [
        "<|tool_calls_section_begin|>",
        "<|tool_call_section_begin|>",
    ] {
        if cursor.optional(section)? {
            cursor.blanks();
            break;
        }
    }
    cursor.literal("<|tool_call_begin|>")?;
    cursor.blanks();
    let id = cursor.name()?;
    cursor.blanks();
    cursor.literal("<|tool_call_argument_begin|>")?;
    cursor.blanks();
    let name = match id.rsplit_once(':') {
        Some((name, number)) if number.chars().all(|c| c.is_ascii_digit()) => name,
        _ => id,
    };
    let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
    Ok(call.into())
}
