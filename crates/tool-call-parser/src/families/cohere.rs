//! `<|START_ACTION|>[{"tool_name": …, "parameters": …}]<|END_ACTION|>`: Command R7B and Command A; and `Action: ` followed by a
//! list in a code fence: Command R and R+.
//!
//! Sources: Cohere's prompt formats (the chat templates of `CohereLabs/c4ai-command-r-08-2024` and `-r7b-12-2024`);
//! `ggml-org/llama.cpp`, `common/chat.cpp`. LangChain's structured agents write a single object after `Action:`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json;
use super::super::reading::{
    CallCertainty, Form, FormReader, FoundCalls, StartPosition, maybe_fenced,
};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: |cursor, reading| {
        cursor.literal("<|START_ACTION|>")?;
        reading.json(cursor)
    },
};

pub(in super::super) static ACTION: Form = Form {
    starts: "A",
    place: StartPosition::Word,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("Action:")?;
    cursor.blanks();
    let fenced = maybe_fenced(cursor)?;
    let value = json::value(cursor)?;
    // `directly-answer` is also written as an action but is not a tool.
    let found = reading.calls_from_json(&value, CallCertainty::Common)?;
    Ok(FoundCalls { fenced, ..found })
}
