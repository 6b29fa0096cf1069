//! Reads columns whose types have no JSON form as the text that the server writes for their values.

use std::fmt::Write;
use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgTypeInfo};
use sqlx::{AssertSqlSafe, Column, Executor, SqlSafeStr, Statement};

use super::value::ValueReader;
use wardgate_catalogue::SqlDialect;

/// Name of the configured statement's rows in the statement that wraps it.
const ROWS: &str = "wardgate_rows";

/// Returns `sql`, or a statement that wraps it and casts columns without a JSON form to text. Determining the column
/// types costs no extra round trip, because a statement is prepared before its first run in any case and stays
/// prepared.
///
/// If `sql` cannot be wrapped, because two columns have the same name or because a `WITH` that writes is not allowed in
/// a subquery, `sql` itself is returned.
pub(super) async fn with_texts(
    connection: &mut PgConnection,
    sql: Arc<str>,
    types: &[PgTypeInfo],
) -> Result<Arc<str>, sqlx::Error> {
    let prepared = prepare(connection, Arc::clone(&sql), types).await;
    let prepared = prepared.map_err(|error| match error {
        // The driver looks up an unknown type and may not support what it finds.
        sqlx::Error::Protocol(_) | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
            sqlx::Error::TypeNotFound {
                type_name: String::new(),
            }
        }
        error => error,
    })?;
    let Some(around) = around(&sql, prepared.columns()) else {
        return Ok(sql);
    };
    let around: Arc<str> = around.into();
    match prepare(connection, Arc::clone(&around), types).await {
        Ok(_) => Ok(around),
        Err(sqlx::Error::Database(_)) => Ok(sql),
        Err(error) => Err(error),
    }
}

async fn prepare(
    connection: &mut PgConnection,
    sql: Arc<str>,
    types: &[PgTypeInfo],
) -> Result<sqlx::postgres::PgStatement, sqlx::Error> {
    let sql = AssertSqlSafe(sql).into_sql_str();
    connection.prepare_with(sql, types).await
}

/// Returns the wrapping statement, or `None` if every column has a JSON form. The rows are materialized, so they keep
/// their order.
fn around(sql: &str, columns: &[sqlx::postgres::PgColumn]) -> Option<String> {
    let is_readable =
        |column: &sqlx::postgres::PgColumn| ValueReader::for_type(column.type_info()).is_some();
    if columns.iter().all(is_readable) {
        return None;
    }
    let mut around = format!("WITH {ROWS} AS MATERIALIZED (\n{sql}\n) SELECT ");
    for (position, column) in columns.iter().enumerate() {
        let separator = if position > 0 { ", " } else { "" };
        let name = SqlDialect::Postgres.identifier(column.name());
        let text = if is_readable(column) { "" } else { "::text" };
        // Writing to a `String` cannot fail.
        let _ = write!(around, "{separator}{ROWS}.{name}{text} AS {name}");
    }
    let _ = write!(around, " FROM {ROWS}");
    Some(around)
}
