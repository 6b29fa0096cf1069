//! The shapes of calls in JSON.

use super::json::{self, Json};

/// The keys of the name, each with the possible keys of the arguments.
const SHAPES: [(&str, &[&str]); 7] = [
    (
        "name",
        &["arguments", "parameters", "args", "params", "input"],
    ),
    ("tool_name", &["parameters", "arguments", "args", "input"]),
    (
        "tool",
        &[
            "arguments",
            "parameters",
            "args",
            "params",
            "input",
            "tool_input",
        ],
    ),
    ("function_name", &["arguments", "parameters", "args"]),
    ("recipient_name", &["parameters"]),
    ("action", &["action_input"]),
    ("function", &["arguments", "parameters", "args"]),
];

/// A name and the arguments that belong to it.
#[derive(Debug)]
pub(super) struct ShapedCall {
    pub(super) name: String,
    /// The arguments as an object, or `None` if the model wrote none.
    pub(super) arguments: Option<Json>,
}

/// Returns the calls that a value represents, or `None` if it represents anything else. All items of a list must be calls.
pub(super) fn calls(value: &Json) -> Option<Vec<ShapedCall>> {
    match value {
        Json::List(items) => {
            let each: Option<Vec<Vec<ShapedCall>>> = items.iter().map(calls).collect();
            Some(each?.into_iter().flatten().collect())
        }
        Json::Object(_) => {
            for several in ["tool_calls", "tool_uses"] {
                if let Some(several @ Json::List(_)) = value.member(several) {
                    return calls(several);
                }
            }
            for wrapper in ["function", "function_call", "tool_call"] {
                if let Some(inner @ Json::Object(_)) = value.member(wrapper) {
                    return call(inner).map(|it| vec![it]);
                }
            }
            call(value).map(|it| vec![it])
        }
        _ => None,
    }
}

/// Returns whether a value has the shape of one or more calls of which one has the name `null` or an empty name.
pub(super) fn lacks_name(value: &Json) -> bool {
    if let Json::List(items) = value {
        return items.iter().any(lacks_name);
    }
    for several in ["tool_calls", "tool_uses"] {
        if let Some(several @ Json::List(_)) = value.member(several) {
            return lacks_name(several);
        }
    }
    for wrapper in ["function", "function_call", "tool_call"] {
        if let Some(inner @ Json::Object(_)) = value.member(wrapper) {
            return lacks_name(inner);
        }
    }
    let is_none =
        |name: &Json| name.is_null() || name.as_text().is_some_and(|name| name.trim().is_empty());
    SHAPES.iter().any(|(key, places)| {
        let given = places.iter().find_map(|place| value.member(place));
        value.member(key).is_some_and(is_none)
            && given.is_some_and(|given| arguments(given).is_some() && !is_definition(value, given))
    })
}

fn call(object: &Json) -> Option<ShapedCall> {
    let (name, places) = SHAPES.iter().find_map(|(key, places)| {
        let name = object.member(key)?.as_text()?;
        Some((name.to_owned(), *places))
    })?;
    let given = places.iter().find_map(|place| object.member(place));
    if given.is_some_and(|it| is_definition(object, it)) {
        return None;
    }
    let arguments = match given {
        None => None,
        Some(value) => Some(arguments(value)?),
    };
    Some(ShapedCall { name, arguments })
}

/// Returns the arguments as an object: the value itself, or the JSON in a string, as in the Chat Completions API.
pub(super) fn arguments(value: &Json) -> Option<Json> {
    match value {
        Json::Object(_) => Some(value.clone()),
        Json::Text(text) if text.trim().is_empty() => Some(Json::Object(Vec::new())),
        Json::Text(text) => json::whole(text).filter(|it| matches!(it, Json::Object(_))),
        value if value.is_null() => Some(Json::Object(Vec::new())),
        _ => None,
    }
}

/// Returns whether an object defines a tool, as in a list of tools that a model repeats.
fn is_definition(object: &Json, parameters: &Json) -> bool {
    object.member("description").is_some()
        || (parameters.member("type").and_then(Json::as_text) == Some("object")
            && matches!(parameters.member("properties"), Some(Json::Object(_))))
}
