//! Parsing of imported documents to JSON values from JSON, JSON with comments, or YAML, within limits of size.

use serde_json::{Map, Value};

use super::ImportError;

/// Maximum size of a document, in bytes.
pub const MAX_DOCUMENT: usize = 16 << 20;

/// Parses `text`, which must contain exactly one document.
pub(super) fn parse_one(text: &str) -> Result<Map<String, Value>, ImportError> {
    let mut documents = parse_all(text)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document),
        (None, _) => Err(ImportError::Unreadable("it is empty".to_owned())),
        _ => Err(ImportError::Unreadable(
            "it contains several documents, separated by `---`".to_owned(),
        )),
    }
}

/// Parses all documents in `text`, each of which must be a map.
pub(super) fn parse_all(text: &str) -> Result<Vec<Map<String, Value>>, ImportError> {
    if text.len() > MAX_DOCUMENT {
        return Err(ImportError::TooLarge);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values = if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(value) => vec![value],
            // Editors allow comments and trailing commas. JSON with trailing commas is valid YAML once its comments are
            // removed.
            Err(error) => match yaml(&without_comments(text)) {
                Ok(values) => values,
                Err(_) => return Err(ImportError::Unreadable(error.to_string())),
            },
        }
    } else {
        yaml(text)?
    };
    values
        .into_iter()
        .map(|value| match value {
            Value::Object(members) => Ok(members),
            _ => Err(ImportError::Unreadable("it is not a map".to_owned())),
        })
        .collect()
}

/// Parses YAML. The parser's budgets and alias limits prevent a small text from becoming a large value.
fn yaml(text: &str) -> Result<Vec<Value>, ImportError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4_000_000,
            max_nodes: 2_000_000,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ImportError::Unreadable(error.to_string()))
}

/// Removes `//` and `/* */` comments outside of the strings of JSON.
fn without_comments(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/']) {
        json.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("//") {
            json.push(' ');
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            json.push(' ');
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else {
            let length = if rest.starts_with('"') {
                string_length(rest)
            } else {
                1
            };
            json.push_str(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
    json.push_str(rest);
    json
}

/// Returns the length of the string at the beginning of `json`, including its quotes.
fn string_length(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(text: &str) -> String {
        parse_all(text).unwrap_err().to_string()
    }

    #[test]
    fn json_yaml_and_what_editors_write_are_read() {
        let wanted = json!({"a": [1, 2], "url": "http://x/*y*/", "200": true});
        for text in [
            r#"{"a": [1, 2], "url": "http://x/*y*/", "200": true}"#,
            "\u{feff}{\n// one, \"two\"\n\"a\": [1, 2,], /* { */ \"url\": \"http://x/*y*/\", \"200\": true, }",
            "a: [1, 2]\nurl: http://x/*y*/\n200: true\n",
        ] {
            assert_eq!(Value::Object(parse_one(text).unwrap()), wanted, "{text}");
        }
        assert_eq!(parse_all("a: 1\n---\nb: 2\n---\n").unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, wanted) in [
            ("", "it is empty"),
            ("- a", "it is not a map"),
            ("a: 1\n---\nb: 2", "it contains several documents"),
            ("{\"a\": ", "line 1 column"),
            ("a: [", "line 1"),
        ] {
            let problem = parse_one(text).unwrap_err().to_string();
            assert!(problem.contains(wanted), "{text:?}: {problem}");
        }
    }

    #[test]
    fn no_text_becomes_more_than_can_be_held() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let alias = format!("*a{}", level - 1);
            let aliases = [alias.as_str(); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        problem(&bomb);
        problem(&"[".repeat(200_000));
        problem(&format!("{{\"a\": {}", "[".repeat(200_000)));
        problem(&"a:\n ".repeat(100_000));
        let large = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_DOCUMENT));
        assert!(matches!(parse_all(&large), Err(ImportError::TooLarge)));
    }

    #[test]
    fn ten_megabytes_are_read() {
        let entries: Vec<_> = (0..200_000)
            .map(|number| format!("\"key{number}\": \"{}\"", "x".repeat(40)))
            .collect();
        let json = format!("{{{}}}", entries.join(","));
        assert!(json.len() > 10 << 20);
        assert_eq!(parse_one(&json).unwrap().len(), 200_000);
    }
}
