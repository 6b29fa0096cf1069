//! `<function_calls><invoke name="…"><parameter name="…">…</parameter></invoke></function_calls>`.
//!
//! Source: Anthropic's guide to tools in prompts (`anthropics/anthropic-tools`, `tool_use_package`); other models copy it
//! from prompts.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{Form, FormReader, FoundCalls, StartPosition};
use super::invoke::{self, Tags};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls,
};

fn read_calls(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    const TAGS: Tags = Tags {
        around: &["<function_calls>"],
        invoke: "<invoke",
        parameter: "<parameter",
        parameter_end: "</parameter>",
        invoke_end: "</invoke>",
    };
    invoke::read_calls(cursor, reading, &TAGS)
}
