//! `interface: catalog`: the databases, tables and columns of the configured sources.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{Interface, not_implemented_error};
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::ExecutorError;
use wardgate_catalogue::{BoundValue, SqlDialect};
use wardgate_sql::Database;

/// The interface that lists the SQL sources. Each source is a database under its own name.
pub(super) struct Catalog;

impl Interface for Catalog {
    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let answer = async {
                match question {
                    "get_all_databases" => Ok(sources.databases().map(|(name, _)| name).collect()),
                    "get_tables" => {
                        let database = database(call.arguments, sources)?;
                        rows(&database, tables(database.dialect()), &[]).await
                    }
                    "get_columns" => {
                        let database = database(call.arguments, sources)?;
                        let table = text(call.arguments, "table")?;
                        let found = rows(&database, columns(database.dialect()), &[table]).await?;
                        if found == Value::Array(Vec::new()) {
                            return Err(unknown("table", "is not a table of this database"));
                        }
                        Ok(found)
                    }
                    other => Err(not_implemented_error(other)),
                }
            };
            out.document(answer.await?).map(drop)
        })
    }
}

fn tables(dialect: SqlDialect) -> &'static str {
    match dialect {
        SqlDialect::Sqlite => {
            "SELECT name AS table_name, type AS table_type FROM sqlite_schema
             WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        }
        SqlDialect::Postgres => {
            "SELECT table_name::text, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS table_type
             FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY table_name"
        }
        SqlDialect::Mysql => {
            "SELECT table_name AS table_name, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS table_type
             FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
        }
    }
}

fn columns(dialect: SqlDialect) -> &'static str {
    match dialect {
        SqlDialect::Sqlite => {
            "SELECT name AS column_name, lower(type) AS data_type, \"notnull\" = 0 AS nullable
             FROM pragma_table_info(?1) ORDER BY cid"
        }
        SqlDialect::Postgres => {
            "SELECT column_name::text, data_type::text, is_nullable = 'YES' AS nullable
             FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1
             ORDER BY ordinal_position"
        }
        SqlDialect::Mysql => {
            "SELECT column_name AS column_name, data_type AS data_type, is_nullable = 'YES' AS nullable
             FROM information_schema.columns WHERE table_schema = DATABASE()
             AND CONVERT(table_name USING utf8mb4) COLLATE utf8mb4_bin = ? ORDER BY ordinal_position"
        }
    }
}

async fn rows(database: &Database, sql: &str, values: &[&str]) -> Result<Value, ExecutorError> {
    let values: Vec<_> = values
        .iter()
        .map(|value| BoundValue::Text(Some((*value).to_owned())))
        .collect();
    let mut rows = Vec::new();
    let mut sink = |row: wardgate_redact::Row| {
        let members = row.into_fields().into_iter();
        rows.push(
            members
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
        );
        ControlFlow::Continue(())
    };
    database
        .query(true, Arc::from(sql), &values, &mut sink)
        .await?;
    Ok(Value::Array(rows))
}

fn database(
    arguments: &Map<String, Value>,
    sources: &Sources,
) -> Result<Arc<Database>, ExecutorError> {
    let wanted = text(arguments, "database")?;
    sources
        .databases()
        .find(|(name, _)| *name == wanted)
        .map(|(_, database)| database)
        .ok_or_else(|| unknown("database", "is not a configured database"))
}

fn text<'v>(arguments: &'v Map<String, Value>, name: &str) -> Result<&'v str, ExecutorError> {
    let text = arguments.get(name).and_then(Value::as_str);
    text.ok_or_else(|| unknown(name, "must be a string"))
}

fn unknown(argument: &str, problem: &str) -> ExecutorError {
    ExecutorError::BadArgument {
        text: format!("`{argument}` {problem}"),
    }
}
