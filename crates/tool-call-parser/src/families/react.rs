//! `Action: name`, and on a later line `Action Input: {…}`: the notation that `ReAct` prompts ask for.
//!
//! Source: `langchain-ai/langchain`, `langchain/agents/output_parsers/react_single_input.py`. An input that is not an object is
//! not a call, because it names no argument.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{
    CallCertainty, Form, FormReader, FoundCalls, StartPosition, maybe_fenced,
};

pub(in super::super) static FORM: Form = Form {
    starts: "A",
    place: StartPosition::Word,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let around = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '[' | ']' | '*');
    cursor.literal("Action:")?;
    cursor.skip(around);
    let name = cursor.name()?;
    cursor.skip(around);
    cursor.literal("Action Input:")?;
    cursor.blanks();
    let fenced = maybe_fenced(cursor)?;
    let call = reading.object(cursor, name, CallCertainty::Common)?;
    Ok(FoundCalls {
        fenced,
        ..call.into()
    })
}
