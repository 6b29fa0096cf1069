//! Formatting of JSON for human readers.

use serde_json::Value;

/// Formats `json` with indentation, so that white space in it cannot hide anything. Numbers keep their original text.
/// Returns the input unchanged if it is not JSON.
pub fn indent_json(json: &str) -> String {
    let value: Option<Value> = serde_json::from_str(json).ok();
    let text = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
    text.unwrap_or_else(|| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_hides_no_member_and_what_is_no_json_stays() {
        let spaced = format!("{{\"amount\":1.10,{}\"to\":\"b\"}}", "\n".repeat(99));
        assert_eq!(
            indent_json(&spaced),
            "{\n  \"amount\": 1.10,\n  \"to\": \"b\"\n}"
        );
        assert_eq!(indent_json("{\"a\":"), "{\"a\":");
    }
}
