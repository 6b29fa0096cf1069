//! The mark of tools that may write although their server hints that they only read.

use serde_json::Value;
use wardgate_json::Members;
use wardgate_mcp::meta::MAY_WRITE;

/// Returns the definition of a tool that may write with [`MAY_WRITE`] in its `_meta`, or `None` if the definition does not hint
/// that the tool only reads. The values of all other members stay as they are written.
pub(super) fn mark_definition(definition: &str) -> Option<String> {
    let Members(members) = serde_json::from_str::<Members<'_>>(definition).ok()?;
    let value_of = |wanted: &str| {
        let found = members.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.get())
    };
    let annotations: Value = serde_json::from_str(value_of("annotations")?).ok()?;
    if annotations["readOnlyHint"] != true {
        return None;
    }
    let meta = value_of("_meta");
    let meta = meta.and_then(|meta| serde_json::from_str::<Members<'_>>(meta).ok());
    let meta = meta.map_or_else(Vec::new, |Members(members)| members);
    let meta = meta.iter().filter(|(name, _)| name != MAY_WRITE);
    let mut meta: Vec<_> = meta
        .map(|(name, value)| member(name, value.get()))
        .collect();
    meta.push(member(MAY_WRITE, "true"));
    let others = members.iter().filter(|(name, _)| name != "_meta");
    let mut all: Vec<_> = others
        .map(|(name, value)| member(name, value.get()))
        .collect();
    all.push(member("_meta", &format!("{{{}}}", meta.join(","))));
    Some(format!("{{{}}}", all.join(",")))
}

fn member(name: &str, value: &str) -> String {
    format!("{}:{value}", Value::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hint_that_a_tool_only_reads_is_contradicted() {
        let hint = r#""annotations":{"readOnlyHint":true,"x":1.10}"#;
        let mark = r#""dev.wardgate/mayWrite":true"#;
        for (meta, expected) in [
            (String::new(), format!(r#","_meta":{{{mark}}}"#)),
            (
                r#","_meta":7"#.to_owned(),
                format!(r#","_meta":{{{mark}}}"#),
            ),
            (
                r#","_meta":{"ui":{"n":1.0}}"#.to_owned(),
                format!(r#","_meta":{{"ui":{{"n":1.0}},{mark}}}"#),
            ),
            (
                r#","_meta":{"dev.wardgate/mayWrite":false}"#.to_owned(),
                format!(r#","_meta":{{{mark}}}"#),
            ),
        ] {
            assert_eq!(
                mark_definition(&format!("{{{hint}{meta}}}")),
                Some(format!("{{{hint}{expected}}}"))
            );
        }
        for other in [
            "{}",
            r#"{"annotations":{}}"#,
            r#"{"annotations":{"readOnlyHint":false}}"#,
            r#"{"annotations":7}"#,
            "[]",
        ] {
            assert_eq!(mark_definition(other), None, "{other}");
        }
    }
}
