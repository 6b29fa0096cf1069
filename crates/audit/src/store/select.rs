//! The two selections, written once for both stores.
//!
//! Only conditions that are set appear in the text, so that the planner can pick the index; values are
//! always bound, never written into the text.

use std::ops::Range;

use sqlx::{AssertSqlSafe, PgPool, SqlitePool};
use wardgate_domain::Status;

use super::{Row, signed};
use crate::canonical::column;
use crate::query::Filter;

/// Which part of a selection to read.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// Sequences to look at.
    pub(crate) range: Range<u64>,
    /// At most so many records.
    pub(crate) limit: u64,
    pub(crate) newest_first: bool,
}

enum Value {
    Text(String),
    Integer(i64),
}

/// A statement with its values.
pub(super) struct Selection {
    sql: String,
    values: Vec<Value>,
}

impl Selection {
    fn from(table: &'static str) -> Self {
        let sql =
            format!("SELECT sequence, leaf_hash, canonical FROM {table} AS record WHERE TRUE");
        Self {
            sql,
            values: Vec::new(),
        }
    }

    fn value(&mut self, value: Value) {
        self.values.push(value);
        self.sql.push('$');
        self.sql.push_str(&self.values.len().to_string());
    }

    fn and(&mut self, condition: &'static str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.value(value);
    }

    fn and_text(&mut self, condition: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.and(condition, Value::Text(column(text)));
        }
    }

    fn page(mut self, page: &Page) -> Self {
        self.and("sequence >= ", Value::Integer(signed(page.range.start)));
        self.and("sequence < ", Value::Integer(signed(page.range.end)));
        self.sql.push_str(" ORDER BY sequence ");
        self.sql.push_str(if page.newest_first {
            "DESC LIMIT "
        } else {
            "ASC LIMIT "
        });
        self.value(Value::Integer(signed(page.limit)));
        self
    }

    pub(super) async fn sqlite(self, pool: &SqlitePool) -> Result<Vec<Row>, sqlx::Error> {
        let query = sqlx::query_as(AssertSqlSafe(self.sql)).persistent(false);
        self.values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Text(text) => query.bind(text),
                Value::Integer(number) => query.bind(number),
            })
            .fetch_all(pool)
            .await
    }

    pub(super) async fn postgres(self, pool: &PgPool) -> Result<Vec<Row>, sqlx::Error> {
        // Under a name, of which there are few: a pooler keeps no others from one transaction to the next.
        let query = sqlx::query_as(AssertSqlSafe(self.sql));
        self.values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Text(text) => query.bind(text),
                Value::Integer(number) => query.bind(number),
            })
            .fetch_all(pool)
            .await
    }
}

/// The records that match `filter`.
pub(super) fn matching(table: &'static str, filter: &Filter, page: &Page) -> Selection {
    let mut selection = Selection::from(table);
    selection.and_text("subject = ", filter.subject.as_deref());
    selection.and_text("tool = ", filter.tool.as_deref());
    selection.and_text(
        "call_id = ",
        filter.call_id.map(|id| id.to_string()).as_deref(),
    );
    selection.and_text("status = ", filter.status.map(Status::as_str));
    if let Some(since) = filter.since {
        selection.and("time >= ", Value::Integer(since.as_micros()));
    }
    if let Some(until) = filter.until {
        selection.and("time < ", Value::Integer(until.as_micros()));
    }
    selection.page(page)
}

/// The intents without an outcome.
pub(super) fn open_intents(table: &'static str, page: &Page) -> Selection {
    let mut selection = Selection::from(table);
    selection
        .sql
        .push_str(" AND event = 'intent' AND NOT EXISTS (SELECT 1 FROM ");
    selection.sql.push_str(table);
    selection.sql.push_str(
        " AS outcome WHERE outcome.call_id = record.call_id AND outcome.event = 'outcome')",
    );
    selection.page(page)
}
