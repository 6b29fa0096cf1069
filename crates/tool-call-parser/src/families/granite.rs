//! `<|tool_call|>` followed by a list or an object: Granite 3, and Phi-4-mini, which closes it with `<|/tool_call|>`; also
//! `functools[…]` of Phi-4 and FireFunction. Granite's `<tool_call>[…]` and `<function_call> {…}` are parsed by the Hermes form.
//!
//! Sources: the chat templates of `ibm-granite/granite-3.1-8b-instruct` and `microsoft/Phi-4-mini-instruct`;
//! `vllm-project/vllm`, `vllm/entrypoints/openai/tool_parsers/{granite,phi4mini}_tool_parser.py`.

use super::super::reading::{Form, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: |cursor, reading| {
        cursor.literal("<|tool_call|>")?;
        reading.json(cursor)
    },
};

pub(in super::super) static FUNCTOOLS: Form = Form {
    starts: "f",
    place: StartPosition::Word,
    read_calls: |cursor, reading| {
        cursor.literal("functools[")?;
        cursor.back("[");
        reading.json(cursor)
    },
};
