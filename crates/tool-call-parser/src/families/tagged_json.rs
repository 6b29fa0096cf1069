//! JSON after a unique tag: Nemotron's `<TOOLCALL>[…]</TOOLCALL>`, LongCat's `<longcat_tool_call>{…}`, and LFM2's
//! `<|tool_call_start|>[{…}]` if the prompt asks for JSON.
//!
//! Sources: the chat template of `nvidia/Nemotron-Nano-9B-v2`; `vllm-project/vllm`,
//! `vllm/entrypoints/openai/tool_parsers/longcat_tool_parser.py`; the chat template of `LiquidAI/LFM2-1.2B`.

use super::super::reading::{Form, StartPosition};

pub(in super::super) static FORM: Form = Form {
    starts: "<",
    place: StartPosition::Anywhere,
    read_calls: |cursor, reading| {
        cursor.any_of(&["<TOOLCALL>", "<longcat_tool_call>", "<|tool_call_start|>"])?;
        reading.json(cursor)
    },
};
