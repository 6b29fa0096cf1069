//! Conversion of Toolbox statements to those of the catalogue: values by name, identifiers from a list.

use serde_json::{Map, Value, json};

use super::parameter::Parameter;
use crate::text::UniqueNames;
use wardgate_catalogue::{SqlDialect, is_identifier, name_placeholders};

/// Words that change data. A statement that contains one anywhere is treated as a writer, because that is the safer
/// assumption.
const WRITING: [&str; 10] = [
    "insert", "update", "delete", "merge", "into", "create", "drop", "alter", "truncate", "call",
];

/// Converts a statement. Each placeholder becomes `:name`, and each template `{name}`. Also returns the `derive` entries of
/// these names. An error is the reason why the statement cannot be converted.
pub(super) fn convert(
    sql: &str,
    dialect: SqlDialect,
    parameters: &[Parameter],
    choices: &[Parameter],
    names: &mut UniqueNames,
) -> Result<(String, Map<String, Value>), String> {
    let mut derive = Map::new();
    let mut templated = sql.trim_end().trim_end_matches(';').to_owned();
    for choice in choices {
        let name = fill(&mut templated, choice, names)?;
        derive.insert(
            name,
            json!({ "argument": choice.name, "allow": choice.allowed }),
        );
    }
    if templated.contains("{{") {
        return Err(
            "its statement contains a template that no parameter with `allowedValues` fills"
                .to_owned(),
        );
    }
    let name = |position: usize| parameters.get(position).map(|it| it.name.as_str());
    let statement = name_placeholders(dialect, &templated, name)
        .map_err(|bad| format!("{}; {}", bad.problem, bad.fix))?;
    Ok((statement, derive))
}

/// Replaces the template of a parameter by `{name}`. Returns the name, which is that of the derived value.
fn fill(sql: &mut String, choice: &Parameter, names: &mut UniqueNames) -> Result<String, String> {
    let Parameter {
        original, allowed, ..
    } = choice;
    let is_plain = |value: &String| {
        is_identifier(value)
            && !["asc", "desc", "null"].contains(&value.to_ascii_lowercase().as_str())
    };
    if allowed.is_empty() || !allowed.iter().all(is_plain) {
        return Err(format!(
            "its template parameter `{original}` becomes part of the SQL; this is safe only with a list of plain identifiers in \
             `allowedValues`"
        ));
    }
    let name = names.unique(&format!("{}_name", choice.name));
    let mut filled = String::new();
    let mut rest = sql.as_str();
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let (inside, behind) = after.split_once("}}").unwrap_or((after, ""));
        if inside.trim() == format!(".{original}") {
            filled.push_str(&format!("{{{name}}}"));
        } else {
            filled.push_str(&format!("{{{{{inside}}}}}"));
        }
        rest = behind;
    }
    filled.push_str(rest);
    *sql = filled;
    Ok(name)
}

/// Returns whether the statement certainly only reads.
pub(super) fn only_reads(sql: &str) -> bool {
    let mut words = sql
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase);
    let first = words.next().unwrap_or_default();
    matches!(first.as_str(), "select" | "with" | "values")
        && !words.any(|word| WRITING.contains(&word.as_str()))
}

/// Returns what a person should review.
pub(super) fn reviews(sql: &str, dialect: SqlDialect, has_choices: bool) -> Vec<String> {
    let mut reviews = Vec::new();
    if has_choices {
        reviews
            .push("the identifiers in `allow` are quoted, so they are case-sensitive".to_owned());
    }
    if dialect == SqlDialect::Mysql && sql.contains(['"', '\\']) {
        reviews.push(
            "`\"` quotes names, and a backslash is an ordinary character (ANSI_QUOTES, NO_BACKSLASH_ESCAPES)"
                .to_owned(),
        );
    }
    if !only_reads(sql) {
        reviews.push(
            "it may write; if it only reads, add `annotations: { readOnlyHint: true }`".to_owned(),
        );
    }
    reviews
}
