//! The client capabilities (MCP `ClientCapabilities`) that a tool needs.

use serde_json::{Map, Value};

/// The capabilities without which a client is not offered a tool: a JSON object as in `data.requiredCapabilities` of MCP
/// error -32021, `{"elicitation":{"url":{}}}` for example. `{"elicitation":{}}` is satisfied by every mode of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredCapabilities(Map<String, Value>);

impl RequiredCapabilities {
    /// Adds the capability at `path`, such as `["sampling", "tools"]`.
    pub fn add(&mut self, path: &[&str]) {
        let mut members = &mut self.0;
        for name in path {
            let member = members.entry(*name).or_insert_with(|| Map::new().into());
            let Value::Object(inner) = member else {
                return;
            };
            members = inner;
        }
    }

    /// Whether every client is offered the tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `name` is among them at the top level, with whatever it has inside.
    #[must_use]
    pub fn contain(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether a client with the capabilities `declared`, a JSON object, has all of these. `None` and what is no object
    /// declare nothing.
    #[must_use]
    pub fn are_declared(&self, declared: Option<&str>) -> bool {
        if self.is_empty() {
            return true;
        }
        let declared = declared.and_then(|json| serde_json::from_str(json).ok());
        declared.is_some_and(|declared: Map<String, Value>| is_within(&self.0, &declared))
    }

    /// The JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// Reads what [`Self::to_json`] wrote; nothing at all requires nothing. `None` if it is anything else.
    #[must_use]
    pub fn read(json: &[u8]) -> Option<Self> {
        if json.is_empty() {
            return Some(Self::default());
        }
        let members: Map<String, Value> = serde_json::from_slice(json).ok()?;
        members
            .values()
            .all(Value::is_object)
            .then_some(Self(members))
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
        let mut required = RequiredCapabilities::default();
        assert_eq!(RequiredCapabilities::read(b""), Some(required.clone()));
        required.add(&["roots"]);
        let read = RequiredCapabilities::read(required.to_json().as_bytes());
        assert_eq!(read, Some(required));
        for odd in ["7", "{", r#"{"roots":true}"#] {
            assert_eq!(RequiredCapabilities::read(odd.as_bytes()), None, "{odd}");
        }
    }
}
