//! YAML whose values have positions, so that an error can name its line and column.
//!
//! ```text
//!   text ─┬─▶ parse: a type of the caller ─┐
//!         └─▶ Node: any document          ├─ Position: line and column
//!   not YAML ─▶ NotYaml                   ┘
//!   JSON values, comments ─▶ YamlWriter ─▶ text that is parsed to the same values
//! ```

mod writer;

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Location;

pub use serde_saphyr::Spanned;
pub use writer::YamlWriter;

/// A position in a document, displayed as `LINE:COLUMN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, counted from 1.
    pub line: u64,
    /// The column, counted from 1.
    pub column: u64,
}

impl Position {
    /// The beginning of a document.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        Self {
            line: location.line().max(1),
            column: location.column().max(1),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and its position.
#[derive(Debug)]
pub struct Node {
    /// The position of the value.
    pub at: Position,
    /// The value.
    pub value: Yaml,
    /// The range of the value's text in the document, in bytes.
    text: Range<usize>,
}

/// A value of the JSON schema of YAML 1.2. Maps are in the author's order.
#[derive(Debug)]
pub enum Yaml {
    /// An empty value or `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// An integer of at most 64 bits.
    Integer(i64),
    /// Any other number, with the digits as written.
    Decimal(Number),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in which no key occurs twice.
    Map(Vec<(Key, Node)>),
}

/// A key of a map and its position.
#[derive(Debug)]
pub struct Key {
    /// The position of the key.
    pub at: Position,
    /// The key itself.
    pub name: String,
}

/// The error for a text that is not YAML.
#[derive(Debug)]
pub struct NotYaml {
    /// The position of the error.
    pub at: Position,
    /// The message of the parser, without the position.
    pub problem: String,
}

/// The order of keys in JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// The order in the document.
    Author,
    /// Sorted by key, for a digest.
    Sorted,
}

/// Parses one document as a `T`. Values of type [`Spanned`] have their positions.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, NotYaml> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| NotYaml {
        at: error.location().map_or(Position::START, Position::from),
        problem: without_place(&error.to_string()),
    })
}

impl Node {
    /// Parses one document.
    pub fn parse(text: &str) -> Result<Self, NotYaml> {
        let mut node: Self = parse(text)?;
        node.restore_digits(text);
        Ok(node)
    }

    /// Restores the digits that each number has in `document`, because the parser reads numbers as doubles.
    fn restore_digits(&mut self, document: &str) {
        match &mut self.value {
            Yaml::Decimal(number) => {
                let written = document.get(self.text.clone());
                let written = written.and_then(|text| text.trim().parse::<Number>().ok());
                if let Some(written) = written.filter(|it| it.as_f64() == number.as_f64()) {
                    *number = written;
                }
            }
            Yaml::List(items) => items
                .iter_mut()
                .for_each(|item| item.restore_digits(document)),
            Yaml::Map(entries) => entries
                .iter_mut()
                .for_each(|(_, node)| node.restore_digits(document)),
            Yaml::Null | Yaml::Boolean(_) | Yaml::Integer(_) | Yaml::Text(_) => {}
        }
    }

    /// Returns the kind of the value, for display.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Yaml::Null => "empty",
            Yaml::Boolean(_) => "a boolean",
            Yaml::Integer(_) | Yaml::Decimal(_) => "a number",
            Yaml::Text(_) => "a string",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a map",
        }
    }

    /// Returns the value under `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Yaml::Map(entries) => entries
                .iter()
                .find(|(at, _)| at.name == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// Returns the node at a JSON pointer, or the last existing node on the path to it.
    pub fn follow(&self, pointer: &str) -> &Node {
        pointer
            .split('/')
            .skip(1)
            .try_fold(self, |node, step| {
                let step = step.replace("~1", "/").replace("~0", "~");
                let next = match &node.value {
                    Yaml::List(items) => step.parse().ok().and_then(|at: usize| items.get(at)),
                    _ => node.get(&step),
                };
                next.ok_or(node)
            })
            .unwrap_or_else(|last| last)
    }

    /// Returns the position of the last existing key or item on `path`, or `None` if even the first does not exist.
    pub fn position_of<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Option<Position> {
        let (mut here, mut found) = (self, None);
        for step in path {
            let next = match &here.value {
                Yaml::Map(entries) => entries
                    .iter()
                    .find(|(key, _)| key.name == step)
                    .map(|(key, node)| (key.at, node)),
                Yaml::List(items) => step
                    .parse()
                    .ok()
                    .and_then(|at: usize| items.get(at))
                    .map(|node| (node.at, node)),
                _ => None,
            };
            let Some((at, node)) = next else { break };
            (here, found) = (node, Some(at));
        }
        found
    }

    /// Returns the value as JSON text.
    pub fn to_json(&self, order: KeyOrder) -> String {
        let mut text = String::new();
        self.write_json(order, &mut text);
        text
    }

    fn write_json(&self, order: KeyOrder, out: &mut String) {
        match &self.value {
            Yaml::List(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write_json(order, out);
                }
                out.push(']');
            }
            Yaml::Map(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                if order == KeyOrder::Sorted {
                    entries.sort_unstable_by(|(a, _), (b, _)| a.name.cmp(&b.name));
                }
                out.push('{');
                for (position, (key, node)) in entries.into_iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(key.name.as_str()).to_string());
                    out.push(':');
                    node.write_json(order, out);
                }
                out.push('}');
            }
            _ => out.push_str(&self.to_value().to_string()),
        }
    }

    /// Converts the value to a JSON value.
    pub fn to_value(&self) -> Value {
        match &self.value {
            Yaml::Null => Value::Null,
            Yaml::Boolean(truth) => Value::Bool(*truth),
            Yaml::Integer(number) => Value::from(*number),
            Yaml::Decimal(number) => Value::Number(number.clone()),
            Yaml::Text(text) => Value::from(text.as_str()),
            Yaml::List(items) => items.iter().map(Self::to_value).collect(),
            Yaml::Map(entries) => entries
                .iter()
                .map(|(key, node)| (key.name.clone(), node.to_value()))
                .collect(),
        }
    }
}

/// Returns the message of the parser without the position, which is displayed in front of it.
fn without_place(message: &str) -> String {
    let message = match message.split_once(": ") {
        Some((place, rest)) if place.contains("line ") && place.contains("column ") => rest,
        _ => message,
    };
    let message = message.split(" at line ").next().unwrap_or(message);
    message.trim_end_matches(',').to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Yaml>::deserialize(deserializer)?;
        let span = spanned.defined.span();
        let start = span.byte_offset().and_then(|at| usize::try_from(at).ok());
        let length = span.byte_len().and_then(|it| usize::try_from(it).ok());
        let (start, length) = start.zip(length).unwrap_or_default();
        Ok(Self {
            at: Position::from(spanned.referenced),
            value: spanned.value,
            text: start..start.saturating_add(length),
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            at: Position::from(spanned.referenced),
            name: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Yaml, E> {
        Ok(Yaml::Boolean(truth))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Yaml, E> {
        Ok(Yaml::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Yaml, E> {
        Ok(i64::try_from(number).map_or_else(|_| Yaml::Decimal(number.into()), Yaml::Integer))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Yaml, E> {
        let number = Number::from_f64(number);
        number
            .map(Yaml::Decimal)
            .ok_or_else(|| E::custom("the number is not finite"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Yaml::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_key_knows_its_place() {
        let node = Node::parse("a: 1\nlist:\n  - x\n  - { deep: yes }\nempty:\n").unwrap();
        let Yaml::Map(entries) = &node.value else {
            panic!("not a map");
        };
        assert_eq!(entries[1].0.at, Position { line: 2, column: 1 });
        assert_eq!(node.follow("/list/0").at, Position { line: 3, column: 5 });
        assert_eq!(
            node.follow("/list/1/deep").at,
            Position {
                line: 4,
                column: 13
            }
        );
        assert_eq!(node.follow("/list/1/deep").kind(), "a string");
        assert_eq!(node.follow("/empty").kind(), "empty");
    }

    #[test]
    fn a_path_leads_to_the_last_key_that_there_is() {
        let text = "gateway:\n  limits: { body_bytes: 5 }\n  hosts:\n    - a\n    - b\n";
        let node = Node::parse(text).unwrap();
        for (path, at) in [
            ("gateway", Some("1:1")),
            ("gateway.limits.body_bytes", Some("2:13")),
            ("gateway.hosts.1", Some("5:7")),
            ("gateway.limits.other", Some("2:3")),
            ("policy", None),
        ] {
            let found = node.position_of(path.split('.')).map(|at| at.to_string());
            assert_eq!(found.as_deref(), at, "{path}");
        }
    }

    #[test]
    fn json_keeps_the_authors_order_or_sorts_for_a_digest() {
        let node = Node::parse("b: {z: 1, a: [1.5, null, \"q\\\"\"]}\na: true\n").unwrap();
        assert_eq!(
            node.to_json(KeyOrder::Author),
            r#"{"b":{"z":1,"a":[1.5,null,"q\""]},"a":true}"#
        );
        assert_eq!(
            node.to_json(KeyOrder::Sorted),
            r#"{"a":true,"b":{"a":[1.5,null,"q\""],"z":1}}"#
        );
    }

    #[test]
    fn numbers_keep_their_digits() {
        let node = Node::parse(
            "é: [99999999999999.99, 0.10, -12345678901234567890123, 18446744073709551615]\nb: &x 1.50\nc: *x\n",
        );
        assert_eq!(
            node.unwrap().to_json(KeyOrder::Author),
            r#"{"é":[99999999999999.99,0.10,-12345678901234567890123,18446744073709551615],"b":1.50,"c":1.50}"#
        );
    }

    #[test]
    fn what_is_not_yaml_says_where() {
        for (text, line) in [
            ("a: [1, 2\nb: 3\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: .nan\n", 1),
            ("a: *nothing\n", 1),
        ] {
            let error = Node::parse(text).unwrap_err();
            assert_eq!(error.at.line, line, "{text:?}: {error:?}");
            assert!(!error.problem.contains("line "), "{error:?}");
        }
    }
}
