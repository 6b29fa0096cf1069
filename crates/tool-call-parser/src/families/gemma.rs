//! Gemma. Gemma 3 writes a code fence `tool_code` with calls in Python. FunctionGemma writes
//! `<start_function_call>call:name{key:<escape>text<escape>,n:1}<end_function_call>`. Gemma 4 writes the same between
//! `<|tool_call>` and `<tool_call|>`, with `<|"|>` around strings.
//!
//! Sources: Google's guides to function calling with Gemma 3 and FunctionGemma (chat template of
//! `google/functiongemma-270m-it`); `sgl-project/sglang`, `python/sglang/srt/function_call/gemma4_detector.py`.

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::reading::{CallCertainty, Form, FormReader, FoundCalls, StartPosition};
use super::super::template::members_with_quotes;
use super::pythonic;

pub(in super::super) static TOOL_CODE: Form = Form {
    starts: "`",
    place: StartPosition::Line,
    read_calls: read_tool_code,
};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

const QUOTES: [(&str, &str); 2] = [("<escape>", "<escape>"), ("<|\"|>", "<|\"|>")];

fn read_tool_code(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    if reading.quoted {
        return Err(ParseStop::No);
    }
    cursor.any_of(&["```tool_code", "```tool_call"])?;
    cursor.line_end()?;
    if cursor.peek()? == '[' {
        let found = (pythonic::LIST.read_calls)(cursor, reading)?;
        return Ok(FoundCalls {
            fenced: true,
            ..found
        });
    }
    pythonic::lines(cursor, reading, CallCertainty::Common, "```")
}

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.any_of(&["<start_function_call>", "<|tool_call>"])?;
    cursor.blanks();
    cursor.literal("call:")?;
    let name = cursor.name()?;
    let arguments = members_with_quotes(cursor, &QUOTES, 0)?;
    let call = reading.call(name, &arguments, CallCertainty::Unmistakable)?;
    Ok(call.into())
}
