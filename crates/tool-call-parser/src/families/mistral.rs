//! `[TOOL_CALLS]` followed by a list of objects, or by `name[ARGS]{…}` with an optional `[CALL_ID]` in between.
//!
//! Sources: `mistralai/mistral-common`, `src/mistral_common/tokens/tokenizers/instruct.py` (tokenizers v3, v7, v11 and
//! v13); `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/mistral_tool_parser.py`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "[",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("[TOOL_CALLS]")?;
    cursor.blanks();
    if matches!(cursor.peek()?, '[' | '{') {
        return reading.json(cursor);
    }
    let name = cursor.name()?;
    cursor.blanks();
    if cursor.optional("[CALL_ID]")? {
        cursor.name()?;
        cursor.blanks();
    }
    if cursor.optional("[ARGS]")? {
        cursor.blanks();
    }
    let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
    Ok(call.into())
}
