//! JSON with its digits as sent, and the one form that is hashed.
//!
//! The canonical form is that of RFC 8785 (members in the order of their names as UTF-16, no white space,
//! texts escaped as little as can be) but for numbers: they keep the digits they came with. RFC 8785 reads
//! numbers as doubles, and then 9007199254740993 and 9007199254740992 would be one limit. So `1` and `1.0`
//! are two definitions here, and a change from one to the other is shown as what it is: harmless.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::is_invisible;

use super::escape::Escape;

/// Deeper than any definition that a person would approve.
const MAX_DEPTH: usize = 64;

/// A JSON value. Two are equal when their canonical forms are.
#[derive(Debug, Clone)]
pub(crate) enum Json {
    Null,
    Boolean(bool),
    /// The digits as sent.
    Number(String),
    Text(String),
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
enum Order {
    AsSent,
    Canonical,
}

/// Text that is not JSON every reader reads alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJson {
    #[error("it is not JSON at line {line}, column {column}")]
    Syntax { line: usize, column: usize },
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("an object has the member `{}` twice", Escape::short(.0))]
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
    pub(crate) fn parse(text: &str) -> Result<Self, NotJson> {
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
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    }

    /// The members of an object; none of anything else.
    pub(crate) fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The canonical form.
    pub(crate) fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(Order::Canonical, &mut out);
        out
    }

    /// The same value with its members in the order they were sent.
    pub(crate) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(Order::AsSent, &mut out);
        out
    }

    fn write(&self, order: Order, out: &mut String) {
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
                    Order::AsSent => members.iter().collect(),
                    Order::Canonical => sorted(members),
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

    /// The same value for a person to read: a member or an item a line, `indent` in front of every line but
    /// the first, and characters that do not show written as `\u` escapes.
    pub(crate) fn pretty(&self, indent: &str) -> String {
        let mut out = String::new();
        self.write_pretty(indent, &mut out);
        out
    }

    fn write_pretty(&self, indent: &str, out: &mut String) {
        let inner = format!("{indent}  ");
        let (open, close) = match self {
            Self::List(items) if !items.is_empty() => ('[', ']'),
            Self::Object(members) if !members.is_empty() => ('{', '}'),
            _ => return out.push_str(&visible(&self.canonical())),
        };
        let named = self
            .members()
            .iter()
            .map(|(name, value)| (Some(name), value));
        let unnamed = self.items().iter().map(|value| (None, value));
        out.push(open);
        for (position, (name, value)) in named.chain(unnamed).enumerate() {
            out.push_str(if position > 0 { ",\n" } else { "\n" });
            out.push_str(&inner);
            if let Some(name) = name {
                out.push_str(&visible(&Value::from(name.as_str()).to_string()));
                out.push_str(": ");
            }
            value.write_pretty(&inner, out);
        }
        out.push('\n');
        out.push_str(indent);
        out.push(close);
    }
}

/// JSON text on one line with what does not show as `\u` escapes; such characters only ever stand inside its texts.
pub(crate) fn visible(json: &str) -> String {
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

/// The members of an object as they were sent.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
