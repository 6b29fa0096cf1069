//! Guesses about the response of an operation: the location of its rows, and their columns.

use serde_json::{Map, Value};

use super::OpenapiDocument;
use crate::classes;
use crate::draft::ToolDraft;

/// Keys of responses that describe a success, the most likely first.
const SUCCESSES: [&str; 5] = ["200", "201", "2XX", "2xx", "default"];

/// Maximum number of columns that are suggested.
const MAX_COLUMNS: usize = 60;

/// Sets the location of the rows and suggests a class for each column.
pub(super) fn guess(api: OpenapiDocument<'_>, definition: &Value, tool: &mut ToolDraft) {
    let Some(schema) = success(api, definition) else {
        return;
    };
    let (rows, row) = rows(api, schema);
    if let Some(member) = rows {
        let pointer = format!("/{}", member.replace('~', "~0").replace('/', "~1"));
        tool.result.insert("rows".to_owned(), pointer.into());
        tool.reviews
            .push(format!("the rows are taken from `{member}` of the answer"));
    }
    let classes: Map<_, _> = row
        .into_iter()
        .flat_map(|row| properties(api, row, 0))
        .map(|column| (column.to_owned(), classes::suggest("item", column).into()))
        .collect();
    if !classes.is_empty() {
        tool.suggestions
            .insert("classes".to_owned(), classes.into());
    }
}

/// Returns the schema of the JSON content of a success.
fn success<'d>(api: OpenapiDocument<'d>, definition: &'d Value) -> Option<&'d Value> {
    let responses = definition["responses"].as_object()?;
    let response = SUCCESSES.iter().find_map(|status| responses.get(*status))?;
    let contents = api.resolve(response)?["content"].as_object()?;
    let is_json = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind == "*/*" || kind == "application/json" || kind.ends_with("+json")
    };
    let (_, content) = contents.iter().find(|(kind, _)| is_json(kind))?;
    api.resolve(content.get("schema")?)
}

/// Returns the member that contains the rows, or `None` if the whole response is the rows, and the schema of one row. A
/// response is a wrapper around rows if it has one list of objects and otherwise only members that describe the position in
/// the list. Any other object is itself a row, whatever lists it contains, so that none of its members is lost.
fn rows<'d>(api: OpenapiDocument<'d>, schema: &'d Value) -> (Option<&'d str>, Option<&'d Value>) {
    if let Some(items) = items(api, schema) {
        return (None, Some(items));
    }
    let members = schema["properties"].as_object().into_iter().flatten();
    let row = |member: &'d Value| {
        let items = items(api, api.resolve(member)?)?;
        is_object(api, items).then_some(items)
    };
    let mut others = members.filter(|(name, member)| {
        !is_about_the_list(name) || row(member).is_some() && !name.contains("links")
    });
    let row = others
        .next()
        .and_then(|(name, member)| Some((name.as_str(), row(member)?)));
    match (row, others.next()) {
        (Some((name, items)), None) => (Some(name), Some(items)),
        _ => (None, Some(schema)),
    }
}

/// Words in names of members that only describe which part of a list a response contains.
const ABOUT_LISTS: [&str; 31] = [
    "after",
    "before",
    "count",
    "cursor",
    "elements",
    "first",
    "has",
    "is",
    "last",
    "length",
    "limit",
    "links",
    "max",
    "meta",
    "metadata",
    "more",
    "next",
    "number",
    "object",
    "offset",
    "page",
    "pages",
    "pagination",
    "paging",
    "per",
    "prev",
    "previous",
    "size",
    "success",
    "token",
    "total",
];

fn is_about_the_list(member: &str) -> bool {
    let words = classes::words(member);
    !words.is_empty()
        && words
            .iter()
            .all(|word| ABOUT_LISTS.contains(&word.as_str()))
}

fn is_object(api: OpenapiDocument<'_>, schema: &Value) -> bool {
    schema["type"] == "object" || !properties(api, schema, 0).is_empty()
}

/// Returns the schema of the elements of a list.
fn items<'d>(api: OpenapiDocument<'d>, schema: &'d Value) -> Option<&'d Value> {
    (schema["type"] == "array")
        .then(|| schema.get("items"))
        .flatten()
        .and_then(|items| api.resolve(items))
}

/// Returns the names of a row's members, including those of the parts of an `allOf`.
fn properties<'d>(api: OpenapiDocument<'d>, schema: &'d Value, depth: usize) -> Vec<&'d str> {
    let own = schema["properties"].as_object().map(Map::keys);
    let mut names: Vec<_> = own.into_iter().flatten().map(String::as_str).collect();
    if depth < 4 {
        let parts = schema["allOf"].as_array().into_iter().flatten();
        for part in parts.take(MAX_COLUMNS).filter_map(|part| api.resolve(part)) {
            for name in properties(api, part, depth + 1) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    names.truncate(MAX_COLUMNS);
    names
}
