//! `<tool_call>name`, followed by `<arg_key>…</arg_key><arg_value>…</arg_value>` for each argument: GLM 4.5 and later.
//!
//! Sources: the chat templates of `zai-org/GLM-4.5` and `-4.6`; `vllm-project/vllm`,
//! `vllm/entrypoints/openai/tool_parsers/glm4_moe_tool_parser.py`. The types of values are determined by the tool's schema.
//! Smaller models of other families write an object after the name.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json::Json;
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("<tool_call>")?;
    cursor.blanks();
    let name = reading.resolve(cursor.name()?, CallCertainty::Unmistakable)?;
    cursor.blanks();
    if cursor.peek()? == '{' {
        return Ok(reading
            .object(cursor, name, CallCertainty::Unmistakable)?
            .into());
    }
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional("</tool_call>")? {
            let call = reading.call(name, &Json::Object(members), CallCertainty::Unmistakable)?;
            return Ok(call.into());
        }
        cursor.literal("<arg_key>")?;
        let key = cursor.until(&["</arg_key>"])?.0.trim();
        cursor.blanks();
        cursor.literal("<arg_value>")?;
        let (value, _) = cursor.until(&["</arg_value>"])?;
        members.push((
            key.to_owned(),
            reading.tools.parse_typed_value(name, key, value),
        ));
    }
}
