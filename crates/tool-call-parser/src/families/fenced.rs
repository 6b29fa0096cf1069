//! Calls in a code fence: three backticks, an optional info string, and a call in any other form.
//!
//! The fence is removed together with the call. A fence with any other content is text.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::reading::{Form, FormReader, FoundCalls, StartPosition, fence};

pub(in super::super) static FORM: Form = Form {
    starts: "`",
    place: StartPosition::Line,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    if reading.quoted {
        return Err(ParseStop::No);
    }
    fence(cursor)?;
    let first = cursor.peek()?;
    let inside = FormReader {
        quoted: true,
        announced: true,
        ..*reading
    };
    let found = inside.any_form(cursor, |form| {
        form.starts.is_empty() || (first != '`' && form.starts.contains(first))
    })?;
    if found.calls.is_empty() {
        return Err(ParseStop::No);
    }
    Ok(FoundCalls {
        fenced: true,
        ..found
    })
}
