//! `<|python_tag|>` followed by `{"name": …, "parameters": …}` or by a call of a built-in tool, `name.call(query="…")`.
//!
//! Sources: `meta-llama/llama-models`, `models/llama3_1/prompt_format.md` and `models/llama3/tool_utils.py`;
//! `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/llama_tool_parser.py`. Several objects are separated by `;`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};
use super::pythonic;

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("<|python_tag|>")?;
    cursor.blanks();
    match cursor.peek()? {
        '{' | '[' => reading.json(cursor),
        _ => {
            let mut call = pythonic::call(cursor, reading, CallCertainty::Unmistakable)?;
            if let Some(length) = call.name.strip_suffix(".call").map(str::len) {
                call.name.truncate(length);
            }
            Ok(call.into())
        }
    }
}
