//! Import of PostgreSQL databases: for each table or view, a tool that lists its rows, filtered by keys and indexed
//! columns.

mod describe;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::draft::{Draft, SourceDraft, ToolDraft};
use super::text::{Description, UniqueNames, identifier};
use super::{ImportError, ImportedCatalogue, classes};
use describe::{Column, Table};

/// Timeout of reading the description of the database.
const LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of imported tables, because more tools are not useful.
const MAX_TABLES: usize = 300;

/// Default number of rows of one call.
const DEFAULT_ROWS: u32 = 50;

/// Maximum number of rows of one call.
const MAX_ROWS: u32 = 500;

/// Maximum number of labels of an enumeration. Columns of larger enumerations become strings.
const MAX_LABELS: usize = 50;

/// Maximum length of the description of a column, in characters.
const MAX_DESCRIPTION: usize = 500;

/// The selection of tables to import.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The environment variable from which the file reads the URL.
    pub variable: String,
    /// The schemas to search.
    pub schemas: Vec<String>,
    /// Names of tables and views. If empty, all are imported.
    pub tables: Vec<String>,
}

/// Imports the tables of the database at `url`, with a read-only session and within a timeout.
pub async fn postgres(
    url: &str,
    options: &PostgresOptions,
) -> Result<ImportedCatalogue, ImportError> {
    let tables = timeout(LIMIT, describe::tables(url, options, MAX_TABLES))
        .await
        .map_err(|_| {
            let seconds = LIMIT.as_secs();
            ImportError::Database(format!("it did not answer within {seconds} s"))
        })??;
    write(&tables, options)
}

fn write(tables: &[Table], options: &PostgresOptions) -> Result<ImportedCatalogue, ImportError> {
    let mut draft = Draft::new("a PostgreSQL database");
    for wanted in &options.tables {
        if tables.iter().all(|table| table.name != *wanted) {
            draft.note(format!("table `{wanted}`"), "no column can be read");
        }
    }
    let tables = if tables.len() > MAX_TABLES {
        draft.note(
            "the database",
            format!("only the first {MAX_TABLES} tables are described: select tables with --table"),
        );
        &tables[..MAX_TABLES]
    } else {
        tables
    };
    if tables.is_empty() {
        return Err(ImportError::Nothing(format!(
            "no table or view that this user may read exists in {}",
            options.schemas.join(", ")
        )));
    }
    let url = draft.variable(
        &options.variable,
        "the URL of the database, for a user that may only read",
        "postgres://user@host/database",
    );
    let source = SourceDraft {
        name: "main".to_owned(),
        fields: Map::from_iter([
            ("type".to_owned(), "postgres".into()),
            ("url".to_owned(), url.into()),
        ]),
        reviews: Vec::new(),
    };
    draft.source(&source);
    let home = options.schemas.first().map_or("public", String::as_str);
    for table in tables {
        let wanted = if table.schema == home {
            format!("list_{}", identifier(&table.name, "table"))
        } else {
            let (schema, name) = (
                identifier(&table.schema, "schema"),
                identifier(&table.name, "table"),
            );
            format!("list_{schema}_{name}")
        };
        let name = draft.tool_name(&wanted);
        match tool(name, table) {
            Ok(tool) => {
                draft.tool(&tool);
            }
            Err((name, reason)) => draft.leave_out_tool(&name, &reason),
        }
    }
    draft.finish()
}

fn tool(name: String, table: &Table) -> Result<ToolDraft, (String, String)> {
    let mut tool = ToolDraft {
        name,
        hints: vec!["readOnlyHint"],
        ..ToolDraft::default()
    };
    let (shown, hidden): (Vec<_>, Vec<_>) = table
        .columns
        .iter()
        .partition(|column| !classes::is_credential(&column.name));
    for column in hidden {
        tool.reviews.push(format!(
            "the column `{}` is omitted: it may contain a credential",
            column.name
        ));
    }
    if shown.is_empty() {
        return Err((tool.name, "it has no column that can be shown".to_owned()));
    }
    let kind = if table.is_view { "view" } else { "table" };
    if let Some(comment) = &table.comment {
        tool.describe(comment);
    } else {
        tool.describe(&format!("Rows of the {kind} {}.", table.name));
        tool.reviews
            .push(format!("the {kind} has no comment: describe its contents"));
    }
    let mut filters = RowFilters::new();
    for column in &shown {
        if column.is_key || column.is_indexed {
            filters.add(column);
        }
    }
    let mut keys: Vec<_> = shown
        .iter()
        .filter(|it| it.key_position.is_some())
        .collect();
    keys.sort_by_key(|column| column.key_position);
    let order: Vec<_> = keys
        .iter()
        .map(|column| quote_identifier(&column.name))
        .collect();
    if order.is_empty() {
        tool.reviews.push(format!(
            "the {kind} has no primary key: choose an order for its rows"
        ));
    }
    let columns: Vec<_> = shown
        .iter()
        .map(|column| select_expression(column))
        .collect();
    let mut statement = format!(
        "SELECT {}\nFROM {}.{}\n",
        columns.join(",\n       "),
        quote_identifier(&table.schema),
        quote_identifier(&table.name)
    );
    if !filters.conditions.is_empty() {
        statement.push_str(&format!("WHERE {}\n", filters.conditions.join("\n  AND ")));
    }
    if !order.is_empty() {
        statement.push_str(&format!("ORDER BY {}\n", order.join(", ")));
    }
    statement.push_str("LIMIT :limit\n");
    filters.properties.insert(
        "limit".to_owned(),
        json!({ "type": "integer", "default": DEFAULT_ROWS, "minimum": 1, "maximum": MAX_ROWS }),
    );
    tool.input_schema = json!({ "type": "object", "properties": filters.properties });
    tool.execute = Map::from_iter([
        ("type".to_owned(), "sql".into()),
        ("source".to_owned(), "main".into()),
        ("statement".to_owned(), statement.into()),
    ]);
    tool.suggestions = suggestions(
        table,
        &shown,
        keys.first().map(|column| column.name.as_str()),
    );
    Ok(tool)
}

/// Suggests how the rows could be governed and classified.
fn suggestions(table: &Table, columns: &[&Column], key: Option<&str>) -> Map<String, Value> {
    let classes: Map<_, _> = columns
        .iter()
        .map(|column| {
            let class = classes::suggest(&identifier(&table.name, "row"), &column.name);
            (column.name.clone(), class.into())
        })
        .collect();
    let mut suggestions = Map::new();
    suggestions.insert("entity".to_owned(), entity(&table.name).into());
    suggestions.extend(key.map(|key| ("key".to_owned(), key.into())));
    suggestions.insert("classes".to_owned(), classes.into());
    suggestions
}

/// Converts the name of a table to an entity type of policies: `medical_records` becomes `MedicalRecords`.
fn entity(table: &str) -> String {
    let words = identifier(table, "row");
    let words = words.split('_').filter(|word| !word.is_empty());
    let mut name = String::new();
    for word in words {
        let (first, rest) = word.split_at(1);
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the expression that selects the column, as text if its type has no JSON form.
fn select_expression(column: &Column) -> String {
    let name = quote_identifier(&column.name);
    if column.has_json_form() {
        name
    } else {
        format!("{name}::text AS {name}")
    }
}

/// Conditions on the rows, each of which holds if its argument is not given.
struct RowFilters {
    names: UniqueNames,
    properties: Map<String, Value>,
    conditions: Vec<String>,
}

impl RowFilters {
    fn new() -> Self {
        Self {
            names: UniqueNames::without(&["limit", "row_rule"]),
            properties: Map::new(),
            conditions: Vec::new(),
        }
    }

    /// Adds an argument for the column. A timestamp gets two arguments for a time span, because an exact microsecond is not
    /// a useful condition.
    fn add(&mut self, column: &Column) {
        let Some((mut schema, cast)) = comparison_schema(column) else {
            return;
        };
        let comment = column.comment.as_deref().unwrap_or_default();
        let description = Description::from_text(comment, MAX_DESCRIPTION).text;
        let wanted = identifier(&column.name, "column");
        let comparisons: &[(&str, &str, &str)] = match column.base.as_str() {
            "timestamp" | "timestamptz" => &[
                ("_from", ">=", "Minimum value, inclusive."),
                ("_before", "<", "Before then."),
            ],
            _ => &[("", "=", "")],
        };
        for (suffix, operator, hint) in comparisons {
            let name = self.names.unique(&format!("{wanted}{suffix}"));
            let text = format!("{hint} {description}");
            if let (Some(members), false) = (schema.as_object_mut(), text.trim().is_empty()) {
                members.insert("description".to_owned(), text.trim().into());
            }
            let value = match &cast {
                Some(cast) => format!("CAST(:{name} AS {cast})"),
                None => format!(":{name}"),
            };
            self.conditions.push(format!(
                "(:{name} IS NULL OR {} {operator} {value})",
                quote_identifier(&column.name)
            ));
            self.properties.insert(name, schema.clone());
        }
    }
}

/// Returns the schema of values that the column is compared with, and the type to which they are cast. Returns `None` for
/// types that are not compared.
fn comparison_schema(column: &Column) -> Option<(Value, Option<String>)> {
    if !column.labels.is_empty() {
        let mut schema = json!({ "type": "string" });
        if column.labels.len() <= MAX_LABELS {
            schema["enum"] = column.labels.clone().into();
        }
        let cast = format!(
            "{}.{}",
            quote_identifier(&column.base_schema),
            quote_identifier(&column.base)
        );
        return Some((schema, Some(cast)));
    }
    let text = |format: &str| json!({ "type": "string", "format": format });
    let (schema, cast) = match column.base.as_str() {
        "bool" => (json!({ "type": "boolean" }), None),
        "int2" | "int4" | "int8" => (json!({ "type": "integer" }), None),
        "float4" | "float8" => (json!({ "type": "number" }), None),
        "numeric" => (
            json!({ "type": "string", "pattern": "^-?[0-9]+([.][0-9]+)?$" }),
            Some("numeric"),
        ),
        "text" | "varchar" | "name" => (json!({ "type": "string" }), None),
        "bpchar" => (json!({ "type": "string" }), Some("bpchar")),
        "citext" => (json!({ "type": "string" }), Some("citext")),
        "uuid" => (text("uuid"), Some("uuid")),
        "date" => (text("date"), Some("date")),
        "timestamp" => (json!({ "type": "string" }), Some("timestamp")),
        "timestamptz" => (text("date-time"), Some("timestamptz")),
        _ => return None,
    };
    Some((schema, cast.map(str::to_owned)))
}

#[cfg(test)]
mod tests;
