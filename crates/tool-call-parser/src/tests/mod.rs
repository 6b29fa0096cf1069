mod hostile;
mod rules;
mod samples;
mod streams;

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{Extractor, Family, Piece};
use crate::Function;

/// The calls and the complete text that were extracted.
#[derive(Debug, Clone, Default, PartialEq)]
struct Outcome {
    calls: Vec<(String, Value)>,
    text: String,
}

impl Outcome {
    fn add(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Unreadable(_) => {}
                Piece::Text(text) => self.text.push_str(&text),
                Piece::Call { name, arguments } => {
                    let arguments = serde_json::from_str(&arguments).unwrap();
                    self.calls.push((name, arguments));
                }
            }
        }
    }
}

fn function(name: &str, properties: &Value) -> Function {
    Function {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": properties }),
    }
}

/// The tools of all samples.
static TOOLS: LazyLock<Vec<Function>> = LazyLock::new(|| {
    vec![
        function(
            "get_weather",
            &json!({ "city": { "type": "string" }, "days": { "type": "integer" } }),
        ),
        function("list_cities", &json!({})),
        function(
            "send_mail",
            &json!({
                "to": { "type": "string" },
                "body": { "type": ["string", "null"] },
                "urgent": { "type": "boolean" },
                "tags": { "type": "array", "items": { "type": "string" } },
            }),
        ),
        function(
            "write_file",
            &json!({ "path": { "type": "string" }, "content": { "type": "string" } }),
        ),
        function("hospital.records-v2", &json!({})),
    ]
});

/// Extracts the calls and the text from the pieces of a stream.
fn stream<'a>(family: Family, pieces: impl IntoIterator<Item = &'a str>) -> Outcome {
    let mut extractor = Extractor::new(family, &TOOLS);
    let mut outcome = Outcome::default();
    for piece in pieces {
        outcome.add(extractor.push(piece));
    }
    outcome.add(extractor.finish());
    outcome
}

fn whole(text: &str) -> Outcome {
    stream(Family::UNKNOWN, [text])
}
