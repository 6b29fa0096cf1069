//! What is sent of the arguments of a call.

use serde_json::{Map, Value, json};
use wardgate_yaml::Node;

use crate::scope::Scope;
use crate::template::{JsonTemplate, UnfitValue};

/// What is sent of the arguments of a call.
#[derive(Debug, Clone)]
pub enum SentArguments {
    /// What the tool's author wrote, with the arguments in it.
    Template(JsonTemplate),
    /// All of them but these, which are derived.
    OfCall {
        /// Names of values that only this program knows.
        derived: Vec<String>,
    },
}

impl SentArguments {
    pub(crate) fn read(node: Option<&Node>, scope: &mut Scope<'_, '_>) -> Self {
        match node {
            Some(node) => Self::Template(scope.json_template(node)),
            None => Self::OfCall {
                derived: scope.derive.names().map(str::to_owned).collect(),
            },
        }
    }

    /// The JSON for one call.
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
