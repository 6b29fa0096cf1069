//! Generated reference pages of the book. A test checks that each page is current, and writes it if `WARDGATE_WRITE_DOCS`
//! is set. Some pages are generated only between marks.

mod errors;
mod grpc;
mod http_endpoints;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use serde_json::Value;

use crate::cli::Cli;

fn file(name: &str) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference");
    Path::new(directory).join(name)
}

/// Asserts that the page `name` of the book's reference equals `page`, or writes it.
pub(crate) fn assert_current(name: &str, page: &str) {
    let file = file(name);
    if std::env::var_os("WARDGATE_WRITE_DOCS").is_some() {
        std::fs::write(&file, page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "{name} is outdated: WARDGATE_WRITE_DOCS=yes cargo test --package wardgate --bin wardgate is_current"
    );
}

/// Asserts that the text between `<!-- generated: SECTION -->` and `<!-- end -->` in the page `name` is the text of that
/// section, or writes it. The page must have marks for each of `sections` and for no others.
pub(crate) fn assert_sections_current(name: &str, sections: &[(String, String)]) {
    const END: &str = "<!-- end -->";
    let written = std::fs::read_to_string(file(name)).unwrap();
    let count = written.matches("<!-- generated: ").count();
    assert_eq!(count, sections.len(), "marks of {name}");
    let mut page = written;
    for (section, text) in sections {
        let mark = format!("<!-- generated: {section} -->\n");
        let (before, rest) = page.split_once(&mark).expect(&mark);
        let (_, after) = rest.split_once(END).expect(END);
        page = format!("{before}{mark}\n{}\n\n{END}{after}", text.trim());
    }
    assert_current(name, &page);
}

/// Describes the type of a value in a word or two. `link` formats the name of a definition as a link.
pub(crate) fn kind(schema: &Value, link: &dyn Fn(&str) -> String) -> String {
    let quoted = |value: &Value| format!("`{}`", value.as_str().unwrap_or_default());
    if let Some(name) = reference(schema) {
        return link(name);
    }
    if let Some(Value::Array(words)) = schema.get("enum") {
        return words.iter().map(quoted).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = schema.get("const") {
        return quoted(word);
    }
    if let Some(alternatives) = alternatives(schema) {
        let mut kinds: Vec<_> = alternatives.iter().map(|it| kind(it, link)).collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    let types: Vec<_> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(kind) => vec![kind],
        _ => return "any value".to_owned(),
    };
    let named = types.into_iter().map(|name| match name {
        "object" if schema.get("properties").is_some() => "section".to_owned(),
        "object" => match reference(&schema["additionalProperties"]) {
            Some(name) => format!("map of {}", link(name)),
            None => "map".to_owned(),
        },
        "array" => format!("list of {}", plural(&schema["items"], link)),
        other => other.to_owned(),
    });
    named.collect::<Vec<_>>().join(" or ")
}

fn plural(items: &Value, link: &dyn Fn(&str) -> String) -> String {
    match (reference(items), items["type"].as_str()) {
        (Some(name), _) => link(name),
        (None, Some("object")) => "sections".to_owned(),
        (None, Some("number" | "integer")) => "numbers".to_owned(),
        (None, _) => "strings".to_owned(),
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn alternatives(schema: &Value) -> Option<&Vec<Value>> {
    ["oneOf", "anyOf"]
        .iter()
        .find_map(|keyword| schema[*keyword].as_array())
        .filter(|all| all.iter().any(|one| one.get("type").is_some()))
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Appends a row for each key of `schema` and of its nested members: `type` first, then by name.
fn rows(page: &mut String, schema: &Value, before: &str) {
    let Some(members) = schema["properties"].as_object() else {
        return;
    };
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let mut names: Vec<_> = members.keys().collect();
    names.sort_by_key(|name| (*name != "type", name.as_str()));
    for name in names {
        let member = &members[name];
        let path = format!("{before}{name}");
        let link = |name: &str| format!("[{name}](#{name})");
        let required = required.iter().any(|it| *it == name);
        let text = member["description"].as_str().unwrap_or_default();
        let _ = writeln!(
            page,
            "| `{path}` | {}{} | {} |",
            cell(&kind(member, &link)),
            if required { ", required" } else { "" },
            cell(text),
        );
        inner_rows(page, member, &path);
    }
}

/// Appends the rows of the content of a member: its own members, and those of its items, its entries or its alternatives.
fn inner_rows(page: &mut String, member: &Value, path: &str) {
    rows(page, member, &format!("{path}."));
    rows(page, &member["items"], &format!("{path}[]."));
    let entries = &member["additionalProperties"];
    rows(page, entries, &format!("{path}.NAME."));
    for form in alternatives(member).into_iter().flatten() {
        rows(page, form, &format!("{path}."));
    }
    for form in alternatives(entries).into_iter().flatten() {
        rows(page, form, &format!("{path}.NAME."));
    }
}

fn table(page: &mut String, schema: &Value) {
    *page += "\n| key | value | |\n|---|---|---|\n";
    rows(page, schema, "");
}

fn description(page: &mut String, schema: &Value) {
    if let Some(text) = schema["description"].as_str() {
        let _ = write!(page, "\n{text}\n");
    }
}

/// Returns a name that distinguishes an alternative of a definition from the others.
fn form_name(form: &Value) -> String {
    let of_type = &form["properties"]["type"];
    match (of_type["const"].as_str(), of_type["enum"].as_array()) {
        (Some(word), _) => format!("type: {word}"),
        (None, Some(words)) => {
            let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
            format!("type: {}", words.join(", "))
        }
        (None, None) if form["enum"].is_array() => "keyword".to_owned(),
        (None, None) if form["type"] == "string" => "string".to_owned(),
        (None, None) if form["required"].is_null() => "one key".to_owned(),
        (None, None) => {
            let required = form["required"].as_array().into_iter().flatten();
            let required: Vec<_> = required.filter_map(Value::as_str).collect();
            format!("with {}", required.join(", "))
        }
    }
}

fn tools_yaml() -> String {
    let schema: Value = serde_json::from_str(wardgate_catalogue::TOOLS_SCHEMA).unwrap();
    let mut page = String::from(
        "# tools.yaml\n\nThis page is generated from the JSON Schema that `wardgate config schema` prints for editors; a test keeps \
         it current.\n`wardgate tools check` prints every error of a file with its line. In keys, `NAME` stands for a name that you \
         choose, and `[]`\nfor each item of a list.\n\n## The file\n",
    );
    description(&mut page, &schema);
    table(&mut page, &schema);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let _ = write!(page, "\n## {name}\n");
        description(&mut page, definition);
        let link = |name: &str| format!("[{name}](#{name})");
        let forms = alternatives(definition);
        if definition["properties"].is_object() {
            table(&mut page, definition);
        } else if let Some(forms) =
            forms.filter(|it| it.iter().any(|form| form["properties"].is_object()))
        {
            for form in forms {
                let _ = write!(page, "\n### {name}, {}\n", form_name(form));
                description(&mut page, form);
                if form["properties"].is_object() {
                    table(&mut page, form);
                } else {
                    let _ = write!(page, "\nThe value is: {}.\n", kind(form, &link));
                }
            }
        } else if definition["additionalProperties"].is_object() {
            page += "\n| key | value | |\n|---|---|---|\n";
            inner_rows(&mut page, definition, "");
        } else {
            let _ = write!(page, "\nThe value is: {}.\n", kind(definition, &link));
        }
    }
    page
}

fn command_line() -> String {
    let mut page = String::from(
        "# Command line\n\nThis page contains the `--help` text of each command; a test keeps it current. Exit codes are 0 on success, 1 on \
         failure (the\nreason is on standard error) and 2 on invalid usage.\n",
    );
    let mut command = Cli::command().term_width(100);
    command.build();
    add_command(&mut page, &mut command);
    page
}

fn add_command(page: &mut String, command: &mut clap::Command) {
    let name = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = write!(
        page,
        "\n## {name}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    let is_shown = |it: &&mut clap::Command| !it.is_hide_set() && it.get_name() != "help";
    for inner in command.get_subcommands_mut().filter(is_shown) {
        add_command(page, inner);
    }
}

#[test]
fn the_page_of_every_command_is_current() {
    assert_current("command-line.md", &command_line());
}

#[test]
fn the_page_of_every_key_of_a_catalogue_is_current() {
    assert_current("tools-yaml.md", &tools_yaml());
}

/// Collects the paths of the properties in `schema` that have no description. A reference to a described definition is
/// enough.
fn without_description(schema: &Value, whole: &Value, path: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members {
                let path = format!("{path}/{keyword}");
                if let ("properties", Value::Object(properties)) = (keyword.as_str(), value) {
                    for (name, property) in properties {
                        let of_definition = reference(property).map(|name| &whole["$defs"][name]);
                        let is_described = property.get("description").is_some()
                            || property.get("const").is_some()
                            || of_definition.is_some_and(|it| it.get("description").is_some());
                        // Conditions repeat properties that are described elsewhere.
                        let is_condition = ["/if/", "/not/", "/dependentSchemas/"]
                            .iter()
                            .any(|it| path.contains(it));
                        if !is_described && !is_condition {
                            found.push(format!("{path}/{name}"));
                        }
                    }
                }
                without_description(value, whole, &path, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                without_description(item, whole, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_key_of_a_catalogue_has_a_description() {
    let schema: Value = serde_json::from_str(wardgate_catalogue::TOOLS_SCHEMA).unwrap();
    let mut found = Vec::new();
    without_description(&schema, &schema, "", &mut found);
    assert!(
        found.is_empty(),
        "describe in deploy/tools.schema.json: {found:#?}"
    );
}
