//! Selectors of values in a document: a JSON Pointer (RFC 6901), or a JSONPath (RFC 9535) if the text begins with `$`.

use std::fmt;

use serde_json::Value;
use serde_json_path::JsonPath;
use wardgate_yaml::Node;

use crate::fault::Faults;

#[derive(Debug, Clone)]
pub enum Selector {
    Pointer(String),
    Path {
        /// The path as it is written.
        text: String,
        path: JsonPath,
        /// The leading part of the path that selects a single location, for example `$.items` of `$.items[?@.open]`. Only
        /// the rest can select nothing at an existing location.
        stem: JsonPath,
    },
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(text) | Self::Path { text, .. } => f.write_str(text),
        }
    }
}

impl Selector {
    pub(crate) fn from_node(node: &Node, what: &str, faults: &mut Faults) -> Option<Self> {
        let text = faults.text(node, what)?;
        if text.starts_with('/') {
            return Some(Self::Pointer(text.to_owned()));
        }
        match JsonPath::parse(text).and_then(|path| Ok((path, JsonPath::parse(stem(text))?))) {
            Ok((path, stem)) => Some(Self::Path {
                text: text.to_owned(),
                path,
                stem,
            }),
            Err(error) => {
                faults.add(
                    node.at,
                    format!("`{what}` is neither a JSON Pointer nor a JSONPath: {error}"),
                    "write for example /items or $.items[*]",
                );
                None
            }
        }
    }

    /// Returns the first selected value.
    pub fn first<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Pointer(pointer) => document.pointer(pointer),
            Self::Path { path, .. } => path.query(document).first(),
        }
    }

    /// Returns the selected rows: the elements of the only selected value if it is a list, and otherwise every selected
    /// value. Returns `None` if the location does not exist. A JSONPath whose filter, slice or `*` selects nothing at an
    /// existing location selects no rows.
    pub fn rows(&self, document: &Value) -> Option<Vec<Value>> {
        let found: Vec<Value> = match self {
            Self::Pointer(pointer) => vec![document.pointer(pointer)?.clone()],
            Self::Path { path, stem, .. } => {
                let found = path.query(document).all();
                if found.is_empty() && stem.query(document).is_empty() {
                    return None;
                }
                found.into_iter().cloned().collect()
            }
        };
        Some(match <[Value; 1]>::try_from(found) {
            Ok([Value::Array(items)]) => items,
            Ok([only]) => vec![only],
            Err(several) => several,
        })
    }
}

/// Returns the longest prefix of a JSONPath that consists of single names and positions. A path that has nothing else is
/// returned whole.
fn stem(path: &str) -> &str {
    let mut end = path.find('$').map_or(0, |root| root + 1);
    loop {
        let rest = &path[end..];
        let length = segment(rest.trim_start()).map(|length| {
            let blank = rest.len() - rest.trim_start().len();
            blank + length
        });
        match length {
            Some(length) => end += length,
            None => return &path[..end],
        }
    }
}

/// Returns the length of the name or position at the beginning of `path`: `.name`, `['name']`, `["name"]` or `[0]`.
fn segment(path: &str) -> Option<usize> {
    if let Some(name) = path.strip_prefix('.') {
        let end = name.find(|c: char| !(c == '_' || c.is_alphanumeric()));
        let length = end.unwrap_or(name.len());
        return (length > 0).then_some(1 + length);
    }
    let inside = path.strip_prefix('[')?;
    let quote = inside.trim_start().chars().next()?;
    let blank = inside.len() - inside.trim_start().len();
    let length = if matches!(quote, '\'' | '"') {
        let name = &inside[blank + 1..];
        let end = name.find([quote, '\\'])?;
        name[end..]
            .starts_with(quote)
            .then_some(blank + 1 + end + 1)?
    } else {
        let digits = &inside[blank..];
        let end = digits.find(|c: char| !c.is_ascii_digit())?;
        (end > 0).then_some(blank + end)?
    };
    let after = &inside[length..];
    let close = after.len() - after.trim_start().len();
    after[close..]
        .starts_with(']')
        .then_some(1 + length + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_of_a_path_ends_where_nothing_may_be_found() {
        for (path, expected) in [
            ("$.items[*]", "$.items"),
            ("$.a.b", "$.a.b"),
            ("$['a b'][0][?@.open]", "$['a b'][0]"),
            ("$ [ \"x\" ] .y[1:2]", "$ [ \"x\" ] .y"),
            ("$..items", "$"),
            ("$[*]", "$"),
            ("$['a','b']", "$"),
            ("$['it\\'s']", "$"),
            ("$[-1]", "$"),
        ] {
            assert_eq!(stem(path), expected, "{path}");
            assert!(JsonPath::parse(stem(path)).is_ok());
        }
    }
}
