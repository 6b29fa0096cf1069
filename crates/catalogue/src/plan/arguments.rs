//! The arguments of a call that are sent to its source.

use serde_json::{Map, Value, json};
use wardgate_yaml::Node;

use crate::scope::Scope;
use crate::template::{JsonTemplate, UnfitValue};

/// The arguments of a call that are sent to its source.
#[derive(Debug, Clone)]
pub enum SentArguments {
    /// A configured template, filled with the arguments of the call.
    Template(JsonTemplate),
    /// All arguments of the call except the derived ones.
    OfCall {
        /// The names of derived values, which are not sent.
        derived: Vec<String>,
    },
}

impl SentArguments {
    pub(crate) fn from_node(node: Option<&Node>, scope: &mut Scope<'_, '_>) -> Self {
        match node {
            Some(node) => Self::Template(scope.json_template(node)),
            None => Self::OfCall {
                derived: scope.derive.names().map(str::to_owned).collect(),
            },
        }
    }

    /// Returns the JSON for one call.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<Value, UnfitValue> {
        match self {
            Self::Template(template) => Ok(template.fill(values)?.unwrap_or_else(|| json!({}))),
            Self::OfCall { derived } => {
                let own = values.iter().filter(|(name, _)| !derived.contains(name));
                Ok(own
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect())
            }
        }
    }
}
