//! A lenient parser of JSON as models write it.
//!
//! Errors with only one possible meaning are repaired: trailing commas, single quotes, Python's `True`, `False` and `None`, keys
//! without quotes, comments, braces doubled by a prompt template, and line ends and stray backslashes in strings. Nothing is
//! invented: an unclosed value is not accepted. Numbers keep their digits.

use super::cursor::{Cursor, ParseResult, ParseStop};

/// Maximum nesting depth of a value.
const MAX_DEPTH: usize = 64;

/// A JSON value that can be serialized again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    /// A number, `true`, `false` or `null`, in JSON notation.
    Plain(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Returns the first member named `name`.
    pub(super) fn member(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(members) => members.iter().find(|it| it.0 == name).map(|it| &it.1),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Plain(word) if word == "null")
    }

    /// Returns the value as JSON text.
    pub(super) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Plain(word) => out.push_str(word),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Parses a text that consists of a single value.
pub(super) fn whole(text: &str) -> Option<Json> {
    let steps = std::cell::Cell::new(0);
    // The parser recognizes the end of a number only by a following character.
    let text = format!("{} ", text.trim());
    let mut cursor = Cursor::new(&text, &steps);
    let value = value(&mut cursor).ok()?;
    cursor.blanks();
    cursor.is_done().then_some(value)
}

/// Parses the value at the start of a text and returns it with its length in bytes. Fails for a number at the end of the text.
pub(super) fn value_at_start(text: &str) -> Option<(Json, usize)> {
    let steps = std::cell::Cell::new(0);
    let mut cursor = Cursor::new(text, &steps);
    let value = value(&mut cursor).ok()?;
    Some((value, cursor.at()))
}

/// Parses a value.
pub(super) fn value(cursor: &mut Cursor) -> ParseResult<Json> {
    value_at(cursor, 0)
}

/// Parses an object.
pub(super) fn object(cursor: &mut Cursor) -> ParseResult<Json> {
    if cursor.peek()? == '{' {
        value(cursor)
    } else {
        Err(ParseStop::No)
    }
}

fn value_at(cursor: &mut Cursor, depth: usize) -> ParseResult<Json> {
    if depth > MAX_DEPTH {
        return Err(ParseStop::No);
    }
    match cursor.peek()? {
        '{' => members(cursor, depth),
        '[' => items(cursor, depth),
        '"' | '\'' => text(cursor).map(Json::Text),
        c if c == '-' || c.is_ascii_digit() => number(cursor).map(Json::Plain),
        c if c.is_ascii_alphabetic() => word(cursor),
        _ => Err(ParseStop::No),
    }
}

fn members(cursor: &mut Cursor, depth: usize) -> ParseResult<Json> {
    cursor.literal("{")?;
    let close = if cursor.peek()? == '{' {
        cursor.literal("{")?;
        "}}"
    } else {
        "}"
    };
    let mut members = Vec::new();
    loop {
        blanks_and_comments(cursor)?;
        if cursor.peek()? == '}' {
            break;
        }
        let name = match cursor.peek()? {
            '"' | '\'' => text(cursor)?,
            _ => bare_key(cursor)?,
        };
        blanks_and_comments(cursor)?;
        cursor.literal(":")?;
        blanks_and_comments(cursor)?;
        members.push((name, value_at(cursor, depth + 1)?));
        if !separator(cursor, '}')? {
            break;
        }
    }
    cursor.literal(close)?;
    Ok(Json::Object(members))
}

fn items(cursor: &mut Cursor, depth: usize) -> ParseResult<Json> {
    cursor.literal("[")?;
    let mut items = Vec::new();
    loop {
        blanks_and_comments(cursor)?;
        if cursor.peek()? == ']' {
            break;
        }
        items.push(value_at(cursor, depth + 1)?);
        if !separator(cursor, ']')? {
            break;
        }
    }
    cursor.literal("]")?;
    Ok(Json::List(items))
}

/// Parses a separator and returns whether it was a comma, after which another element may follow.
fn separator(cursor: &mut Cursor, close: char) -> ParseResult<bool> {
    blanks_and_comments(cursor)?;
    match cursor.peek()? {
        ',' => {
            cursor.next()?;
            Ok(true)
        }
        c if c == close => Ok(false),
        _ => Err(ParseStop::No),
    }
}

fn blanks_and_comments(cursor: &mut Cursor) -> ParseResult<()> {
    loop {
        cursor.blanks();
        match cursor.peek()? {
            '#' => {
                cursor.until(&["\n"])?;
            }
            '/' => {
                cursor.next()?;
                match cursor.next()? {
                    '/' => cursor.until(&["\n"])?,
                    '*' => cursor.until(&["*/"])?,
                    _ => return Err(ParseStop::No),
                };
            }
            _ => return Ok(()),
        }
    }
}

fn bare_key(cursor: &mut Cursor) -> ParseResult<String> {
    if !(cursor.peek()?.is_alphabetic() || matches!(cursor.peek()?, '_' | '$')) {
        return Err(ParseStop::No);
    }
    let key = cursor.run_of(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '.'))?;
    Ok(key.to_owned())
}

fn word(cursor: &mut Cursor) -> ParseResult<Json> {
    let word = match cursor.run_of(|c| c.is_alphanumeric() || c == '_')? {
        "true" | "True" => "true",
        "false" | "False" => "false",
        "null" | "None" => "null",
        _ => return Err(ParseStop::No),
    };
    Ok(Json::Plain(word.to_owned()))
}

fn number(cursor: &mut Cursor) -> ParseResult<String> {
    let number = cursor.run_of(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'))?;
    // `serde_json` decides, because it parses the number again later.
    match serde_json::from_str::<serde_json::Number>(number) {
        Ok(_) => Ok(number.to_owned()),
        Err(_) => Err(ParseStop::No),
    }
}

/// Parses a string in single or double quotes.
pub(super) fn text(cursor: &mut Cursor) -> ParseResult<String> {
    let quote @ ('"' | '\'') = cursor.next()? else {
        return Err(ParseStop::No);
    };
    let mut text = String::new();
    loop {
        match cursor.next()? {
            c if c == quote => return Ok(text),
            '\\' => escape_sequence(cursor, &mut text)?,
            c => text.push(c),
        }
    }
}

fn escape_sequence(cursor: &mut Cursor, text: &mut String) -> ParseResult<()> {
    match cursor.next()? {
        c @ ('"' | '\'' | '\\' | '/') => text.push(c),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        'n' => text.push('\n'),
        'r' => text.push('\r'),
        't' => text.push('\t'),
        'u' => text.push(code_point(cursor)?),
        // A stray backslash, as in a regular expression, is kept.
        c => text.extend(['\\', c]),
    }
    Ok(())
}

/// Parses the character of `\uXXXX` or of a surrogate pair of two of them. A single surrogate is rejected.
fn code_point(cursor: &mut Cursor) -> ParseResult<char> {
    let high = hex4(cursor)?;
    let code = if (0xd800..0xdc00).contains(&high) {
        cursor.literal("\\u")?;
        let low = hex4(cursor)?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(ParseStop::No);
        }
        0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
    } else {
        high
    };
    char::from_u32(code).ok_or(ParseStop::No)
}

fn hex4(cursor: &mut Cursor) -> ParseResult<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + cursor.next()?.to_digit(16).ok_or(ParseStop::No)?;
    }
    Ok(code)
}
