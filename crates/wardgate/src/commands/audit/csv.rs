//! Records as comma-separated values (RFC 4180), for spreadsheets.

use std::borrow::Cow;

use serde_json::Value;

/// Header line, without its line feed.
pub(super) const HEADING: &str =
    "sequence,time,event,user,action,name,status,reason,rows,rows_withheld,phi,address\r";

/// Formats one record as a line, without its line feed.
pub(super) fn row(record: &Value) -> String {
    let rows = if record["event"] == "memory_access" {
        ["messages", "withheld"]
    } else {
        ["rows", "rows_withheld"]
    };
    let [rows, withheld] = rows;
    let names = [
        "sequence",
        "timestamp",
        "event",
        "user",
        "action",
        "record_id",
        "status",
        "reason",
        rows,
        withheld,
        "is_phi_access",
        "ip_address",
    ];
    let mut line = names.map(|name| field(&record[name])).join(",");
    line.push('\r');
    line
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quote(text).into_owned(),
        other => other.to_string(),
    }
}

/// Quotes a text as a field. A text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe, which
/// makes it plain text, because callers choose some of these words.
fn quote(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let is_plain = !is_formula && !text.contains([',', '"', '\r', '\n']);
    if is_plain {
        return Cow::Borrowed(text);
    }
    let mark = if is_formula { "'" } else { "" };
    Cow::Owned(format!("\"{mark}{}\"", text.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_one_line_with_a_field_for_each_heading() {
        let record = json!({
            "sequence": 7, "timestamp": "2025-11-11T13:50:00.000042Z", "event": "outcome", "user": "dr.yenji",
            "action": "LLM_TOOL_CALL", "record_id": "get_medical_records", "status": "denied", "reason": "not_permitted",
            "rows": 0, "rows_withheld": 0, "is_phi_access": false, "ip_address": null,
        });
        let line = row(&record);
        assert_eq!(
            line,
            "7,2025-11-11T13:50:00.000042Z,outcome,dr.yenji,LLM_TOOL_CALL,get_medical_records,denied,not_permitted,0,0,false,\r"
        );
        assert_eq!(line.matches(',').count(), HEADING.matches(',').count());
        let memory = json!({ "event": "memory_access", "messages": 3, "withheld": 1 });
        assert_eq!(row(&memory), ",,memory_access,,,,,,3,1,,\r");
    }

    #[test]
    fn what_a_caller_chose_neither_ends_a_field_nor_computes_anything() {
        for (text, shown) in [
            ("get_shifts", "get_shifts"),
            ("a,b", "\"a,b\""),
            ("say \"x\"\r\n", "\"say \"\"x\"\"\r\n\""),
            ("=HYPERLINK(1)", "\"'=HYPERLINK(1)\""),
            ("@sum", "\"'@sum\""),
            ("-1", "\"'-1\""),
        ] {
            assert_eq!(quote(text), shown);
        }
    }
}
