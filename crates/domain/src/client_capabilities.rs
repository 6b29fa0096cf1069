//! The client capabilities (MCP `ClientCapabilities`) that a tool needs.

use serde_json::{Map, Value};

/// The capabilities that a client must declare to be offered a tool: all of one set, and one of several alternatives.
/// Each is a JSON object as in `data.requiredCapabilities` of MCP error -32021, for example
/// `{"elicitation":{"url":{}}}`. `{"elicitation":{}}` is satisfied by every mode of elicitation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredCapabilities {
    needed: Map<String, Value>,
    /// Alternatives of which the client must declare one; no such requirement if empty.
    alternatives: Vec<Map<String, Value>>,
}

impl RequiredCapabilities {
    /// Adds the capability at `path`, such as `["sampling", "tools"]`.
    pub fn add(&mut self, path: &[&str]) {
        insert(&mut self.needed, path);
    }

    /// Adds the capability at `path` to the alternatives.
    pub fn add_alternative(&mut self, path: &[&str]) {
        let mut alternative = Map::new();
        insert(&mut alternative, path);
        self.alternatives.push(alternative);
    }

    /// Returns whether nothing is required, so that every client is offered the tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needed.is_empty() && self.alternatives.is_empty()
    }

    /// Returns whether a capability with this top-level name is required or an alternative, whatever its members are.
    #[must_use]
    pub fn contain(&self, name: &str) -> bool {
        let mut all = self.alternatives.iter().chain([&self.needed]);
        all.any(|members| members.contains_key(name))
    }

    /// Returns whether the capabilities that a client declared, a JSON object, are sufficient. `None` and anything that
    /// is not an object count as no capabilities.
    #[must_use]
    pub fn are_declared(&self, declared: Option<&str>) -> bool {
        if self.is_empty() {
            return true;
        }
        let declared = declared.and_then(|json| serde_json::from_str(json).ok());
        let Some(declared): Option<Map<String, Value>> = declared else {
            return false;
        };
        let mut alternatives = self.alternatives.iter();
        is_within(&self.needed, &declared)
            && (self.alternatives.is_empty() || alternatives.any(|it| is_within(it, &declared)))
    }

    /// Returns a sufficient set of capabilities: the required ones and the first alternative.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut enough = self.needed.clone();
        enough.extend(self.alternatives.first().cloned().unwrap_or_default());
        Value::Object(enough).to_string()
    }

    /// Returns the required capabilities and the alternatives, each as a JSON object. The first is an empty string if
    /// no capability is required.
    #[must_use]
    pub fn to_wire(&self) -> (String, Vec<String>) {
        let json = |members: &Map<String, Value>| Value::Object(members.clone()).to_string();
        let needed = if self.needed.is_empty() {
            String::new()
        } else {
            json(&self.needed)
        };
        (needed, self.alternatives.iter().map(json).collect())
    }

    /// Parses the output of [`Self::to_wire`]. Returns `None` if the input is not of that form.
    #[must_use]
    pub fn from_wire<'j>(
        needed: &[u8],
        alternatives: impl IntoIterator<Item = &'j [u8]>,
    ) -> Option<Self> {
        let members = |json: &[u8]| -> Option<Map<String, Value>> {
            let members: Map<String, Value> = serde_json::from_slice(json).ok()?;
            members.values().all(Value::is_object).then_some(members)
        };
        Some(Self {
            needed: if needed.is_empty() {
                Map::new()
            } else {
                members(needed)?
            },
            alternatives: alternatives
                .into_iter()
                .map(members)
                .collect::<Option<_>>()?,
        })
    }
}

fn insert(mut members: &mut Map<String, Value>, path: &[&str]) {
    for name in path {
        let member = members.entry(*name).or_insert_with(|| Map::new().into());
        let Value::Object(inner) = member else {
            return;
        };
        members = inner;
    }
}

fn is_within(required: &Map<String, Value>, declared: &Map<String, Value>) -> bool {
    required.iter().all(|(name, inner)| {
        let declared = declared.get(name).and_then(Value::as_object);
        match (declared, inner.as_object()) {
            (Some(declared), Some(inner)) => is_within(inner, declared),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_must_have_declared_every_capability_and_each_part_of_it() {
        let mut required = RequiredCapabilities::default();
        assert!(required.is_empty() && required.are_declared(None));
        required.add(&["elicitation"]);
        required.add(&["sampling", "tools"]);
        assert_eq!(
            required.to_json(),
            r#"{"elicitation":{},"sampling":{"tools":{}}}"#
        );
        assert!(required.contain("sampling") && !required.contain("roots"));
        for (declared, is_enough) in [
            (None, false),
            (Some("7"), false),
            (Some(r#"{"elicitation":{}}"#), false),
            (Some(r#"{"elicitation":{},"sampling":{}}"#), false),
            (
                Some(r#"{"elicitation":null,"sampling":{"tools":{}}}"#),
                false,
            ),
            (
                Some(r#"{"elicitation":{"url":{}},"sampling":{"tools":{}},"x":1}"#),
                true,
            ),
        ] {
            assert_eq!(required.are_declared(declared), is_enough, "{declared:?}");
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        let read = |required: &RequiredCapabilities| {
            let (needed, alternatives) = required.to_wire();
            let alternatives = alternatives.iter().map(String::as_bytes);
            RequiredCapabilities::from_wire(needed.as_bytes(), alternatives).unwrap()
        };
        let mut required = RequiredCapabilities::default();
        assert_eq!(required.to_wire(), (String::new(), Vec::new()));
        assert_eq!(read(&required), required);
        required.add(&["roots"]);
        assert_eq!(read(&required), required);
        required.add_alternative(&["sampling", "tools"]);
        assert_eq!(read(&required), required);
        for odd in ["7", "{", r#"{"roots":true}"#] {
            let odd = odd.as_bytes();
            assert_eq!(RequiredCapabilities::from_wire(odd, []), None, "{odd:?}");
            assert_eq!(RequiredCapabilities::from_wire(b"", [odd]), None, "{odd:?}");
        }
    }

    #[test]
    fn of_alternatives_a_client_must_have_declared_one() {
        let mut required = RequiredCapabilities::default();
        required.add(&["roots"]);
        required.add_alternative(&["elicitation"]);
        required.add_alternative(&["sampling"]);
        assert_eq!(required.to_json(), r#"{"roots":{},"elicitation":{}}"#);
        assert!(required.contain("sampling") && required.contain("roots"));
        for (declared, is_enough) in [
            (r#"{"roots":{}}"#, false),
            (r#"{"elicitation":{},"sampling":{}}"#, false),
            (r#"{"elicitation":{},"roots":{}}"#, true),
            (r#"{"roots":{},"sampling":{}}"#, true),
        ] {
            assert_eq!(
                required.are_declared(Some(declared)),
                is_enough,
                "{declared}"
            );
        }
    }
}
