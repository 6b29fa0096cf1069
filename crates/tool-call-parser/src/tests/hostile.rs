//! Tests that the work is linear in the size of the input, and that the amount of text held back is limited.

use super::{Extractor, Family, TOOLS};

const MEBIBYTE: usize = 1 << 20;

/// Maximum number of times that each byte may be parsed, on average.
const READS: usize = 20;

/// Fragments that a naive parser would parse again and again.
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

/// Parses a text in small pieces. Returns how often each byte was parsed on average, and the maximum number of bytes held back.
fn effort(text: &str) -> (usize, usize) {
    let mut extractor = Extractor::new(Family::UNKNOWN, &TOOLS);
    let mut held = 0;
    let mut from = 0;
    while from < text.len() {
        let mut end = (from + 97).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        extractor.push(&text[from..end]);
        held = held.max(extractor.held_bytes());
        from = end;
    }
    extractor.push("\" } ] </parameter></function></invoke></tool_call>!");
    (extractor.steps() / text.len(), held)
}

#[test]
fn a_mebibyte_of_anything_is_read_in_linear_steps_and_not_held_back() {
    for hostile in HOSTILE {
        let text = hostile.repeat(MEBIBYTE / hostile.len());
        let (reads, held) = effort(&text);
        assert!(reads <= READS, "{hostile:?}: {reads}");
        assert!(held <= MEBIBYTE / 2, "{hostile:?}: {held} bytes");
    }
}
