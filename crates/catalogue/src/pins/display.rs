//! Formatting of JSON for people.

use serde_json::Value;
use wardgate_domain::is_invisible;
use wardgate_json::Json;

/// Formats a value with one member or item per line. `indent` precedes every line but the first, and invisible characters
/// are written as `\u` escapes.
pub(super) fn pretty(value: &Json, indent: &str) -> String {
    let mut out = String::new();
    write_pretty(value, indent, &mut out);
    out
}

fn write_pretty(value: &Json, indent: &str, out: &mut String) {
    let inner = format!("{indent}  ");
    let (open, close) = match value {
        Json::List(items) if !items.is_empty() => ('[', ']'),
        Json::Object(members) if !members.is_empty() => ('{', '}'),
        _ => return out.push_str(&visible(&value.canonical())),
    };
    let named = value
        .members()
        .iter()
        .map(|(name, value)| (Some(name), value));
    let unnamed = value.items().iter().map(|value| (None, value));
    out.push(open);
    for (position, (name, value)) in named.chain(unnamed).enumerate() {
        out.push_str(if position > 0 { ",\n" } else { "\n" });
        out.push_str(&inner);
        if let Some(name) = name {
            out.push_str(&visible(&Value::from(name.as_str()).to_string()));
            out.push_str(": ");
        }
        write_pretty(value, &inner, out);
    }
    out.push('\n');
    out.push_str(indent);
    out.push(close);
}

/// Replaces control and invisible characters in JSON text on one line by `\u` escapes. In JSON text such characters occur
/// only inside strings.
pub(super) fn visible(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() || is_invisible(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}
