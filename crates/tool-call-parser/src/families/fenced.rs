//! Calls in a code fence: three backticks, perhaps a word, and a call in any other form.
//!
//! The fence goes with the call. A fence that holds anything else is text.

use super::super::cursor::{Cursor, ParseResult, Stop};
use super::super::reading::{Form, FormReader, FoundCalls, Place, fence};

pub(in super::super) static FORM: Form = Form {
    starts: "`",
    place: Place::Line,
    read,
};

fn read(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    if reading.quoted {
        return Err(Stop::No);
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
        return Err(Stop::No);
    }
    Ok(FoundCalls {
        fenced: true,
        ..found
    })
}
