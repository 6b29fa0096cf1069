//! `interface: results`: paging, filtering and aggregation of stored results that were too large for a response.
//!
//! All operations work on redacted rows, so a filter cannot reveal what its caller may not see.

mod column;
mod filter;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use wardgate_redact::{Aggregate, FigureQuestion, Redacted, Row};

use super::{Interface, not_implemented_error};
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::ExecutorError;
use crate::result::json_size;
use column::{ColumnType, Columns, compare};
use filter::Condition;

/// Default number of rows per page.
const PAGE: usize = 100;

/// The interface to the stored results of callers.
pub(super) struct Results;

impl Interface for Results {
    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        _: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            if question != "read" {
                return Err(not_implemented_error(question));
            }
            let query = Query::deserialize(Value::Object(call.arguments.clone()))
                .map_err(|error| bad(error.to_string()))?;
            query.check()?;
            let (rows, counts) = call
                .large_results
                .read_rows(&query.handle, call.caller)
                .await?;
            let (rows, truncated) = within(query.answer(rows)?, out.max_bytes());
            out.set_released_rows(rows, counts, truncated);
            Ok(())
        })
    }
}

/// A query on a stored result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    handle: String,
    /// The columns to show. All columns are shown if the list is empty.
    #[serde(default)]
    columns: Vec<String>,
    /// The conditions, all of which a row must meet.
    #[serde(default)]
    filter: Vec<Condition>,
    order_by: Option<String>,
    #[serde(default)]
    descending: bool,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
    /// The aggregate to compute for each group, or `None` to return rows.
    aggregate: Option<Aggregate>,
    /// The column that is aggregated.
    of: Option<String>,
    group_by: Option<String>,
}

fn bad(text: String) -> ExecutorError {
    ExecutorError::BadArgument { text }
}

impl Query {
    fn check(&self) -> Result<(), ExecutorError> {
        let complaint = match (self.aggregate, &self.of) {
            (None, Some(_)) => "`of` requires an `aggregate`",
            (None, None) if self.group_by.is_some() => "`group_by` requires an `aggregate`",
            (Some(Aggregate::Count), _) | (None, None) | (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => "`aggregate` requires the column `of`",
        };
        Err(bad(complaint.to_owned()))
    }

    /// Returns the rows of the answer. A query that names an unknown column or compares incomparable values is an
    /// error.
    fn answer(&self, mut rows: Redacted<Vec<Row>>) -> Result<Redacted<Vec<Row>>, ExecutorError> {
        let mut columns = Columns::from_rows(rows.get());
        for condition in &self.filter {
            let kind = condition.check(&columns)?;
            rows = rows.filter(|row| condition.holds(kind, row));
        }
        if let Some(aggregate) = self.aggregate {
            rows = self.figures(aggregate, &columns, rows)?;
            columns = Columns::from_rows(rows.get());
        }
        if let Some(column) = &self.order_by {
            let kind = columns.get("order_by", column)?;
            rows = rows.sort_by(|a, b| {
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
        let page = rows.page(self.offset, self.limit.unwrap_or(PAGE));
        if self.columns.is_empty() {
            return Ok(page);
        }
        Ok(page.columns(|name| self.columns.iter().any(|column| **column == *name)))
    }

    fn figures(
        &self,
        aggregate: Aggregate,
        columns: &Columns,
        rows: Redacted<Vec<Row>>,
    ) -> Result<Redacted<Vec<Row>>, ExecutorError> {
        let of = self.of.as_deref();
        let kind = of.map(|name| columns.get("of", name)).transpose()?;
        let kind = kind.unwrap_or(ColumnType::Null);
        let group_by = self.group_by.as_deref();
        let group_kind = group_by.map(|name| columns.get("group_by", name));
        let group_kind = group_kind.transpose()?.unwrap_or(ColumnType::Null);
        if !kind.takes(aggregate) {
            return Err(bad(format!(
                "`{}` cannot be computed for `{}`, which contains {}",
                aggregate.name(),
                of.unwrap_or_default(),
                kind.name()
            )));
        }
        let question = FigureQuestion {
            aggregate,
            of,
            group_by,
            is_text: kind == ColumnType::Decimal,
        };
        Ok(rows.figures(
            &question,
            |a, b| compare(kind, Some(a), Some(b)),
            |a, b| compare(group_kind, a, b),
        ))
    }
}

/// Returns as many rows as fit into a response, and whether the rest was cut off.
fn within(rows: Redacted<Vec<Row>>, max_bytes: usize) -> (Redacted<Vec<Row>>, bool) {
    let mut bytes = 0;
    let count = rows.get().len();
    let page = rows.take_while(|row| {
        bytes += json_size(row);
        bytes <= max_bytes
    });
    let cut = page.get().len() < count;
    (page, cut)
}
