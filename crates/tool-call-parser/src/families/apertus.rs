//! `<|tools_prefix|>[{"name": {…}}]<|tools_suffix|>`: Apertus, in whose objects the tool's name is the only key.
//!
//! Source: `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/apertus_tool_parser.py`.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::json::{self, Json};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("<|tools_prefix|>")?;
    cursor.blanks();
    let Json::List(items) = json::value(cursor)? else {
        return Err(ParseStop::No);
    };
    let mut calls = Vec::new();
    for item in &items {
        match item {
            Json::Object(members) if members.len() == 1 => {
                let (name, arguments) = &members[0];
                calls.push(reading.call(name, arguments, CallCertainty::Unmistakable)?);
            }
            _ => return Err(ParseStop::No),
        }
    }
    if calls.is_empty() {
        return Err(ParseStop::No);
    }
    Ok(FoundCalls::calls(calls))
}
