//! Where in a document something is: a JSON Pointer (RFC 6901), or a JSONPath (RFC 9535) when it begins with `$`.

use serde_json::Value;
use serde_json_path::JsonPath;

use super::fault::Faults;
use super::yaml::Node;

#[derive(Debug, Clone)]
pub(crate) enum Selector {
    Pointer(String),
    Path(JsonPath),
}

impl Selector {
    pub(crate) fn read(node: &Node, what: &str, faults: &mut Faults) -> Option<Self> {
        let text = faults.text(node, what)?;
        if text.starts_with('/') {
            return Some(Self::Pointer(text.to_owned()));
        }
        match JsonPath::parse(text) {
            Ok(path) => Some(Self::Path(path)),
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

    /// The first value it leads to.
    pub(crate) fn first<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Pointer(pointer) => document.pointer(pointer),
            Self::Path(path) => path.query(document).first(),
        }
    }

    /// The rows it leads to: the elements of the one list, or every value.
    pub(crate) fn rows(&self, document: &Value) -> Vec<Value> {
        let mut found = match self {
            Self::Pointer(pointer) => document.pointer(pointer).into_iter().cloned().collect(),
            Self::Path(path) => path.query(document).all().into_iter().cloned().collect(),
        };
        match <[Value; 1]>::try_from(found) {
            Ok([Value::Array(items)]) => return items,
            Ok([only]) => found = vec![only],
            Err(several) => found = several,
        }
        found
    }
}
