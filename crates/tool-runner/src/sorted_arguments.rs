//! Arguments as a text that is the same for the same arguments.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The arguments as JSON, in the order of their names.
pub(crate) fn sorted(arguments: &Map<String, Value>) -> String {
    let sorted: BTreeMap<_, _> = arguments.iter().collect();
    // It always has a JSON form: its members are named by texts.
    serde_json::to_string(&sorted).unwrap_or_default()
}
