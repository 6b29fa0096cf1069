use serde_json::json;

use super::*;
use crate::model::Function;

fn functions(names: &[&str]) -> Vec<Function> {
    let each = names.iter();
    each.map(|name| Function {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    })
    .collect()
}

fn extract(text: &str, names: &[&str]) -> (Vec<(String, String)>, String) {
    let mut extractor = Extractor::new(Family::UNKNOWN, &functions(names));
    let mut pieces = extractor.push(text);
    pieces.extend(extractor.finish());
    let (mut calls, mut shown) = (Vec::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => shown.push_str(&text),
            Piece::Call { name, arguments } => calls.push((name, arguments)),
        }
    }
    (calls, shown)
}

#[test]
fn tries() {
    for text in [
        "Sure.\nTOOL: get.records-1\r\nPARAMETERS: {\"a\": {\"b\": \"}{\"}, \"c\": [1, {\"d\": 2}]}\r\nTOOL: f\nPARAMETERS: {}\nDone.",
        "```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```",
        "{{\"name\": \"f\", \"arguments\": {\"a\": 1}}}",
        "<tool_call>\n{'name': 'f', 'arguments': {'a': True,}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
        "TOOL: f\nPARAMETERS: {\"a\": 1",
        "{\"x\": {\"name\": \"f\", \"arguments\": {}}}",
        "<think>TOOL: f\nPARAMETERS: {}</think>TOOL: f\nPARAMETERS:\n```json\n{}\n```",
    ] {
        println!("{:?}", extract(text, &["f"]));
    }
}
