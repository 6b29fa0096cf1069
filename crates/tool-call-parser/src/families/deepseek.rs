//! DeepSeek's tokens with full-width bars.
//!
//! ```text
//!  V3, R1  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>name⏎ ```json⏎ {…}⏎ ```<｜tool▁call▁end｜>…
//!  V3.1    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
//!  V3.2    <｜DSML｜function_calls><｜DSML｜invoke name="…">…
//! ```
//!
//! Sources: the chat templates of `deepseek-ai/DeepSeek-V3`, `-R1` and `-V3.1`, `encoding/encoding_dsv32.py` of
//! `-V3.2`; `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/deepseekv3{,1,2}_tool_parser.py`. Distilled models
//! write the tokens with plain bars, spaces or underscores (`ggml-org/llama.cpp`, `common/chat.cpp`).

use super::super::cursor::{Cursor, ParseResult, ParseStop};
use super::super::reading::{
    CallCertainty, Form, FormReader, FoundCalls, StartPosition, maybe_fenced,
};
use super::invoke::{self, Tags};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

pub(in super::super) static DSML: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_dsml,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    let mut word = token(cursor)?;
    if matches!(word.as_str(), "tool_calls_begin" | "tool_calls") {
        cursor.blanks();
        word = token(cursor)?;
    }
    if word != "tool_call_begin" {
        return Err(ParseStop::No);
    }
    cursor.blanks();
    let first = cursor.name()?;
    cursor.blanks();
    if token(cursor)? != "tool_sep" {
        return Err(ParseStop::No);
    }
    cursor.blanks();
    let name = if first == "function" && !matches!(cursor.peek()?, '{' | '`') {
        cursor.name()?
    } else {
        first
    };
    cursor.blanks();
    let fenced = maybe_fenced(cursor)?;
    let call = reading.object(cursor, name, CallCertainty::Unmistakable)?;
    Ok(FoundCalls {
        fenced,
        ..call.into()
    })
}

/// Parses a token such as `<｜tool▁sep｜>` and returns its word, with `_` between the parts.
fn token(cursor: &mut Cursor) -> ParseResult<String> {
    let is_bar = |c| matches!(c, '｜' | '|');
    cursor.literal("<")?;
    cursor.run_of(is_bar)?;
    let word = cursor.run_of(|c| c.is_ascii_lowercase() || matches!(c, '▁' | '_' | ' ' | '\\'))?;
    cursor.run_of(is_bar)?;
    cursor.literal(">")?;
    Ok(word.replace('\\', "").replace(['▁', ' '], "_"))
}

fn read_dsml(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    const TAGS: Tags = Tags {
        around: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
        invoke: "<｜DSML｜invoke",
        parameter: "<｜DSML｜parameter",
        parameter_end: "</｜DSML｜parameter>",
        invoke_end: "</｜DSML｜invoke>",
    };
    invoke::read_calls(cursor, reading, &TAGS)
}
