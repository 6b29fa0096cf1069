//! A canonical text form of arguments, which is equal for equal arguments.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Returns the arguments as JSON, sorted by name.
pub(crate) fn to_sorted_json(arguments: &Map<String, Value>) -> String {
    let sorted: BTreeMap<_, _> = arguments.iter().collect();
    // Serialization cannot fail because all keys are strings.
    serde_json::to_string(&sorted).unwrap_or_default()
}
