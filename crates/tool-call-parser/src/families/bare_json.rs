//! JSON without any token around it: an object, or a list of them as xLAM and Hammer write it.
//!
//! Models write it even where they were asked for tokens (Qwen2.5-Coder does), Llama 3.1 and 3.2 by their template
//! (`meta-llama/llama-models`, `models/llama3/chat_format.py`), and some as the `tool_calls` of an API's answer.
//! It is a call only if it is first on its line, or after a sentence, a colon or a tag, and names a tool. All other JSON is text,
//! with everything in it.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json;
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "{[",
    place: StartPosition::Word,
    read,
};

fn read(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let value = json::value(cursor)?;
    if !reading.announced {
        return Ok(FoundCalls::text());
    }
    Ok(reading
        .spelled(&value, CallCertainty::Common)
        .unwrap_or_default())
}
