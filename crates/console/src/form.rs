//! A form for the arguments of a tool, generated from the tool's input schema, and the arguments of a submitted form.
//!
//! An argument whose type has no field of its own is entered as JSON. Numbers and JSON are sent to the tool exactly as
//! entered.

use maud::{Markup, html};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::find_invisible;

use crate::fields::FormFields;
use crate::output::{cut, pretty};

/// Prefix of the names of argument fields, which separates them from the console's own fields.
const PREFIX: &str = "argument.";

/// Form field: all arguments at once, instead of the individual fields.
const WHOLE: &str = "arguments";

/// Maximum number of fields in one form. Further arguments are entered as JSON.
const MOST: usize = 60;

/// Maximum number of characters of a description.
const IN_FORM: usize = 500;

/// The kind of a field.
#[derive(Debug, Clone, PartialEq)]
enum FieldKind {
    Text,
    Integer,
    Number,
    Boolean,
    Choice(Vec<String>),
    Json,
}

/// An argument of a tool and its field.
#[derive(Debug, Clone)]
struct FormArgument {
    name: String,
    kind: FieldKind,
    required: bool,
    description: String,
    default: Option<Value>,
    /// Further constraints of the schema, in words.
    rules: Vec<String>,
}

/// The form of one tool.
pub(crate) struct Form {
    arguments: Vec<FormArgument>,
    /// Whether some arguments have no field.
    is_cut: bool,
}

/// The result of a submitted form: the arguments as JSON, or the invalid fields and what is wrong with each.
pub(crate) type FilledForm = Result<Box<RawValue>, Vec<(String, String)>>;

impl Form {
    pub(crate) fn from_schema(schema: &Value) -> Self {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema["properties"].as_object();
        let all = properties.map_or(0, serde_json::Map::len);
        let arguments = properties.into_iter().flatten().take(MOST);
        let arguments = arguments.map(|(name, of)| FormArgument {
            name: name.clone(),
            kind: kind(of),
            required: required.contains(&name.as_str()),
            description: of["description"].as_str().unwrap_or_default().to_owned(),
            default: of.get("default").cloned(),
            rules: rules(of),
        });
        Self {
            arguments: arguments.collect(),
            is_cut: all > MOST,
        }
    }

    /// Returns the arguments that the fields contain.
    pub(crate) fn read_arguments(&self, fields: &FormFields) -> FilledForm {
        if let Some(whole) = fields.get_non_blank(WHOLE) {
            let wrong = |what: &str| Err(vec![(WHOLE.to_owned(), what.to_owned())]);
            return match serde_json::from_str::<Value>(whole) {
                Ok(Value::Object(_)) => json(whole).map_or_else(|| wrong("is not JSON"), Ok),
                Ok(_) => wrong("is not a JSON object"),
                Err(_) => wrong("is not JSON"),
            };
        }
        let mut members = Vec::new();
        let mut wrong = Vec::new();
        for argument in &self.arguments {
            let given = fields.get(&format!("{PREFIX}{}", argument.name));
            match argument.value(given.unwrap_or_default()) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    members.push(format!("{}:{value}", Value::from(argument.name.as_str())));
                }
                Err(what) => wrong.push((argument.name.clone(), what.to_owned())),
            }
        }
        let whole = format!("{{{}}}", members.join(","));
        match json(&whole) {
            Some(whole) if wrong.is_empty() => Ok(whole),
            Some(_) => Err(wrong),
            None => Err(vec![(
                WHOLE.to_owned(),
                "cannot be written as JSON".to_owned(),
            )]),
        }
    }

    /// Renders the fields with their submitted values. `wrong` lists the invalid fields.
    pub(crate) fn fields(&self, filled: Option<&FormFields>, wrong: &[(String, String)]) -> Markup {
        let fault = |name: &str| {
            let mut wrong = wrong.iter();
            wrong
                .find(|(own, _)| own == name)
                .map(|(_, what)| what.as_str())
        };
        let whole = filled.and_then(|filled| filled.get_non_blank(WHOLE));
        html! {
            @for (index, argument) in self.arguments.iter().enumerate() {
                (argument.field(index, filled, fault(&argument.name)))
            }
            @if self.arguments.is_empty() && !self.is_cut { p.quiet { "This tool has no arguments." } }
            details open[whole.is_some() || self.is_cut || fault(WHOLE).is_some()] {
                summary { "Arguments as JSON" }
                div.field {
                    label for="whole" { "A JSON object, instead of the fields" }
                    textarea #whole name=(WHOLE) rows="4" spellcheck="false"
                        aria-invalid=[fault(WHOLE).map(|_| "true")] { (whole.unwrap_or_default()) }
                    @if let Some(what) = fault(WHOLE) { p.fault role="alert" { "It " (what) "." } }
                }
            }
        }
    }
}

impl FormArgument {
    /// Returns the JSON to send for `given`, or `None` if an optional argument was left empty.
    fn value(&self, given: &str) -> Result<Option<String>, &'static str> {
        if given.trim().is_empty() && (!self.required || self.kind != FieldKind::Text) {
            return if self.required {
                Err("is required")
            } else {
                Ok(None)
            };
        }
        let text = given.trim();
        match &self.kind {
            FieldKind::Text | FieldKind::Choice(_) => Ok(Some(Value::from(given).to_string())),
            FieldKind::Boolean if matches!(text, "true" | "false") => Ok(Some(text.to_owned())),
            FieldKind::Boolean => Err("is neither true nor false"),
            FieldKind::Integer if is_number(text) && !text.contains(['.', 'e', 'E']) => {
                Ok(Some(text.to_owned()))
            }
            FieldKind::Integer => Err("is not a whole number"),
            FieldKind::Number if is_number(text) => Ok(Some(text.to_owned())),
            FieldKind::Number => Err("is not a number"),
            FieldKind::Json => match json(text) {
                Some(value) => Ok(Some(value.get().to_owned())),
                None => Err("is not JSON"),
            },
        }
    }

    fn field(&self, index: usize, filled: Option<&FormFields>, fault: Option<&str>) -> Markup {
        let (id, about) = (format!("argument-{index}"), format!("about-{index}"));
        let name = format!("{PREFIX}{}", self.name);
        let value = match filled {
            Some(filled) => filled.get(&name).unwrap_or_default().to_owned(),
            // A default with invisible characters is not filled in. If the field is left empty, the default applies all
            // the same.
            None => self
                .default
                .as_ref()
                .map(field_text)
                .filter(|text| find_invisible(text).next().is_none())
                .unwrap_or_default(),
        };
        let marked = find_invisible(&value).next().is_some();
        let invalid = fault.map(|_| "true");
        html! {
            div.field {
                label for=(id) {
                    (self.name)
                    @if self.required { span.required title="Required" { " (required)" } }
                }
                @match &self.kind {
                    FieldKind::Choice(options) => {
                        select #(id) name=(name) required[self.required] aria-describedby=(about) aria-invalid=[invalid] {
                            option value="" { "–" }
                            @for option in options { option value=(option) selected[*option == value] { (option) } }
                        }
                    }
                    FieldKind::Boolean => {
                        select #(id) name=(name) required[self.required] aria-describedby=(about) aria-invalid=[invalid] {
                            @for option in ["", "true", "false"] {
                                option value=(option) selected[option == value] { (if option.is_empty() { "–" } else { option }) }
                            }
                        }
                    }
                    FieldKind::Json => {
                        textarea #(id) name=(name) rows="3" required[self.required] spellcheck="false"
                            aria-describedby=(about) aria-invalid=[invalid] { (value) }
                    }
                    kind => {
                        input #(id) type="text" name=(name) value=(value) required[self.required] autocomplete="off" spellcheck="false"
                            inputmode=[(matches!(kind, FieldKind::Integer | FieldKind::Number)).then_some("decimal")]
                            aria-describedby=(about) aria-invalid=[invalid];
                    }
                }
                @if let Some(fault) = fault { p.fault role="alert" { "It " (fault) "." } }
                @if marked { p.notice.warn { "The value contains invisible characters: " (cut(&value, IN_FORM)) } }
                p.quiet id=(about) {
                    (cut(&self.description, IN_FORM))
                    @if !self.description.is_empty() { " " }
                    span.rules { (self.rules.join(" · ")) }
                }
            }
        }
    }
}

fn kind(of: &Value) -> FieldKind {
    let options = of["enum"].as_array();
    let words = options.and_then(|options| {
        let words = options
            .iter()
            .map(|option| option.as_str().map(ToOwned::to_owned));
        words.collect::<Option<Vec<_>>>()
    });
    match (of["type"].as_str(), words) {
        (Some("string") | None, Some(words)) => FieldKind::Choice(words),
        (Some("string"), None) => FieldKind::Text,
        (Some("integer"), _) => FieldKind::Integer,
        (Some("number"), _) => FieldKind::Number,
        (Some("boolean"), _) => FieldKind::Boolean,
        _ => FieldKind::Json,
    }
}

/// Returns further constraints of the schema, in words.
fn rules(of: &Value) -> Vec<String> {
    let words = [
        ("pattern", "matches"),
        ("format", "format"),
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "minimum length"),
        ("maxLength", "maximum length"),
        ("default", "default:"),
    ];
    let mut rules: Vec<String> = words
        .iter()
        .filter_map(|(key, words)| {
            let value = of.get(*key)?;
            Some(format!("{words} {}", cut(&field_text(value), 120)))
        })
        .collect();
    if kind(of) == FieldKind::Json {
        rules.insert(0, "JSON".to_owned());
    }
    rules
}

/// Converts a value to the text of a field: strings are not quoted.
fn field_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => pretty(value),
        other => other.to_string(),
    }
}

fn is_number(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(Value::Number(_)))
}

fn json(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "code": { "type": "string", "pattern": "^[A-Z]+$" },
                "limit": { "type": "integer", "default": 100 },
                "share": { "type": "number" },
                "all": { "type": "boolean" },
                "tone": { "type": "string", "enum": ["plain", "<b>"] },
                "tags": { "type": "array" },
            },
            "required": ["code"],
        })
    }

    fn fill_form(query: &str) -> Result<String, Vec<(String, String)>> {
        let fields = FormFields::of_query(Some(query)).unwrap();
        let filled = Form::from_schema(&schema()).read_arguments(&fields);
        filled.map(|filled| filled.get().to_owned())
    }

    #[test]
    fn what_is_filled_in_goes_as_it_was_written_and_what_is_empty_does_not() {
        let query = "argument.code=A%22B&argument.limit=12345678901234567890123&argument.share=1.50&argument.all=&argument.tags=%5B1.0%2C%20%7B%7D%5D";
        assert_eq!(
            fill_form(query).unwrap(),
            r#"{"code":"A\"B","limit":12345678901234567890123,"share":1.50,"tags":[1.0, {}]}"#
        );
        assert_eq!(fill_form("argument.code=").unwrap(), r#"{"code":""}"#);
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_field() {
        let wrong = fill_form(
            "argument.code=A&argument.limit=1.5&argument.share=x&argument.all=yes&argument.tags=%5B",
        );
        let names: Vec<String> = wrong
            .unwrap_err()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["limit", "share", "all", "tags"]);
    }

    #[test]
    fn a_whole_object_takes_the_place_of_the_fields() {
        assert_eq!(
            fill_form("argument.code=A&arguments=%7B%22b%22%3A1%7D").unwrap(),
            r#"{"b":1}"#
        );
        for wrong in ["%5B%5D", "%7B", "1"] {
            let wrong = fill_form(&format!("argument.code=A&arguments={wrong}")).unwrap_err();
            assert_eq!(wrong[0].0, "arguments");
        }
    }

    #[test]
    fn a_hostile_schema_is_text_in_the_form() {
        let hostile = "\"><script>alert(1)</script>";
        let schema = json!({
            "properties": {
                hostile: { "type": "string", "description": hostile, "default": hostile, "pattern": hostile },
                "choice": { "enum": [hostile] },
                "json": { "default": { hostile: hostile } },
            },
            "required": [hostile],
        });
        let form = Form::from_schema(&schema).fields(None, &[]).into_string();
        assert!(!form.contains("<script"), "{form}");
        for odd in [
            json!(null),
            json!(7),
            json!({ "properties": 7, "required": "x" }),
            json!([]),
        ] {
            assert!(Form::from_schema(&odd).arguments.is_empty());
        }
    }
}
