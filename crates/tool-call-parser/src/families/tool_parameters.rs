//! `TOOL: name`, and on the next line `PARAMETERS: {…}`: the notation that the prompt of an assistant in text mode asks for.
//!
//! The end of the object is determined by JSON. Spaces, line ends of any kind, bold markup, quotes around the name and a code
//! fence around the object are ignored.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::reading::{
    CallCertainty, Form, FormReader, FoundCalls, StartPosition, maybe_fenced,
};

pub(in super::super) static FORM: Form = Form {
    starts: "Tt*",
    place: StartPosition::Word,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let as_asked = keyword(cursor, "TOOL")?;
    decoration(cursor);
    let name = cursor.name()?.trim_end_matches(['.', ':', '/']);
    decoration(cursor);
    keyword(cursor, "PARAMETERS")?;
    cursor.blanks();
    let fenced = maybe_fenced(cursor)?;
    let opening = if as_asked {
        CallCertainty::Unmistakable
    } else {
        CallCertainty::Common
    };
    let call = reading.object(cursor, name, opening)?;
    Ok(FoundCalls {
        fenced,
        ..call.into()
    })
}

/// Parses a keyword and a colon, with optional bold markup, and returns whether the keyword is in capitals.
fn keyword(cursor: &mut Cursor, word: &str) -> ParseResult<bool> {
    cursor.optional("**")?;
    let written = cursor.run_of(|c| c.is_ascii_alphabetic())?;
    if !written.eq_ignore_ascii_case(word) {
        return Err(ParseStop::No);
    }
    let bold = cursor.optional("**")?;
    cursor.spaces();
    cursor.literal(":")?;
    if !bold && cursor.peek()? == '*' {
        cursor.literal("**")?;
    }
    Ok(written == word)
}

/// Skips white space and quotes around a name.
fn decoration(cursor: &mut Cursor) {
    cursor.skip(|c| c.is_whitespace() || matches!(c, '`' | '"' | '\''));
}
