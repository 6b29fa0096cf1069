//! JSON without tokens around it: an object, or a list of objects as written by xLAM and Hammer.
//!
//! Some models write it even if they are asked for tokens (Qwen2.5-Coder), Llama 3.1 and 3.2 write it because of their template
//! (`meta-llama/llama-models`, `models/llama3/chat_format.py`), and others write it like the `tool_calls` of an API response. It
//! is a call only if it names a tool and is at the start of a line or after a sentence, a colon or a tag. Other JSON is text,
//! including everything inside it.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json;
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "{[",
    place: StartPosition::Word,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let value = json::value(cursor)?;
    if !reading.announced {
        return Ok(FoundCalls::text());
    }
    Ok(reading
        .calls_from_json(&value, CallCertainty::Common)
        .unwrap_or_default())
}
