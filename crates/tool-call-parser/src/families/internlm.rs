//! `<|action_start|><|plugin|>{"name": …, "parameters": …}<|action_end|>`: InternLM 2 and 3.
//!
//! Sources: `InternLM/InternLM`, `chat/chat_format.md`; `vllm-project/vllm`,
//! `vllm/entrypoints/openai/tool_parsers/internlm2_tool_parser.py`.

use super::super::reading::{Form, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: |cursor, reading| {
        cursor.literal("<|action_start|>")?;
        cursor.blanks();
        cursor.literal("<|plugin|>")?;
        reading.json(cursor)
    },
};
