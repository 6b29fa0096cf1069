//! Conversion of elicitation requests to protocol versions before 2026-07-28.

use serde_json::{Map, Value};
use wardgate_domain::Ambient;
use wardgate_mcp::Version;

/// Converts `request` for clients of `version`. Returns `None` if the version cannot express the form.
pub(super) fn for_version(request: &str, version: Version, ambient: &Ambient) -> Option<String> {
    let mut request: Value = serde_json::from_str(request).ok()?;
    let params = request.get_mut("params")?.as_object_mut()?;
    if version.has_url_elicitation() {
        // 2025-11-25 announces the completion of a URL elicitation by an id, which later versions do not have.
        if params.get("mode").is_some_and(|mode| mode == "url") {
            let id = params.entry("elicitationId");
            id.or_insert_with(|| {
                let random = u128::from_be_bytes(ambient.random());
                format!("{random:032x}").into()
            });
        }
        return Some(request.to_string());
    }
    params.remove("mode");
    let fields = params
        .get_mut("requestedSchema")
        .and_then(|schema| schema.get_mut("properties"))
        .and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(Map::values_mut) {
        simplify(field.as_object_mut()?)?;
    }
    Some(request.to_string())
}

/// Reduces a form field to what 2025-06-18 allows: the labels of choices are in the separate list `enumNames`, multiple choice
/// does not exist, and only a boolean has a default. Returns `None` if the field cannot be reduced.
fn simplify(field: &mut Map<String, Value>) -> Option<()> {
    if field.get("type")? == "array" {
        return None;
    }
    if field["type"] != "boolean" {
        field.remove("default");
    }
    let Some(choices) = field.remove("oneOf") else {
        return Some(());
    };
    let choices = choices.as_array()?;
    let each = |member| {
        let values = choices.iter().map(|choice| choice.get(member).cloned());
        values.collect::<Option<Vec<_>>>()
    };
    let (values, names) = (each("const")?, each("title"));
    field.insert("enum".to_owned(), values.into());
    if let Some(names) = names {
        field.insert("enumNames".to_owned(), names.into());
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn for_version(request: &str, version: Version) -> Option<String> {
        super::for_version(request, version, &Ambient::system())
    }

    fn form_request(fields: &Value) -> String {
        let params = json!({
            "mode": "form", "message": "m",
            "requestedSchema": { "type": "object", "properties": fields },
        });
        json!({ "method": "elicitation/create", "params": params }).to_string()
    }

    #[test]
    fn a_form_has_only_fields_that_its_version_knows() {
        let fields = json!({
            "a": { "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }], "default": "r" },
            "b": { "type": "boolean", "default": true },
            "c": { "type": "integer", "minimum": 1, "default": 2 },
            "d": { "type": "string", "enum": ["x"] },
        });
        let pending = form_request(&fields);
        assert_eq!(
            for_version(&pending, Version::V2025_11_25).unwrap(),
            pending
        );
        let older = for_version(&pending, Version::V2025_06_18).unwrap();
        let older: Value = serde_json::from_str(&older).unwrap();
        assert!(older["params"].get("mode").is_none());
        assert_eq!(
            older["params"]["requestedSchema"]["properties"],
            json!({
                "a": { "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] },
                "b": { "type": "boolean", "default": true },
                "c": { "type": "integer", "minimum": 1 },
                "d": { "type": "string", "enum": ["x"] },
            })
        );
    }

    #[test]
    fn a_page_to_visit_has_an_id_where_the_version_wants_one() {
        let visit = |more: &str| {
            format!(
                r#"{{"method":"elicitation/create","params":{{"mode":"url","url":"u"{more}}}}}"#
            )
        };
        let own = visit(r#","elicitationId":"own""#);
        assert_eq!(for_version(&own, Version::V2025_11_25).unwrap(), own);
        let minted = for_version(&visit(""), Version::V2025_11_25).unwrap();
        let minted: Value = serde_json::from_str(&minted).unwrap();
        assert_eq!(
            minted["params"]["elicitationId"].as_str().unwrap().len(),
            32
        );
    }

    #[test]
    fn several_choices_in_one_field_are_beyond_older_versions() {
        let many = json!({ "a": { "type": "array", "items": { "enum": ["x"] } } });
        assert_eq!(
            for_version(&form_request(&many), Version::V2025_06_18),
            None
        );
        assert!(for_version(&form_request(&many), Version::V2025_11_25).is_some());
    }
}
