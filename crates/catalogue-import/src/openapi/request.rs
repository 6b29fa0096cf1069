//! Conversion of an operation's parameters and body to arguments of the tool.

use serde_json::{Map, Value};

use super::Operation;
use super::schema::Schemas;
use crate::text::{UniqueNames, name};

/// The request of a tool.
pub(super) struct RequestTemplate {
    pub(super) input_schema: Value,
    /// The path, with placeholders.
    pub(super) path: String,
    /// The keys `query`, `headers` and one of `json`, `form` and `text`.
    pub(super) parts: Map<String, Value>,
}

/// Headers that OpenAPI excludes from parameters.
const NO_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// The arguments of the tool that were collected so far.
struct ToolArguments {
    names: UniqueNames,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl ToolArguments {
    /// Adds an argument that the API calls `wanted`, and returns its placeholder.
    fn add(&mut self, wanted: &str, schema: Value, is_required: bool) -> String {
        let name = self.names.unique(&name(wanted, "argument"));
        self.properties.insert(name.clone(), schema);
        if is_required {
            self.required.push(name.as_str().into());
        }
        format!("{{{name}}}")
    }

    fn into_schema(self) -> Value {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), self.properties.into());
        if !self.required.is_empty() {
            schema.insert("required".to_owned(), self.required.into());
        }
        schema.into()
    }
}

/// Converts the request of an operation. An error is the reason why the operation cannot become a tool.
pub(super) fn read_request<'d>(
    operation: &Operation<'d>,
    schemas: &mut Schemas<'d>,
    reviews: &mut Vec<String>,
) -> Result<RequestTemplate, String> {
    let mut arguments = ToolArguments {
        names: UniqueNames::without(&["row_rule"]),
        properties: Map::new(),
        required: Vec::new(),
    };
    let mut places = Map::new();
    let (mut query, mut headers) = (Map::new(), Map::new());
    for parameter in parameters(operation, schemas, reviews) {
        let (Some(name), Some(location)) = (parameter["name"].as_str(), parameter["in"].as_str())
        else {
            continue;
        };
        let is_required = parameter["required"] == true || location == "path";
        match location {
            "header" if NO_HEADERS.contains(&name.to_ascii_lowercase().as_str()) => continue,
            "path" | "query" | "header" => {}
            _ if is_required => {
                return Err(format!("it requires the {location} parameter `{name}`"));
            }
            _ => {
                reviews.push(format!("the {location} parameter `{name}` is omitted"));
                continue;
            }
        }
        if let Some(problem) = style_problem(parameter, location) {
            reviews.push(format!("the {location} parameter `{name}` {problem}"));
        }
        let schema = parameter_schema(parameter, schemas);
        let place = arguments.add(name, schema, is_required);
        let places = match location {
            "path" => &mut places,
            "query" => &mut query,
            _ => &mut headers,
        };
        places.insert(name.to_owned(), place.into());
    }
    let path = path(operation.path, &places, &mut arguments, reviews);
    let mut parts = Map::new();
    for (key, pairs) in [("query", query), ("headers", headers)] {
        if !pairs.is_empty() {
            parts.insert(key.to_owned(), pairs.into());
        }
    }
    if let Some(body) = operation.definition.get("requestBody") {
        if matches!(operation.method, "get" | "head") {
            reviews.push("the body is omitted: a request that reads has no body".to_owned());
        } else {
            parts.extend(self::body(body, &mut arguments, schemas, reviews)?);
        }
    }
    Ok(RequestTemplate {
        input_schema: arguments.into_schema(),
        path,
        parts,
    })
}

/// Returns the parameters of the path and of the operation. Those of the operation take precedence.
fn parameters<'d>(
    operation: &Operation<'d>,
    schemas: &Schemas<'d>,
    reviews: &mut Vec<String>,
) -> Vec<&'d Value> {
    let mut known: Vec<&Value> = Vec::new();
    for owner in [operation.definition, operation.item] {
        let parameters = owner.get("parameters").and_then(Value::as_array);
        for parameter in parameters.into_iter().flatten() {
            let Some(parameter) = schemas.api().resolve(parameter) else {
                reviews.push(
                    "a parameter is omitted: its `$ref` refers to another document or does not exist"
                        .to_owned(),
                );
                continue;
            };
            let is_new = known
                .iter()
                .all(|it| (&it["name"], &it["in"]) != (&parameter["name"], &parameter["in"]));
            if is_new {
                known.push(parameter);
            }
        }
    }
    known
}

/// Returns what is lost because the parameter's `style` is not supported, or `None` if nothing is lost.
fn style_problem(parameter: &Value, location: &str) -> Option<&'static str> {
    let style = parameter["style"].as_str();
    match (location, style) {
        ("path", Some("label" | "matrix")) => {
            Some("is written as a plain segment, not in its own style")
        }
        ("query", Some("deepObject")) => Some("is written as JSON, not as one pair per member"),
        ("query", Some("spaceDelimited" | "pipeDelimited")) => {
            Some("repeats its pair for each element of a list, instead of joining them")
        }
        ("query", _) if parameter["explode"] == false => {
            Some("repeats its pair for each element of a list, instead of joining them")
        }
        _ => None,
    }
}

fn parameter_schema<'d>(parameter: &'d Value, schemas: &mut Schemas<'d>) -> Value {
    let content = || {
        parameter["content"]
            .as_object()?
            .values()
            .next()?
            .get("schema")
    };
    let schema = parameter.get("schema").or_else(content);
    let mut schema = schema.map_or_else(|| Map::new().into(), |schema| schemas.convert(schema));
    if let Value::Object(members) = &mut schema
        && let Some(description) = parameter["description"].as_str()
    {
        let description = crate::text::Description::from_text(description, 500).text;
        if !description.is_empty() {
            members.insert("description".to_owned(), description.into());
        }
    }
    schema
}

/// Returns the path with placeholders for its parameters and all other braces escaped.
fn path(
    path: &str,
    places: &Map<String, Value>,
    arguments: &mut ToolArguments,
    reviews: &mut Vec<String>,
) -> String {
    let mut places = places.clone();
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(&escape_template(before));
        let Some((name, behind)) = after.split_once('}') else {
            filled.push_str("{{");
            rest = after;
            continue;
        };
        if !places.contains_key(name) {
            reviews.push(format!(
                "the path contains `{{{name}}}`, which no parameter describes: it is a string"
            ));
            let schema = serde_json::json!({ "type": "string" });
            let place = arguments.add(name, schema, true);
            places.insert(name.to_owned(), place.into());
        }
        filled.push_str(places[name].as_str().unwrap_or_default());
        rest = behind;
    }
    filled.push_str(&escape_template(rest));
    filled
}

/// Escapes a text so that it contains no placeholders as a template.
fn escape_template(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// Converts the body to one key of `execute`.
fn body<'d>(
    body: &'d Value,
    arguments: &mut ToolArguments,
    schemas: &mut Schemas<'d>,
    reviews: &mut Vec<String>,
) -> Result<Option<(String, Value)>, String> {
    let Some(body) = schemas.api().resolve(body) else {
        return Err(
            "the `$ref` of its body refers to another document or does not exist".to_owned(),
        );
    };
    let is_required = body["required"] == true;
    let contents = body["content"].as_object();
    let found = contents.into_iter().flatten().find_map(|(kind, content)| {
        let part = part_of(kind)?;
        Some((kind, part, content))
    });
    let Some((kind, part, content)) = found else {
        let kinds: Vec<_> = contents
            .into_iter()
            .flatten()
            .map(|(kind, _)| kind.as_str())
            .collect();
        // Most operations need their body even if it is optional. The body is left out only if it is optional and describes
        // no content.
        return if kinds.is_empty() && !is_required {
            reviews.push("its body describes no content, and is omitted".to_owned());
            Ok(None)
        } else {
            Err(format!(
                "a body of type {} cannot be sent",
                kinds.join(", ")
            ))
        };
    };
    if kind.contains("+json") {
        reviews.push(format!(
            "the body is sent as application/json, not as {kind}"
        ));
    }
    let schema = content.get("schema");
    let schema = schema.map_or_else(|| Map::new().into(), |schema| schemas.convert(schema));
    let Some(properties) = members(&schema).filter(|_| part != "text") else {
        if part == "form" {
            return Err("the form of its body does not define its fields".to_owned());
        }
        let place = arguments.add("body", schema, is_required);
        return Ok(Some((part.to_owned(), place.into())));
    };
    let required = schema.get("required").and_then(Value::as_array);
    let mut template = Map::new();
    for (name, property) in properties {
        let is_required = is_required
            && required.is_some_and(|names| names.iter().any(|it| it.as_str() == Some(name)));
        let place = arguments.add(name, property.clone(), is_required);
        template.insert(name.clone(), place.into());
    }
    Ok(Some((part.to_owned(), template.into())))
}

/// Returns the key of `execute` that sends a content type.
fn part_of(content_type: &str) -> Option<&'static str> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => Some("form"),
        "text/plain" => Some("text"),
        "application/json" | "*/*" | "application/*" => Some("json"),
        kind if kind.ends_with("+json") => Some("json"),
        _ => None,
    }
}

/// Returns the members of a schema if its values are objects with only these members.
fn members(schema: &Value) -> Option<&Map<String, Value>> {
    let has_alternatives = ["oneOf", "anyOf", "allOf", "not"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    let is_open = matches!(schema.get("additionalProperties"), Some(it) if *it != false);
    let is_nullable = schema["type"].is_array();
    schema["properties"].as_object().filter(|properties| {
        !properties.is_empty() && !has_alternatives && !is_open && !is_nullable
    })
}
