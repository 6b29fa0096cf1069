//! Work is linear in what comes in, and what is held back is bounded.

use super::{Extractor, Family, tools};

const MEBIBYTE: usize = 1 << 20;

/// How often each byte may be read.
const READS: usize = 120;

/// What would be read again and again by a careless reader.
const HOSTILE: [&str; 28] = [
    "{",
    "[",
    "{\"a\":",
    "{\"a\":[",
    "\n{\"a\": \"",
    "\n{\"a\":\n[{'b':\n",
    "<tool_call>",
    "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"",
    "<tool_call>{\"name\":\"list_cities\",\"arguments\":{}}",
    "<tool_call>list_cities<arg_key>a</arg_key><arg_value>",
    "<function=f><parameter=a>",
    "<function=list_cities><parameter=a></parameter>",
    "<invoke name=\"f\"><parameter name=\"a\">",
    "<invoke name=\"",
    "[TOOL_CALLS][{\"name\":\"f\"},",
    "[TOOL_CALLS]f[ARGS]",
    "<start_function_call>call:f{a:<escape>",
    "<｜tool▁calls▁begin｜>",
    "<|channel|>commentary to=",
    "\n[list_cities(a=",
    "\n[list_cities(),",
    "```json\n",
    "\n```tool_code\nlist_cities()\n",
    "TOOL: f\nPARAMETERS: {\"a\": ",
    "Action: f\nAction Input: ",
    "/*",
    "\n{ // \n",
    "<think>",
];

/// Reads of bytes, for this text in pieces of so many bytes; and the most that was held back.
fn effort(text: &str, bytes: usize) -> (usize, usize) {
    let mut extractor = Extractor::new(Family::UNKNOWN, &tools());
    let mut held = 0;
    let mut from = 0;
    while from < text.len() {
        let mut end = (from + bytes).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        extractor.push(&text[from..end]);
        held = held.max(extractor.held());
        from = end;
    }
    extractor.push("\" } ] </parameter></function></invoke></tool_call>!");
    (extractor.steps(), held)
}

#[test]
fn a_mebibyte_of_anything_is_read_in_linear_steps() {
    for hostile in HOSTILE {
        let text = hostile.repeat(MEBIBYTE / hostile.len());
        for bytes in [MEBIBYTE, 97] {
            let (steps, held) = effort(&text, bytes);
            let reads = steps / text.len();
            assert!(reads <= READS, "{hostile:?} by {bytes}: {reads}");
            if bytes < MEBIBYTE {
                assert!(held <= MEBIBYTE / 2, "{hostile:?}: {held} bytes held back");
            }
        }
    }
}
