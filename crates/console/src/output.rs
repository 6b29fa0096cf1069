//! Rendering of foreign values as text and tables of bounded size. Nothing in them is interpreted as markup.

use std::borrow::Cow;

use maud::{Markup, html};
use serde_json::{Map, Value};
use wardgate_domain::mark_invisible;

/// Maximum number of rows and columns of one table. Further rows are only counted.
const MAX_ROWS: usize = 200;
const MAX_COLUMNS: usize = 40;

/// Maximum number of characters of one cell.
const MAX_CELL: usize = 400;

/// Maximum number of characters of one text.
pub(crate) const MAX_TEXT: usize = 64 * 1024;

/// Maximum number of tables of one result.
const MAX_TABLES: usize = 8;

/// Cuts `text` to that number of characters and marks the cut with an ellipsis.
pub(crate) fn cut(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

/// Formats `value` as indented JSON.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Renders preformatted text in a region that can be scrolled with the keyboard.
pub(crate) fn text(label: &str, text: &str) -> Markup {
    html! { pre tabindex="0" role="region" aria-label=(label) { (cut(text, MAX_TEXT)) } }
}

/// Renders a structured result: lists of objects as tables, and the rest as JSON.
pub(crate) fn structured_result(value: &Value) -> Markup {
    if let Some(rows) = rows(value) {
        return table("Result", &rows);
    }
    let Value::Object(members) = value else {
        return text("Result", &pretty(value));
    };
    let tables: Vec<_> = members
        .iter()
        .filter_map(|(name, value)| rows(value).map(|rows| (name, rows)))
        .take(MAX_TABLES)
        .collect();
    let rest: Map<String, Value> = members
        .iter()
        .filter(|(name, _)| tables.iter().all(|(own, _)| own != name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    html! {
        @for (name, rows) in &tables { (table(name, rows)) }
        @if !rest.is_empty() { (text("Result", &pretty(&Value::Object(rest)))) }
    }
}

/// Returns the objects of a list, or `None` if it is empty or contains anything else.
fn rows(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    let items = value.as_array().filter(|items| !items.is_empty())?;
    items.iter().map(Value::as_object).collect()
}

fn table(caption: &str, rows: &[&Map<String, Value>]) -> Markup {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().take(MAX_ROWS).flat_map(|row| row.keys()) {
        if columns.len() < MAX_COLUMNS && !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    html! {
        div.scroll tabindex="0" role="region" aria-label=(mark_invisible(caption)) {
            table {
                caption { (caption) span.quiet { " · " (rows.len()) @if rows.len() == 1 { " row" } @else { " rows" } } }
                thead { tr { @for name in &columns { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows.iter().take(MAX_ROWS) {
                        tr { @for name in &columns { td { (cell(row.get(*name))) } } }
                    }
                }
            }
        }
        @if rows.len() > MAX_ROWS {
            p.quiet { "The first " (MAX_ROWS) " of " (rows.len()) " rows. The answer below contains the remaining rows, up to its display \
                                                                   limit." }
        }
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => cut(text, MAX_CELL).into_owned(),
        Some(other) => cut(&other.to_string(), MAX_CELL).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_tables_and_their_words_are_text() {
        let hostile = "<img src=x onerror=alert(1)>";
        let shown = structured_result(
            &json!({ "rows": [{ "a": hostile, hostile: 1 }, { "b": null }], "count": 2 }),
        );
        let shown = shown.into_string();
        assert!(!shown.contains("<img"), "{shown}");
        assert!(shown.contains("&lt;img src=x"), "{shown}");
        assert!(
            shown.contains("<th scope=\"col\">b</th>") && shown.contains("2 rows"),
            "{shown}"
        );
        assert!(shown.contains("&quot;count&quot;: 2"), "{shown}");
    }

    #[test]
    fn a_page_is_bounded_whatever_a_tool_gives() {
        let wide: Map<String, Value> = (0..500)
            .map(|at| (at.to_string(), json!("x".repeat(5_000))))
            .collect();
        let shown =
            structured_result(&Value::Array(vec![Value::Object(wide); 1_000])).into_string();
        assert!(
            shown.len() < MAX_ROWS * MAX_COLUMNS * (MAX_CELL + 32),
            "{}",
            shown.len()
        );
        let long = text("x", &"ä".repeat(1_000_000)).into_string();
        assert!(long.len() < 3 * MAX_TEXT, "{}", long.len());
        for odd in [
            json!(null),
            json!([]),
            json!([1, {}]),
            json!("x"),
            json!({}),
        ] {
            assert!(
                !structured_result(&odd).into_string().contains("<table"),
                "{odd}"
            );
        }
    }
}
