//! Columns of types that have no form in JSON, as the text that the server writes of their values.

use std::fmt::Write;
use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgTypeInfo};
use sqlx::{AssertSqlSafe, Column, Executor, SqlSafeStr, Statement};

use super::value::ValueReader;
use wardgate_catalogue::SqlDialect;

/// What the rows of the configured statement are called in the one around it.
const ROWS: &str = "wardgate_rows";

/// `sql`, or the statement around it that gives such columns as text. To learn the types costs no round trip: a
/// statement is prepared before its first run in any case, and stays so.
///
/// Where there can be no such statement (a column is named twice, or a `WITH` that writes cannot stand inside another),
/// it is `sql` itself.
pub(super) async fn with_texts(
    connection: &mut PgConnection,
    sql: Arc<str>,
    types: &[PgTypeInfo],
) -> Result<Arc<str>, sqlx::Error> {
    let prepared = prepare(connection, Arc::clone(&sql), types).await;
    let prepared = prepared.map_err(|error| match error {
        // The driver looks a type up that it does not know, and may not know what it finds.
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

/// `None` where every column has a form in JSON. The rows are materialized, so they stay in their order.
fn around(sql: &str, columns: &[sqlx::postgres::PgColumn]) -> Option<String> {
    let is_readable =
        |column: &sqlx::postgres::PgColumn| ValueReader::of(column.type_info()).is_some();
    if columns.iter().all(is_readable) {
        return None;
    }
    let mut around = format!("WITH {ROWS} AS MATERIALIZED (\n{sql}\n) SELECT ");
    for (position, column) in columns.iter().enumerate() {
        let separator = if position > 0 { ", " } else { "" };
        let name = SqlDialect::Postgres.identifier(column.name());
        let text = if is_readable(column) { "" } else { "::text" };
        // Writing to a `String` does not fail.
        let _ = write!(around, "{separator}{ROWS}.{name}{text} AS {name}");
    }
    let _ = write!(around, " FROM {ROWS}");
    Some(around)
}
