//! Step 3: `<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="…"><steptml:parameter name="…">…`.
//!
//! Source: `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/step3_tool_parser.py`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{Form, FormReader, FoundCalls, StartPosition};
use super::invoke::{self, Tags};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    const TAGS: Tags = Tags {
        around: &[],
        invoke: "<steptml:invoke",
        parameter: "<steptml:parameter",
        parameter_end: "</steptml:parameter>",
        invoke_end: "</steptml:invoke>",
    };
    for token in [
        "<｜tool_calls_begin｜>",
        "<｜tool_call_begin｜>",
        "function",
        "<｜tool_sep｜>",
    ] {
        if cursor.optional(token)? {
            cursor.blanks();
        }
    }
    invoke::read_calls(cursor, reading, &TAGS)
}
