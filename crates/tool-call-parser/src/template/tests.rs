//! Tests that render calls by templates of the kinds that vendors publish, and parse them again.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::{CallSyntax, Extractor, Family, Piece};
use super::probe::{ProbeCall, Prober};
use super::render::ChatTemplate;
use super::{CallFormat, learn_with_variant};
use crate::Function;

const TOOLS: [&str; 3] = ["get_weather", "search-records", "list_cities"];
const IDS: [&str; 3] = ["callaaaa1", "callbbbb2", "callcccc3"];

/// Returns arguments with values of all types, and strings that look like the text around arguments.
fn arguments() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "city": "Oslo" }),
        json!({ "city": "São Paulo – 東京 😀", "country": "Việt Nam" }),
        json!({ "quote": "she said \"hi\" and 'bye'" }),
        json!({ "text": "line one\nline two\n\nthe end" }),
        json!({ "count": 42, "ratio": -1.5, "large": 12_345_678_901_i64 }),
        json!({ "yes": true, "no": false, "nothing": null, "after": "x" }),
        json!({ "tags": ["a", "b \"c\"", ""], "ids": [1, 2, 3], "empty": [] }),
        json!({ "filter": { "age": { "min": 18, "max": 65.5 }, "names": ["x", "y"] }, "limit": 5 }),
        json!({ "deep": { "a": { "b": { "c": [1, { "d": "e" }, [null, true]] } } } }),
        json!({ "html": "<b>bold</b> & <i>x</i> a < b > c" }),
        json!({ "code": "def f(a):\n    return {\"k\": [a, 'b']}" }),
        json!({ "path": "C:\\temp\\new", "pattern": "^\\d+\\.[a-z]*$" }),
        json!({ "json": "{\"a\": [1, 2], \"b\": {}}" }),
        json!({ "fake": "<tool_call>{\"name\": \"x\", \"arguments\": {}}</tool_call>" }),
        json!({ "number": "42", "truth": "true", "nothing": "null", "list": "[1]" }),
        json!({ "empty": "", "comma": "a, b), c=d; }] )" }),
    ]
}

fn function(name: &str, arguments: &Value) -> Function {
    let mut properties = Map::new();
    for (key, value) in arguments.as_object().unwrap() {
        let schema = match value {
            Value::Null => json!({ "type": ["string", "null"] }),
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
            Value::Number(_) => json!({ "type": "integer" }),
            Value::String(_) => json!({ "type": "string" }),
            Value::Array(_) => json!({ "type": "array" }),
            Value::Object(_) => json!({ "type": "object" }),
        };
        properties.insert(key.clone(), schema);
    }
    Function {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": properties }),
    }
}

/// Returns conversations with one, two and three calls.
fn conversations() -> Vec<Vec<Value>> {
    let arguments = arguments();
    let mut all: Vec<Vec<Value>> = arguments.iter().map(|it| vec![it.clone()]).collect();
    for several in [&[1, 5][..], &[0, 0], &[3, 8, 7], &[4, 0, 6]] {
        all.push(
            several
                .iter()
                .map(|index| arguments[*index].clone())
                .collect(),
        );
    }
    all
}

type Calls = Vec<(String, Value)>;

/// Splits a text into pieces of about `bytes` bytes.
fn in_pieces(text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for end in (bytes..text.len()).step_by(bytes) {
        if text.is_char_boundary(end) {
            pieces.push(&text[from..end]);
            from = end;
        }
    }
    pieces.push(&text[from..]);
    pieces
}

/// Parses a text.
fn read_text(format: &Arc<CallFormat>, text: &str, calls: &[Value]) -> (Calls, String) {
    read_pieces(format, &[text], calls)
}

fn read_pieces(format: &Arc<CallFormat>, texts: &[&str], calls: &[Value]) -> (Calls, String) {
    let functions: Vec<Function> = TOOLS
        .iter()
        .zip(calls)
        .map(|it| function(it.0, it.1))
        .collect();
    let syntax = CallSyntax {
        family: Family::UNKNOWN,
        format: Some(Arc::clone(format)),
    };
    let mut extractor = Extractor::new(syntax, &functions);
    let mut pieces: Vec<Piece> = texts.iter().flat_map(|text| extractor.push(text)).collect();
    pieces.extend(extractor.finish());
    let mut read = (Vec::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Unreadable(_) => {}
            Piece::Text(text) => read.1.push_str(&text),
            Piece::Call { name, arguments } => {
                read.0
                    .push((name, serde_json::from_str(&arguments).unwrap()));
            }
        }
    }
    read
}

fn probes(calls: &[Value]) -> Vec<ProbeCall<'static>> {
    let calls = calls.iter().enumerate();
    calls
        .map(|(index, arguments)| ProbeCall {
            name: TOOLS[index],
            id: IDS[index],
            arguments: arguments.clone(),
        })
        .collect()
}

/// Returns the number of conversations that are parsed exactly, the number that the template renders, and descriptions of the
/// failures.
fn round_trips(source: &str) -> Result<(usize, usize, Vec<String>), String> {
    let (format, variant) = learn_with_variant(source).map_err(|error| error.to_string())?;
    let template = ChatTemplate::parse(source).unwrap();
    let prober = Prober::new(&template, source, variant);
    let format = Arc::new(format);
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    for calls in conversations() {
        let Ok(text) = prober.calls(&probes(&calls)) else {
            continue;
        };
        if !calls.iter().zip(TOOLS).all(|it| text.contains(it.1)) {
            // Some templates render the first call only.
            continue;
        }
        all += 1;
        let expected: Calls = TOOLS
            .iter()
            .map(|it| (*it).to_owned())
            .zip(calls.clone())
            .collect();
        let (found, left) = read_text(&format, &text, &calls);
        if found == expected {
            right += 1;
        } else {
            wrong.push(format!("{text:?}\n    -> {found:?}\n    left {left:?}"));
        }
    }
    if right < all {
        wrong.insert(0, format!("{format:?}"));
    }
    Ok((right, all, wrong))
}

/// Returns all templates, each with its name.
fn samples() -> Vec<(String, String)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/template/samples");
    let mut samples: Vec<(String, String)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    samples.sort();
    samples
}

/// The numbers of conversations that are not parsed exactly, by template.
const EXCEPTIONS: [(&str, usize); 0] = [];

#[test]
fn calls_rendered_through_a_template_are_read_back_exactly() {
    let samples = samples();
    assert!(samples.len() >= 25);
    let (mut read, mut rendered) = (0, 0);
    let mut exceptions = Vec::new();
    for (name, source) in &samples {
        let (right, all, wrong) =
            round_trips(source).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(all >= 17, "{name} renders {all}");
        read += right;
        rendered += all;
        if right < all {
            exceptions.push((name.as_str(), all - right));
            println!("{name}:\n  {}", wrong.join("\n  "));
        }
    }
    assert!(read * 100 >= rendered * 97, "{read} of {rendered}");
    assert_eq!(exceptions, EXCEPTIONS);
}

/// Returns the format learned from a template, and conversations rendered by the template.
fn render_conversations(source: &str) -> (Arc<CallFormat>, Vec<(String, Vec<Value>)>) {
    let (format, variant) = learn_with_variant(source).unwrap();
    let template = ChatTemplate::parse(source).unwrap();
    let prober = Prober::new(&template, source, variant);
    let texts = conversations().into_iter().filter_map(|calls| {
        let text = prober.calls(&probes(&calls)).ok()?;
        Some((text, calls))
    });
    let texts = texts.collect();
    (Arc::new(format), texts)
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_calls_and_half_a_text_none_that_the_whole_does_not() {
    for (name, source) in samples() {
        let (format, texts) = render_conversations(&source);
        for (text, calls) in texts.iter().filter(|(text, _)| text.len() < 300) {
            let (whole, left) = read_text(&format, text, calls);
            for bytes in [1, 3, 7] {
                let pieces = in_pieces(text, bytes);
                assert_eq!(
                    read_pieces(&format, &pieces, calls),
                    (whole.clone(), left.clone()),
                    "{name}: {text:?}"
                );
            }
            let ends = (0..text.len()).filter(|end| text.is_char_boundary(*end));
            for end in ends.step_by(3) {
                let (truncated, _) = read_text(&format, &text[..end], calls);
                assert!(whole.starts_with(&truncated), "{name}: {:?}", &text[..end]);
            }
        }
    }
}

#[test]
fn words_around_calls_stay_words() {
    for (name, source) in samples() {
        let (format, texts) = render_conversations(&source);
        let (text, calls) = &texts[1];
        let text = format!("I look it up.\n{}", text.trim_start());
        let (found, left) = read_text(&format, &text, calls);
        assert_eq!(found.len(), 1, "{name}: {text:?}");
        assert!(left.starts_with("I look it up."), "{name}: {left:?}");
        // Text that only mentions such notations contains no calls.
        for text in [
            "2 < 3, [1], {x}, f(a=1) and `<tool_call>` too.",
            "Hello\n\nget_weather is a tool.\n",
        ] {
            let (found, left) = read_text(&format, text, calls);
            assert_eq!((found.len(), left.as_str()), (0, text), "{name}");
        }
    }
}

#[test]
fn a_template_that_cannot_be_used_says_why() {
    let calls = |inner: &str| format!("{{% for m in messages %}}{inner}{{% endfor %}}");
    let endless = calls(
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
    );
    let recursive = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    let large =
        calls("{% for i in range(90000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}");
    for (source, problem) in [
        (
            "x".repeat(super::render::MAX_TEMPLATE + 1),
            "is larger than 256 KiB",
        ),
        ("{% for m in messages %}".to_owned(), "cannot be parsed: "),
        (
            "{{ raise_exception('no tools here') }}".to_owned(),
            "no tools here",
        ),
        (calls("{{ m.content }}"), "renders no tool calls"),
        (endless, "failed to render a tool call"),
        (recursive.to_owned(), "failed to render a tool call"),
        (large, "failed to render a tool call"),
        (
            "{% include '/etc/passwd' %}".to_owned(),
            "failed to render a tool call",
        ),
    ] {
        let error = CallFormat::from_template(&source).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
