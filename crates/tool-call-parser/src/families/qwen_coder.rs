//! `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`: Qwen3-Coder, and Seed-OSS with a
//! different outer tag. With an object instead of parameters, `<function=name>{…}</function>`: Llama 3.1 and functionary 3.1.
//!
//! Sources: the chat template of `Qwen/Qwen3-Coder-30B-A3B-Instruct` and its `qwen3coder_tool_parser.py`; `vllm-project/vllm`,
//! `vllm/entrypoints/openai/tool_parsers/{qwen3coder,seed_oss}_tool_parser.py`; `meta-llama/llama-models`,
//! `models/llama3_1/prompt_format.md`. Values are plain text between two line ends, and their types are determined by the tool's
//! schema. Models sometimes omit `</parameter>`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::json::Json;
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    for wrapper in ["<tool_call>", "<seed:tool_call>"] {
        if cursor.optional(wrapper)? {
            cursor.blanks();
            break;
        }
    }
    cursor.literal("<function=")?;
    cursor.skip(|c| c == '"');
    let name = reading.resolve(cursor.name()?, CallCertainty::Unmistakable)?;
    // Llama sometimes omits the bracket or writes a comma.
    cursor.skip(|c| c.is_whitespace() || matches!(c, '"' | ',' | '>'));
    if cursor.peek()? == '{' {
        let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
        return Ok(call.into());
    }
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional("</function>")? {
            let call = reading.call(name, &Json::Object(members), CallCertainty::Unmistakable)?;
            return Ok(call.into());
        }
        cursor.literal("<parameter=")?;
        let (key, _) = cursor.until(&[">"])?;
        let key = key.trim().trim_matches('"');
        let (value, end) = cursor.until(&["</parameter>", "<parameter=", "</function>"])?;
        if end != "</parameter>" {
            cursor.back(end);
        }
        let value = without_line_ends(value);
        members.push((
            key.to_owned(),
            reading.tools.parse_typed_value(name, key, value),
        ));
    }
}

/// Removes the line ends that separate a value from its tags.
pub(super) fn without_line_ends(value: &str) -> &str {
    let value = value.strip_prefix('\r').unwrap_or(value);
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.strip_suffix('\r').unwrap_or(value)
}
