//! `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`: gpt-oss.
//!
//! Sources: `openai/harmony`, `docs/format.md`; `ggml-org/llama.cpp`, `tests/test-chat.cpp`. The recipient is before or after the
//! channel. If a server drops the tokens, `commentary to=functions.name json{…}` remains.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

pub(in super::super) static BARE: Form = Form {
    starts: "c",
    place: StartPosition::Anywhere,
    read_calls: read_bare,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    if cursor.peek()? != '<' {
        return Err(ParseStop::No);
    }
    let mut recipient = None;
    loop {
        cursor.blanks();
        if cursor.optional("<|message|>")? {
            break;
        }
        if cursor.optional("to=")? {
            recipient = Some(cursor.name()?);
        } else if cursor.optional("<|start|>")? {
            cursor.literal("assistant")?;
        } else if cursor.optional("<|channel|>")? {
            cursor.any_of(&["commentary", "analysis"])?;
        } else if !cursor.optional("<|constrain|>")? {
            cursor.any_of(&["json", "code"])?;
        }
    }
    cursor.blanks();
    let name = recipient.ok_or(ParseStop::No)?;
    let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
    Ok(call.into())
}

fn read_bare(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("commentary to=functions.")?;
    let name = cursor.name()?;
    cursor.blanks();
    if cursor.peek()? != '{' {
        cursor.any_of(&["json", "code"])?;
        cursor.blanks();
    }
    let call = reading.object(cursor, name, CallCertainty::Common)?;
    Ok(call.into())
}
