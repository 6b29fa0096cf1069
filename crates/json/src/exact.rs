//! JSON with its digits as sent, and the one form that is hashed.
//!
//! The canonical form is that of RFC 8785 (members in the order of their names as UTF-16, no white space,
//! texts escaped as little as can be) but for numbers: they keep the digits they came with. RFC 8785 reads
//! numbers as doubles, and then 9007199254740993 and 9007199254740992 would be one limit. So `1` and `1.0`
//! are two definitions here, and a change from one to the other is shown as what it is: harmless.

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use super::members::Members;

/// Deeper than any definition that a person would approve.
const MAX_DEPTH: usize = 64;

/// A JSON value. Two are equal when their canonical forms are.
#[derive(Debug, Clone)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// The digits as sent.
    Number(String),
    /// Its characters, not as they were escaped.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// In the order they were sent; no name twice.
    Object(Vec<(String, Json)>),
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::Number(a), Self::Number(b)) | (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a.len() == b.len() && sorted(a) == sorted(b),
            _ => false,
        }
    }
}

impl Eq for Json {}

/// Members in the order of RFC 8785: that of their names as UTF-16.
fn sorted(members: &[(String, Json)]) -> Vec<&(String, Json)> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    sorted
}

/// How members are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberOrder {
    AsSent,
    Canonical,
}

/// Text that is not JSON every reader reads alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotJson {
    /// No JSON from here on.
    #[error("it is not JSON at line {line}, column {column}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// More levels than are read.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Two members of this name.
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
    /// Reads one value.
    pub fn parse(text: &str) -> Result<Self, NotJson> {
        Self::read(serde_json::from_str(text)?, MAX_DEPTH)
    }

    fn read(raw: &RawValue, depth: usize) -> Result<Self, NotJson> {
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
                    object.push((name, Self::read(raw, below)?));
                }
                Self::Object(object)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                let items = items.into_iter().map(|raw| Self::read(raw, below));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b't') => Self::Boolean(true),
            Some(b'f') => Self::Boolean(false),
            Some(b'n') => Self::Null,
            _ => Self::Number(text.to_owned()),
        })
    }

    /// The member of that name, when this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    }

    /// The members of an object; none of anything else.
    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The characters of a text; none of anything else.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The truth of a boolean; none of anything else.
    pub fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The canonical form.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(MemberOrder::Canonical, &mut out);
        out
    }

    /// The same value with its members in the order they were sent.
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
                    MemberOrder::Canonical => sorted(members),
                };
                out.push('{');
                for (position, (name, value)) in members.into_iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    // `serde_json` escapes texts as RFC 8785 wants it.
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
        // Section 3.2.3: names sort by their UTF-16 units.
        let names = r#"{"\u20ac":"Euro","\r":"CR","\ufb33":"Dalet","1":"One","\ud83d\ude00":"Emoji","\u0080":"Control","\u00f6":"O"}"#;
        assert_eq!(
            canonical(names),
            "{\"\\r\":\"CR\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"O\",\"€\":\"Euro\",\"😀\":\"Emoji\",\"\u{fb33}\":\"Dalet\"}"
        );
        // Section 3.2.2.2: texts are escaped as little as can be.
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
