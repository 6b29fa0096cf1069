//! Definitions for tests.

use serde_json::{Value, json};
use wardgate_mcp_client::CanonicalDefinition;

/// Returns a tool that has every kind of member.
pub(super) fn tool() -> Value {
    json!({
        "name": "find_orders",
        "title": "Find orders",
        "description": "Finds orders by customer, newest first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "customer": { "type": "string", "description": "Customer number", "maxLength": 12, "pattern": "^C" },
                "state": { "type": "string", "enum": ["open", "sent", "paid"], "default": "open" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
                "tags": { "type": "array", "items": { "type": "string", "maxLength": 20 } },
            },
            "required": ["customer"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": { "count": { "type": "integer", "description": "How many" } },
        },
        "annotations": { "title": "Orders", "readOnlyHint": true, "openWorldHint": false },
        "icons": [{ "src": "https://cdn.example/i.png", "mimeType": "image/png" }],
        "_meta": { "ui": { "resourceUri": "ui://orders" } },
    })
}

/// Returns [`tool`] with the value at `pointer` replaced, where `Null` removes the member.
pub(super) fn with(pointer: &str, value: Value) -> Value {
    let mut tool = tool();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = tool.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(name).unwrap();
    } else {
        parent.insert(name.to_owned(), value);
    }
    tool
}

pub(super) fn definition(tool: &Value) -> CanonicalDefinition {
    CanonicalDefinition::parse_tool(&tool.to_string()).unwrap()
}
