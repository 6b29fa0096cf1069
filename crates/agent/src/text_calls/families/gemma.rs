//! Gemma. Gemma 3: a code fence `tool_code` with calls in Python; FunctionGemma:
//! `<start_function_call>call:name{key:<escape>text<escape>,n:1}<end_function_call>`; Gemma 4 writes the same between
//! `<|tool_call>` and `<tool_call|>`, with `<|"|>` around texts.
//!
//! Sources: Google's guides to function calling with Gemma 3 and FunctionGemma (chat template of
//! `google/functiongemma-270m-it`); `sgl-project/sglang`, `python/sglang/srt/function_call/gemma4_detector.py`.

use super::super::cursor::{Cursor, Parsed, Stop};
use super::super::json::{self, Json};
use super::super::reading::{Form, Found, Opening, Place, Reading};
use super::pythonic;

pub(in super::super) static TOOL_CODE: Form = Form {
    starts: "`",
    place: Place::Line,
    read: read_tool_code,
};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: Place::Anywhere,
    read,
};

/// Deeper than any arguments are.
const MAX_DEPTH: usize = 64;

const QUOTES: [&str; 2] = ["<escape>", "<|\"|>"];

fn read_tool_code(cursor: &mut Cursor, reading: &Reading) -> Parsed<Found> {
    if reading.quoted {
        return Err(Stop::No);
    }
    cursor.any_of(&["```tool_code", "```tool_call"])?;
    cursor.line_end()?;
    if cursor.peek()? == '[' {
        let found = (pythonic::LIST.read)(cursor, reading)?;
        return Ok(Found {
            fenced: true,
            ..found
        });
    }
    pythonic::lines(cursor, reading, Opening::Common, "```")
}

fn read(cursor: &mut Cursor, reading: &Reading) -> Parsed<Found> {
    cursor.any_of(&["<start_function_call>", "<|tool_call>"])?;
    cursor.blanks();
    cursor.literal("call:")?;
    let name = cursor.name()?;
    let arguments = members(cursor, 0)?;
    let call = reading.call(name, &arguments, Opening::Unmistakable)?;
    Ok(call.into())
}

fn members(cursor: &mut Cursor, depth: usize) -> Parsed<Json> {
    cursor.literal("{")?;
    let mut members = Vec::new();
    loop {
        cursor.blanks();
        if cursor.optional("}")? {
            return Ok(Json::Object(members));
        }
        let key = match quoted(cursor)? {
            Some(key) => key,
            None => cursor
                .run_of(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))?
                .to_owned(),
        };
        cursor.blanks();
        cursor.literal(":")?;
        cursor.blanks();
        members.push((key, value(cursor, depth + 1)?));
        comma(cursor, '}')?;
    }
}

fn value(cursor: &mut Cursor, depth: usize) -> Parsed<Json> {
    if depth > MAX_DEPTH {
        return Err(Stop::No);
    }
    if let Some(text) = quoted(cursor)? {
        return Ok(Json::Text(text));
    }
    match cursor.peek()? {
        '{' => members(cursor, depth),
        '[' => {
            cursor.literal("[")?;
            let mut items = Vec::new();
            loop {
                cursor.blanks();
                if cursor.optional("]")? {
                    return Ok(Json::List(items));
                }
                items.push(value(cursor, depth + 1)?);
                comma(cursor, ']')?;
            }
        }
        _ => json::value(cursor),
    }
}

fn comma(cursor: &mut Cursor, close: char) -> Parsed<()> {
    cursor.blanks();
    if cursor.peek()? == close {
        Ok(())
    } else {
        cursor.literal(",")
    }
}

/// A text between two of the same tokens.
fn quoted(cursor: &mut Cursor) -> Parsed<Option<String>> {
    for quote in QUOTES {
        if cursor.optional(quote)? {
            return Ok(Some(cursor.until(&[quote])?.0.to_owned()));
        }
    }
    Ok(None)
}
