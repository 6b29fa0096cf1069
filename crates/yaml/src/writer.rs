//! A writer of readable YAML, with keys in a given order, comments, short values on one line and long strings as blocks.
//!
//! The output is parsed to the same values, whatever characters they contain. Invisible characters are escaped so that
//! they can be seen.

use serde_json::{Map, Value};
use wardgate_domain::{find_invisible, is_invisible};

/// Column after which lines are broken where YAML permits it.
const WIDTH: usize = 110;

/// Maximum length of a comment, in characters. It is limited because some comments contain names from other sources.
const MAX_COMMENT: usize = 400;

/// Words that some version of YAML does not read as strings.
const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// A writer of YAML text.
#[derive(Debug, Default)]
pub struct YamlWriter {
    text: String,
    indent: usize,
    /// Whether the next line begins an element of a list.
    begins_item: bool,
}

impl YamlWriter {
    /// Creates a writer whose lines are indented by `indent` spaces.
    pub fn with_indent(indent: usize) -> Self {
        Self {
            indent,
            ..Self::default()
        }
    }

    /// Returns the text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Returns the text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Appends text of another writer.
    pub fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Writes an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a comment of one line. Control characters and invisible characters in `text` become spaces, and a long
    /// text is cut.
    pub fn comment(&mut self, text: &str) {
        let text: String = text
            .chars()
            .take(MAX_COMMENT)
            .map(|c| {
                if c.is_control() || is_invisible(c) {
                    ' '
                } else {
                    c
                }
            })
            .collect();
        self.line(format!("# {text}").trim_end());
    }

    /// Writes a comment on a choice that a person should review.
    pub fn review(&mut self, text: &str) {
        self.comment(&format!("review: {text}"));
    }

    /// Writes `key:` and below it the output of `inside`.
    pub fn map(&mut self, key: &str, inside: impl FnOnce(&mut Self)) {
        self.line(&format!("{}:", inline(&Value::from(key))));
        self.indent += 2;
        inside(self);
        self.indent -= 2;
    }

    /// Writes an element of a list. The first line of `inside` follows the dash.
    pub fn item(&mut self, inside: impl FnOnce(&mut Self)) {
        self.indent += 2;
        self.begins_item = true;
        inside(self);
        self.indent -= 2;
    }

    /// Writes a whole document.
    pub fn document(&mut self, value: &Value) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (key, member) in members {
                    self.entry(key, member);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    self.element(item);
                }
            }
            _ => self.line(&inline(value)),
        }
    }

    /// Writes `key:` and its value.
    pub fn entry(&mut self, key: &str, value: &Value) {
        let key = inline(&Value::from(key));
        self.value(&format!("{key}:"), value);
    }

    /// Writes `value` after `head`, on one line if it fits.
    fn value(&mut self, head: &str, value: &Value) {
        let room = WIDTH.saturating_sub(self.indent + head.len() + 1);
        match value {
            Value::String(text) if is_literal(text) => {
                let chomp = if text.ends_with('\n') { "" } else { "-" };
                self.block(head, &format!("|{chomp}"), text.lines());
            }
            Value::String(text) if text.len() > room && is_foldable(text) => {
                let lines = wrap_text(text, WIDTH.saturating_sub(self.indent + 2));
                self.block(head, ">-", lines.iter().map(String::as_str));
            }
            Value::Object(members) if !members.is_empty() && !fits(value, room) => {
                self.line(head);
                self.indent += 2;
                for (key, member) in members {
                    self.entry(key, member);
                }
                self.indent -= 2;
            }
            Value::Array(items) if !items.is_empty() && !fits(value, room) => {
                self.line(head);
                self.indent += 2;
                for item in items {
                    self.element(item);
                }
                self.indent -= 2;
            }
            _ => self.line(&format!("{head} {}", inline(value))),
        }
    }

    /// Writes one element of a list.
    pub fn element(&mut self, item: &Value) {
        match item {
            Value::Object(members) if !members.is_empty() => self.item(|writer| {
                for (key, member) in members {
                    writer.entry(key, member);
                }
            }),
            _ => self.line(&format!("- {}", inline(item))),
        }
    }

    fn block<'l>(&mut self, head: &str, style: &str, lines: impl Iterator<Item = &'l str>) {
        self.line(&format!("{head} {style}"));
        self.indent += 2;
        for line in lines {
            if line.is_empty() {
                self.blank();
            } else {
                self.line(line);
            }
        }
        self.indent -= 2;
    }

    fn line(&mut self, line: &str) {
        let mut indent = self.indent;
        if std::mem::take(&mut self.begins_item) {
            indent -= 2;
            self.text.push_str(&" ".repeat(indent));
            self.text.push_str("- ");
        } else {
            self.text.push_str(&" ".repeat(indent));
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Returns whether a map or list is short and flat enough for one line.
fn fits(value: &Value, room: usize) -> bool {
    depth(value) <= 2 && !holds_lines(value) && inline(value).len() <= room.min(90)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn holds_lines(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n'),
        Value::Array(items) => items.iter().any(holds_lines),
        Value::Object(members) => members.values().any(holds_lines),
        _ => false,
    }
}

/// Returns a value as YAML on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => flow(members),
    }
}

fn flow(members: &Map<String, Value>) -> String {
    if members.is_empty() {
        return "{}".to_owned();
    }
    let members: Vec<_> = members
        .iter()
        .map(|(key, value)| format!("{}: {}", inline(&Value::from(key.as_str())), inline(value)))
        .collect();
    format!("{{ {} }}", members.join(", "))
}

/// Returns whether a string needs no quotes, even within `[]` and `{}`.
fn is_plain(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || " _./()-$".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && text.chars().all(is_inner)
        && !text.ends_with(' ')
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => {
                quoted.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns whether a string of several lines is unchanged when it is read from a literal block whose indentation is
/// that of its first line.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.ends_with('\n')
        && !text.contains(|c: char| c != '\n' && c.is_control())
        && find_invisible(text).next().is_none()
        && body
            .lines()
            .all(|line| line.is_empty() || !line.trim().is_empty())
}

/// Returns whether the words of a string are separated by single spaces, so that lines can be broken at any of them.
fn is_foldable(text: &str) -> bool {
    !text.is_empty()
        && !text.contains("  ")
        && text.trim() == text
        && !text.contains(char::is_control)
        && find_invisible(text).next().is_none()
}

fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                line.push_str(word);
                continue;
            }
            if line.len() + 1 + word.len() <= width {
                line.push(' ');
                line.push_str(word);
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn write_value(value: &Value) -> String {
        let mut writer = YamlWriter::with_indent(2);
        writer.map("outer", |writer| writer.entry("key", value));
        writer.into_text()
    }

    fn read_value(text: &str) -> Value {
        let value: Value =
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error:?}: {text:?}"));
        value["outer"]["key"].clone()
    }

    #[test]
    fn short_things_stand_on_a_line_and_long_ones_in_blocks() {
        let mut writer = YamlWriter::default();
        writer.review("two\nlines \u{202e}of it");
        writer.map("tools", |writer| {
            writer.item(|writer| {
                writer.entry("name", &json!("search"));
                writer.entry("hints", &json!({"a": true, "b": [1, "x: y"]}));
                writer.entry("statement", &json!("SELECT 1\n  FROM t"));
                writer.entry("text", &json!("word ".repeat(40).trim()));
                writer.entry(
                    "deep",
                    &json!({"a": {"b": {"c": 1}}, "list": [{"d": {"e": {"f": 1}}, "g": "\u{202e}"}, "no"]}),
                );
            });
        });
        insta::assert_snapshot!(writer.into_text(), @r#"
        # review: two lines  of it
        tools:
          - name: search
            hints: { a: true, b: [1, "x: y"] }
            statement: |-
              SELECT 1
                FROM t
            text: >-
              word word word word word word word word word word word word word word word word word word word word word
              word word word word word word word word word word word word word word word word word word word
            deep:
              a: { b: { c: 1 } }
              list:
                - d: { e: { f: 1 } }
                  g: "\U0000202E"
                - "no"
        "#);
    }

    #[test]
    fn texts_that_look_like_something_else_stay_texts() {
        for text in [
            "",
            " ",
            "true",
            "No",
            "~",
            "1",
            "0x1F",
            "1e3",
            "2020-01-01",
            "- a",
            "a: b",
            "a #b",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "%",
            "@",
            "`",
            "'",
            "{a}",
            "[a]",
            "a\nb",
            "\n",
            "a\n",
            "a\n\n",
            " a\nb",
            "a\n b",
            "a\n \nb",
            "a\r\nb",
            "\tb\nc",
            "\u{85}",
            "\u{2028}a\nb",
            "\u{feff}",
            "a\u{0}b",
            "<<",
            "=",
            "...",
            "---",
            "null",
            "$x",
            "/a/{b}",
            "😀\nx",
            "a\n#b",
            "a:\n- b",
        ] {
            assert_eq!(
                read_value(&write_value(&json!(text))),
                json!(text),
                "{text:?}"
            );
            let nested = json!({ text: [text, { text: text }] });
            assert_eq!(read_value(&write_value(&nested)), nested, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(
            text in "[ -~\n\t\r\u{0}\u{85}\u{a0}\u{2028}\u{202e}\u{feff}é😀]{0,60}",
            words in "([a-z{}:#'\"-]{1,12} ?){0,40}",
            number in any::<i64>(),
            fraction in -1e300..1e300,
        ) {
            for value in [
                json!(text), json!(words), json!(number), json!(fraction),
                json!({ &text: [&words, number, { &words: &text }], "deep": { "a": { "b": { &text: fraction } } } }),
            ] {
                prop_assert_eq!(&read_value(&write_value(&value)), &value);
                let mut writer = YamlWriter::default();
                writer.document(&value);
                prop_assert_eq!(serde_saphyr::from_str::<Value>(writer.text()).unwrap(), value);
            }
        }
    }
}
