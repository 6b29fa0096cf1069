//! The caller's results that were too large for an answer: paged, filtered, summed up.
//!
//! Everything here works on redacted rows, so no filter can tell what its caller may not see.

mod aggregate;
mod column;
mod filter;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use wardgate_redact::Row;

use super::{Interface, unanswered};
use crate::executor::{ExecutorError, Invocation, Output, Sources};
use crate::result::json_size;
use aggregate::{Aggregate, figures, groups};
use column::{ColumnType, Columns, compare};
use filter::Condition;

/// Rows of a page where the call does not say.
const PAGE: usize = 100;

/// Results kept for their callers.
pub(super) struct Results;

impl Interface for Results {
    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[("read", &["handle"])]
    }

    fn reads_kept_results(&self) -> bool {
        true
    }

    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        _: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            if question != "read" {
                return Err(unanswered(question));
            }
            let query = Query::deserialize(Value::Object(call.arguments.clone()))
                .map_err(|error| bad(error.to_string()))?;
            query.check()?;
            let (rows, counts) = call.kept_results.read(&query.handle, call.caller).await?;
            let mut outcome = Ok(false);
            let rows = rows.map(|rows| match query.answer(rows) {
                Ok(rows) => {
                    let (page, cut) = within(rows, out.max_bytes());
                    outcome = Ok(cut);
                    page
                }
                Err(refused) => {
                    outcome = Err(refused);
                    Vec::new()
                }
            });
            out.released(rows, counts, outcome?);
            Ok(())
        })
    }
}

/// What to take of a result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    handle: String,
    /// Columns to show; all of them where none is named.
    #[serde(default)]
    columns: Vec<String>,
    /// Rows must fit all of these.
    #[serde(default)]
    filter: Vec<Condition>,
    order_by: Option<String>,
    #[serde(default)]
    descending: bool,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    /// One figure for each group, instead of rows.
    aggregate: Option<Aggregate>,
    /// The column that is summed up.
    of: Option<String>,
    group_by: Option<String>,
}

fn bad(text: String) -> ExecutorError {
    ExecutorError::BadArgument { text }
}

impl Query {
    fn check(&self) -> Result<(), ExecutorError> {
        let complaint = match (self.aggregate, &self.of) {
            (None, Some(_)) => "`of` needs an `aggregate`",
            (None, None) if self.group_by.is_some() => "`group_by` needs an `aggregate`",
            (Some(Aggregate::Count), _) | (None, None) | (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => "`aggregate` needs the column `of`",
        };
        Err(bad(complaint.to_owned()))
    }

    /// The rows of the answer. What names no column, or compares what cannot be compared, is refused.
    fn answer(&self, mut rows: Vec<Row>) -> Result<Vec<Row>, ExecutorError> {
        let mut columns = Columns::of(&rows);
        for condition in &self.filter {
            let kind = condition.check(&columns)?;
            rows.retain(|row| condition.holds(kind, row));
        }
        if let Some(aggregate) = self.aggregate {
            rows = self.figures(aggregate, &columns, &rows)?;
            columns = Columns::of(&rows);
        }
        if let Some(column) = &self.order_by {
            let kind = columns.get("order_by", column)?;
            rows.sort_by(|a, b| {
                let order = compare(kind, a.get(column), b.get(column));
                if self.descending {
                    order.reverse()
                } else {
                    order
                }
            });
        }
        for column in &self.columns {
            columns.get("columns", column)?;
        }
        let page = rows.into_iter().skip(self.offset);
        let page = page.take(self.limit.unwrap_or(PAGE));
        Ok(page.map(|row| self.project(row)).collect())
    }

    fn project(&self, row: Row) -> Row {
        if self.columns.is_empty() {
            return row;
        }
        let fields = row.into_fields().into_iter();
        fields
            .filter(|(name, _)| self.columns.iter().any(|column| **column == **name))
            .collect()
    }

    fn figures(
        &self,
        aggregate: Aggregate,
        columns: &Columns,
        rows: &[Row],
    ) -> Result<Vec<Row>, ExecutorError> {
        let group_by = match self.group_by.as_deref() {
            Some(name) => Some((name, columns.get("group_by", name)?)),
            None => None,
        };
        let of = self.of.as_deref();
        let kind = of.map(|name| columns.get("of", name)).transpose()?;
        let kind = kind.unwrap_or(ColumnType::Null);
        if !aggregate.takes(kind) {
            return Err(bad(format!(
                "`{}` cannot be taken of `{}`, which holds {}",
                aggregate.name(),
                of.unwrap_or_default(),
                kind.name()
            )));
        }
        let groups = groups(group_by, rows).into_iter().map(|(value, rows)| {
            let values = rows.iter().filter_map(|row| row.get(of?));
            let values = values.filter(|value| !value.is_null());
            let figure = aggregate.of(rows.len(), kind, values);
            let group = group_by.map(|(name, _)| (Arc::from(name), value));
            figures(group, aggregate.name(), figure)
        });
        Ok(groups.collect())
    }
}

/// As many rows as an answer has room for, and whether there were more.
fn within(rows: Vec<Row>, max_bytes: usize) -> (Vec<Row>, bool) {
    let mut bytes = 0;
    let count = rows.len();
    let page: Vec<_> = rows
        .into_iter()
        .take_while(|row| {
            bytes += json_size(row);
            bytes <= max_bytes
        })
        .collect();
    let cut = page.len() < count;
    (page, cut)
}
