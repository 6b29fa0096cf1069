//! JSON values with the digits of their numbers as sent, and their canonical form, which is hashed.
//!
//! The canonical form is that of RFC 8785 (members sorted by the UTF-16 units of their names, no white space, minimal
//! escapes in strings), except that numbers keep their digits. RFC 8785 reads numbers as doubles, so that limits of
//! 9007199254740993 and 9007199254740992 would be the same. Here `1` and `1.0` are different definitions, and a change
//! from one to the other is shown and recognized as harmless.

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use super::members::Members;

/// Maximum depth of nesting, which is more than in any definition that a person would approve.
const MAX_DEPTH: usize = 64;

/// A JSON value. Two values are equal if their canonical forms are.
#[derive(Debug, Clone)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number, with its digits as sent.
    Number(String),
    /// A string, with its escapes decoded.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object, with its members in the order they were sent. No name occurs twice.
    Object(Vec<(String, Json)>),
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::Number(a), Self::Number(b)) | (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => {
                a.len() == b.len() && sort_members(a) == sort_members(b)
            }
            _ => false,
        }
    }
}

impl Eq for Json {}

/// Returns the members sorted by the UTF-16 units of their names, as in RFC 8785.
fn sort_members(members: &[(String, Json)]) -> Vec<&(String, Json)> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    sorted
}

/// The order in which members are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberOrder {
    AsSent,
    Canonical,
}

/// The error for a text that is not JSON, or that parsers may read differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotJson {
    /// The text is not valid JSON from this position on.
    #[error("it is not JSON at line {line}, column {column}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
    },
    /// The value is nested too deeply.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// An object has two members of this name.
    #[error("an object has the member {0:?} twice")]
    Twice(String),
}

impl From<serde_json::Error> for NotJson {
    fn from(error: serde_json::Error) -> Self {
        Self::Syntax {
            line: error.line(),
            column: error.column(),
        }
    }
}

impl Json {
    /// Parses one value.
    pub fn parse(text: &str) -> Result<Self, NotJson> {
        Self::from_raw(serde_json::from_str(text)?, MAX_DEPTH)
    }

    fn from_raw(raw: &RawValue, depth: usize) -> Result<Self, NotJson> {
        let below = depth.checked_sub(1).ok_or(NotJson::TooDeep)?;
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(text)?;
                let mut names = HashSet::new();
                let mut object = Vec::with_capacity(members.len());
                for (name, raw) in members {
                    if !names.insert(name.clone()) {
                        return Err(NotJson::Twice(name));
                    }
                    object.push((name, Self::from_raw(raw, below)?));
                }
                Self::Object(object)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                let items = items.into_iter().map(|raw| Self::from_raw(raw, below));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b't') => Self::Boolean(true),
            Some(b'f') => Self::Boolean(false),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.to_owned()),
        })
    }

    /// Returns the member of that name, or `None` if this is not an object that has one.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    }

    /// Returns the members of an object, or an empty slice for other values.
    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the items of an array, or an empty slice for other values.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the characters of a string, or `None` for other values.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a boolean, or `None` for other values.
    pub fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    /// Returns the canonical form.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(MemberOrder::Canonical, &mut out);
        out
    }

    /// Returns the value as JSON without white space, with its members in the order they were sent.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(MemberOrder::AsSent, &mut out);
        out
    }

    fn write(&self, order: MemberOrder, out: &mut String) {
        match self {
            Self::List(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write(order, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let members = match order {
                    MemberOrder::AsSent => members.iter().collect(),
                    MemberOrder::Canonical => sort_members(members),
                };
                out.push('{');
                for (position, (name, value)) in members.into_iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    // `serde_json` escapes strings as RFC 8785 requires.
                    out.push_str(&Value::from(name.as_str()).to_string());
                    out.push(':');
                    value.write(order, out);
                }
                out.push('}');
            }
            Self::Text(text) => out.push_str(&Value::from(text.as_str()).to_string()),
            Self::Number(digits) => out.push_str(digits),
            Self::Boolean(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Null => out.push_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Json::parse(text).unwrap().canonical()
    }

    #[test]
    fn the_canonical_form_is_that_of_rfc_8785() {
        // Section 3.2.3: names are sorted by their UTF-16 units.
        let names = r#"{"\u20ac":"Euro","\r":"CR","\ufb33":"Dalet","1":"One","\ud83d\ude00":"Emoji","\u0080":"Control","\u00f6":"O"}"#;
        assert_eq!(
            canonical(names),
            "{\"\\r\":\"CR\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"O\",\"€\":\"Euro\",\"😀\":\"Emoji\",\"\u{fb33}\":\"Dalet\"}"
        );
        // Section 3.2.2.2: strings have as few escapes as possible.
        assert_eq!(
            canonical(r#"[ "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", null , true,false ]"#),
            r#"["€$\u000f\nA'B\"\\\\\"/",null,true,false]"#
        );
    }

    #[test]
    fn numbers_keep_the_digits_they_came_with() {
        assert_eq!(
            canonical("[1.0, 1, 1e2, 9007199254740993, -0]"),
            "[1.0,1,1e2,9007199254740993,-0]"
        );
    }
}
