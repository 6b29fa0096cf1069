//! MiniMax. M2 writes `<minimax:tool_call><invoke name="…">…`. M1 writes `<tool_calls>` around one object per line; Hunyuan and
//! Jamba write the same tag around a list.
//!
//! Sources: `docs/tool_calling_guide.md` of `MiniMax-AI/MiniMax-M2` and `docs/function_call_guide.md` of `-M1`;
//! `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/{minimax,minimax_m2,hunyuan_a13b,jamba}_tool_parser.py`.

use super::super::cursor::{Cursor, ParseResult};
use super::super::reading::{Form, FormReader, FoundCalls, StartPosition};
use super::invoke::{self, Tags};

pub(in super::super) static M2: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_m2,
};

pub(in super::super) static M1: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: read_m1,
};

fn read_m2(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    const TAGS: Tags = Tags {
        around: &["<minimax:tool_call>"],
        invoke: "<invoke",
        parameter: "<parameter",
        parameter_end: "</parameter>",
        invoke_end: "</invoke>",
    };
    invoke::read_calls(cursor, reading, &TAGS)
}

fn read_m1(cursor: &mut Cursor, reading: &FormReader) -> ParseResult<FoundCalls> {
    cursor.literal("<tool_calls>")?;
    reading.json(cursor)
}
