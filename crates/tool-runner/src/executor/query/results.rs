//! The caller's results that were too large for an answer: paged, filtered, summed up.
//!
//! Everything here works on redacted rows, so no filter can tell what its caller may not see.

use std::cmp::Ordering;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use wardgate_redact::{Aggregate, Redacted, Row};

use super::{Interface, unanswered};
use crate::executor::{ExecutorError, Invocation, Output, Sources};
use crate::result::json_size;

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
            let (page, truncated) = within(query.of(rows), out.max_bytes());
            out.released(page, counts, truncated);
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    column: String,
    op: Op,
    #[serde(default)]
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Contains,
    IsNull,
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

    /// The rows of the answer.
    fn of(&self, rows: Redacted<Vec<Row>>) -> Redacted<Vec<Row>> {
        let mut rows = rows.filter(|row| self.filter.iter().all(|condition| condition.holds(row)));
        if let Some(aggregate) = self.aggregate {
            let by_value = |a: &Value, b: &Value| compare(Some(a), Some(b));
            let (of, group_by) = (self.of.as_deref(), self.group_by.as_deref());
            rows = rows.figures(aggregate, of, group_by, by_value);
        }
        if let Some(column) = &self.order_by {
            rows = rows.sort_by(|a, b| {
                let order = compare(a.get(column), b.get(column));
                if self.descending {
                    order.reverse()
                } else {
                    order
                }
            });
        }
        let page = rows.page(self.offset, self.limit.unwrap_or(PAGE));
        if self.columns.is_empty() {
            return page;
        }
        page.columns(|name| self.columns.iter().any(|column| **column == *name))
    }
}

impl Condition {
    fn holds(&self, row: &Row) -> bool {
        let found = row.get(&self.column).filter(|value| !value.is_null());
        let Some(value) = found else {
            return self.op == Op::IsNull;
        };
        let order = compare(Some(value), Some(&self.value));
        match self.op {
            Op::Eq => order == Ordering::Equal,
            Op::Ne => order != Ordering::Equal,
            Op::Lt => order == Ordering::Less,
            Op::Le => order != Ordering::Greater,
            Op::Gt => order == Ordering::Greater,
            Op::Ge => order != Ordering::Less,
            Op::Contains => text(value).contains(&text(&self.value)),
            Op::IsNull => false,
        }
    }
}

/// Numbers by size, everything else by its text; what is absent comes first.
fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => match (a.as_i64(), b.as_i64(), a.as_f64(), b.as_f64()) {
            (Some(a), Some(b), ..) => a.cmp(&b),
            (_, _, Some(a), Some(b)) => a.total_cmp(&b),
            _ => text(a).cmp(&text(b)),
        },
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// As many rows as an answer has room for, and whether there were more.
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
