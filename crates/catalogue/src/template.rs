//! Templates: texts and JSON with `{argument}` placeholders.
//!
//! ```text
//!   "Bearer {token}"        a text: the value as text, encoded for its position
//!   { size: "{size}" }      JSON: a string that is one placeholder becomes the value with its type
//!   {table:identifier}      only letters, digits and `_`; other values are rejected
//!   {name:sql}              a quoted SQL string literal
//!   {{ and }}               literal braces
//! ```

use std::borrow::Cow;

use serde_json::{Map, Value};
use wardgate_yaml::{Node, Position, Yaml};

/// A value that is not allowed for its placeholder. The message names the argument, never the value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{argument}` {problem}")]
pub struct UnfitValue {
    pub(crate) argument: String,
    pub(crate) problem: &'static str,
}

/// The constraint on the value of a placeholder, or its conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Any value, as text.
    Plain,
    /// A name: `[A-Za-z_][A-Za-z0-9_]*`.
    Identifier,
    /// A text literal of SQL.
    Sql,
}

/// A placeholder, written `{name}` or `{name:filter}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    pub(crate) name: String,
    pub(crate) filter: Filter,
}

/// A text whose placeholders are filled in from the values of a call.
#[derive(Debug, Clone)]
pub struct Template {
    at: Position,
    pieces: Vec<TemplatePart>,
}

#[derive(Debug, Clone)]
enum TemplatePart {
    Text(String),
    Place(Placeholder),
}

impl Template {
    /// Parses `text`. Braces without a name between them are plain text.
    pub(crate) fn parse(text: &str, at: Position) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(['{', '}']) {
            plain.push_str(&rest[..start]);
            rest = &rest[start..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push_str(&rest[..1]);
                rest = &rest[2..];
            } else if let Some((place, after)) = place(rest) {
                if !plain.is_empty() {
                    pieces.push(TemplatePart::Text(std::mem::take(&mut plain)));
                }
                pieces.push(TemplatePart::Place(place));
                rest = after;
            } else {
                plain.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(TemplatePart::Text(plain));
        }
        Self { at, pieces }
    }

    pub(crate) fn at(&self) -> Position {
        self.at
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePart::Place(place) => Some(place),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the placeholder if it is the whole text.
    pub(crate) fn only_place(&self) -> Option<&Placeholder> {
        match self.pieces.as_slice() {
            [TemplatePart::Place(place)] => Some(place),
            _ => None,
        }
    }

    /// Returns the text before the first placeholder.
    pub(crate) fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(TemplatePart::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns the text for one call, with each value encoded. A missing argument is replaced by nothing.
    pub(crate) fn fill(
        &self,
        values: &Map<String, Value>,
        encode: impl for<'v> Fn(&'v str) -> Cow<'v, str>,
    ) -> Result<String, UnfitValue> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Place(place) => {
                    if let Some(text) = place.text(values)? {
                        filled.push_str(&encode(&text));
                    }
                }
            }
        }
        Ok(filled)
    }

    /// Returns the text for one call like [`Self::fill`], without encoding the values.
    pub fn fill_plain(&self, values: &Map<String, Value>) -> Result<String, UnfitValue> {
        self.fill(values, |text| Cow::Borrowed(text))
    }
}

impl Placeholder {
    /// Returns the filtered value as text, or `None` if it is missing or null.
    pub(crate) fn text<'v>(
        &self,
        values: &'v Map<String, Value>,
    ) -> Result<Option<Cow<'v, str>>, UnfitValue> {
        let text: Cow<'v, str> = match values.get(&self.name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.as_str().into(),
            Some(other) => other.to_string().into(),
        };
        match self.filter {
            Filter::Plain => Ok(Some(text)),
            Filter::Identifier if is_identifier(&text) => Ok(Some(text)),
            Filter::Identifier => Err(UnfitValue {
                argument: self.name.clone(),
                problem: "must be a name of letters, digits and `_` that does not begin with a digit",
            }),
            Filter::Sql => Ok(Some(format!("'{}'", text.replace('\'', "''")).into())),
        }
    }
}

/// Returns whether `text` is an SQL identifier without quotes: a letter or `_`, then letters, digits and `_`.
pub fn is_identifier(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_start) && text.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

/// Parses the placeholder at the beginning of `text`, and returns it and the rest.
fn place(text: &str) -> Option<(Placeholder, &str)> {
    let (inside, after) = text.strip_prefix('{')?.split_once('}')?;
    let (name, filter) = match inside.split_once(':') {
        None => (inside, Filter::Plain),
        Some((name, "identifier")) => (name, Filter::Identifier),
        Some((name, "sql")) => (name, Filter::Sql),
        Some(_) => return None,
    };
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let place = Placeholder {
        name: name.to_owned(),
        filter,
    };
    is_name.then_some((place, after))
}

/// JSON whose strings are templates.
#[derive(Debug, Clone)]
pub enum JsonTemplate {
    Fixed(Value),
    /// A placeholder that is a whole string. It is replaced by the value with its type.
    Place(Placeholder),
    Text(Template),
    List(Vec<JsonTemplate>),
    Map(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(crate) fn from_node(node: &Node) -> Self {
        match &node.value {
            Yaml::Text(text) => {
                let template = Template::parse(text, node.at);
                match template.only_place() {
                    Some(place) if place.filter == Filter::Plain => Self::Place(place.clone()),
                    _ => Self::Text(template),
                }
            }
            Yaml::List(items) => Self::List(items.iter().map(Self::from_node).collect()),
            Yaml::Map(entries) => Self::Map(
                entries
                    .iter()
                    .map(|(key, node)| (key.name.clone(), Self::from_node(node)))
                    .collect(),
            ),
            _ => Self::Fixed(node.to_value()),
        }
    }

    /// Returns all placeholders.
    pub(crate) fn places(&self) -> Vec<&Placeholder> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Place(place) => vec![place],
            Self::Text(template) => template.places().collect(),
            Self::List(items) => items.iter().flat_map(Self::places).collect(),
            Self::Map(members) => members.iter().flat_map(|(_, it)| it.places()).collect(),
        }
    }

    /// Returns the JSON for one call, or `None` if the template is one placeholder whose argument is missing. A missing
    /// argument removes its member or element.
    pub(crate) fn fill(&self, values: &Map<String, Value>) -> Result<Option<Value>, UnfitValue> {
        Ok(Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Place(place) => match values.get(&place.name) {
                None => return Ok(None),
                Some(value) => value.clone(),
            },
            Self::Text(template) => Value::String(template.fill_plain(values)?),
            Self::List(items) => {
                let mut filled = Vec::with_capacity(items.len());
                for item in items {
                    filled.extend(item.fill(values)?);
                }
                Value::Array(filled)
            }
            Self::Map(members) => {
                let mut filled = Map::with_capacity(members.len());
                for (name, member) in members {
                    if let Some(value) = member.fill(values)? {
                        filled.insert(name.clone(), value);
                    }
                }
                Value::Object(filled)
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values() -> Map<String, Value> {
        let values = json!({"a": "{n}", "n": 7, "list": [1, "x"], "table": "orders", "evil": "x; --", "quote": "it's"});
        values.as_object().unwrap().clone()
    }

    #[test]
    fn arguments_are_filled_in_and_never_read_again() {
        let template = Template::parse("{a} {} {b c} {n}, {missing}! {{n}} {", Position::START);
        assert_eq!(
            template.fill_plain(&values()).unwrap(),
            "{n} {} {b c} 7, ! {n} {"
        );
        let names: Vec<_> = template.places().map(|place| place.name.as_str()).collect();
        assert_eq!(names, ["a", "n", "missing"]);
    }

    #[test]
    fn a_filter_refuses_or_quotes() {
        let fill = |text| Template::parse(text, Position::START).fill_plain(&values());
        assert_eq!(fill("FROM {table:identifier}").unwrap(), "FROM orders");
        assert_eq!(fill("= {quote:sql}").unwrap(), "= 'it''s'");
        let refused = fill("FROM {evil:identifier}").unwrap_err();
        assert_eq!(refused.argument, "evil");
        assert!(!refused.to_string().contains("x; --"), "{refused}");
    }

    #[test]
    fn json_keeps_the_types_of_its_placeholders() {
        let node = Node::parse(
            "{ n: '{n}', text: 'n={n}', list: ['{list}', '{missing}', fixed], gone: '{missing}', deep: { a: '{a}', k: 1.5 } }",
        )
        .unwrap();
        let template = JsonTemplate::from_node(&node);
        assert_eq!(
            template.fill(&values()).unwrap().unwrap(),
            json!({"n": 7, "text": "n=7", "list": [[1, "x"], "fixed"], "deep": {"a": "{n}", "k": 1.5}})
        );
        assert_eq!(template.places().len(), 6);
    }
}
