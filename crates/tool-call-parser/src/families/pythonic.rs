//! Calls in Python notation: `[get_weather(city="Oslo", days=3), list_cities()]`.
//!
//! Sources: Llama 4 (`meta-llama/llama-models`, `models/llama4/prompts`), Llama 3.2 1B and 3B, ToolACE, OLMo 3
//! (`<function_calls>` with one call per line), LFM2 (`<|tool_call_start|>`). Arguments are named, or a single object contains
//! all of them.

use super::super::cursor::{Cursor, ParseResult, ParseStop, is_in_name};
use super::super::json::{self, Json};
use super::super::reading::{
    CallCertainty, Form, FormReader, FoundCalls, ParsedCall, StartPosition,
};

pub(in super::super) static LIST: Form = Form {
    starts: "[",
    place: StartPosition::Word,
    read_calls: |cursor, reading| {
        if !reading.announced {
            return Err(ParseStop::No);
        }
        list(cursor, reading, CallCertainty::Common)
    },
};

pub(in super::super) static TAGGED: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_tagged,
};

fn read_tagged(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let open = cursor.any_of(&[
        "<|python_start|>",
        "<|tool_call_start|>",
        "<function_calls>",
    ])?;
    cursor.blanks();
    match (open, cursor.peek()?) {
        (_, '[') => list(cursor, reading, CallCertainty::Unmistakable),
        ("<function_calls>", _) => lines(
            cursor,
            reading,
            CallCertainty::Unmistakable,
            "</function_calls>",
        ),
        _ => Err(ParseStop::No),
    }
}

fn list(
    cursor: &mut Cursor,
    reading: &FormReader,
    opening: CallCertainty,
) -> ParseResult<FoundCalls> {
    cursor.literal("[")?;
    let mut calls = Vec::new();
    loop {
        cursor.blanks();
        calls.push(call(cursor, reading, opening)?);
        cursor.blanks();
        if cursor.optional("]")? {
            return Ok(FoundCalls::calls(calls));
        }
        cursor.literal(",")?;
    }
}

/// Parses one call per line up to `end`. A `print(…)` around a call is ignored.
pub(super) fn lines(
    cursor: &mut Cursor,
    reading: &FormReader,
    opening: CallCertainty,
    end: &str,
) -> ParseResult<FoundCalls> {
    let mut calls = Vec::new();
    loop {
        cursor.blanks();
        if !calls.is_empty() && cursor.optional(end)? {
            return Ok(FoundCalls::calls(calls));
        }
        let printed = cursor.optional("print(")?;
        calls.push(call(cursor, reading, opening)?);
        if printed {
            cursor.literal(")")?;
        }
    }
}

/// Parses a call like `name(a=1, b="x")`.
pub(super) fn call(
    cursor: &mut Cursor,
    reading: &FormReader,
    opening: CallCertainty,
) -> ParseResult<ParsedCall> {
    let name = cursor.run_of(|c| is_in_name(c) && c != ':')?;
    cursor.literal("(")?;
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        match cursor.peek()? {
            ')' => break,
            '{' if members.is_empty() => {
                let object = json::object(cursor)?;
                cursor.blanks();
                cursor.literal(")")?;
                return reading.call(name, &object, opening);
            }
            _ => {}
        }
        let key = cursor.run_of(|c| c.is_alphanumeric() || c == '_')?;
        cursor.blanks();
        cursor.literal("=")?;
        cursor.blanks();
        members.push((key.to_owned(), json::value(cursor)?));
        cursor.blanks();
        if cursor.peek()? != ')' {
            cursor.literal(",")?;
        }
    }
    cursor.literal(")")?;
    reading.call(name, &Json::Object(members), opening)
}
