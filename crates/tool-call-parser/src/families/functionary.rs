//! A tool name on a line and an object on the next: functionary 3.2, with `>>>` before every name but the first, and GLM 4 of
//! 2024; functionary 2 uses tokens. Functionary 3.1 writes `<function=name>{…}`.
//!
//! Sources: `MeetKai/functionary`, `functionary/prompt_template/{prompt_template_v2,llama3_prompt_template_v3}.py`; the
//! chat template of `zai-org/glm-4-9b-chat`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: ">",
    place: StartPosition::Anywhere,
    read_calls: |cursor, reading| {
        cursor.literal(">>>")?;
        read_lines(cursor, reading)
    },
};

pub(in super::super) static NAME_LINE: Form = Form {
    starts: "",
    place: StartPosition::Line,
    read_calls: read_lines,
};

pub(in super::super) static V2: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_v2,
};

fn read_lines(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let name = reading.resolve(cursor.name()?, CallCertainty::Common)?;
    cursor.line_end()?;
    let call = reading.object(cursor, name, CallCertainty::Common)?;
    Ok(call.into())
}

fn read_v2(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    if cursor.optional("<|from|>")? {
        cursor.literal("assistant")?;
        cursor.blanks();
    }
    cursor.literal("<|recipient|>")?;
    cursor.blanks();
    let name = cursor.name()?;
    cursor.blanks();
    cursor.literal("<|content|>")?;
    cursor.blanks();
    let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
    Ok(call.into())
}
