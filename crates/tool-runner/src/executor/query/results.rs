//! The caller's results that were too large for an answer: paged, filtered, summed up.
//!
//! Everything here works on redacted rows, so no filter can tell what its caller may not see.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use wardgate_redact::Row;

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
            let mut truncated = false;
            let rows = rows.map(|rows| {
                let (page, cut) = within(query.of(rows), out.max_bytes());
                truncated = cut;
                page
            });
            out.released(rows, counts, truncated);
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Aggregate {
    Count,
    Sum,
    Avg,
    Min,
    Max,
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
    fn of(&self, rows: Vec<Row>) -> Vec<Row> {
        let mut rows: Vec<_> = rows
            .into_iter()
            .filter(|row| self.filter.iter().all(|condition| condition.holds(row)))
            .collect();
        if let Some(aggregate) = self.aggregate {
            rows = self.figures(aggregate, &rows);
        }
        if let Some(column) = &self.order_by {
            rows.sort_by(|a, b| {
                let order = compare(a.get(column), b.get(column));
                if self.descending {
                    order.reverse()
                } else {
                    order
                }
            });
        }
        let page = rows.into_iter().skip(self.offset);
        page.take(self.limit.unwrap_or(PAGE))
            .map(|row| self.project(row))
            .collect()
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

    fn figures(&self, aggregate: Aggregate, rows: &[Row]) -> Vec<Row> {
        let mut groups: BTreeMap<String, (Value, Vec<&Row>)> = BTreeMap::new();
        for row in rows {
            let group = self.group_by.as_deref().and_then(|column| row.get(column));
            let group = group.cloned().unwrap_or(Value::Null);
            let entry = groups.entry(group.to_string());
            entry.or_insert_with(|| (group, Vec::new())).1.push(row);
        }
        if groups.is_empty() && self.group_by.is_none() {
            groups.insert(String::new(), (Value::Null, Vec::new()));
        }
        let figure = |(group, rows): (Value, Vec<&Row>)| {
            let mut fields = Vec::new();
            if let Some(column) = &self.group_by {
                fields.push((Arc::from(column.as_str()), group));
            }
            let column = self.of.as_deref();
            let values = rows.iter().filter_map(|row| row.get(column?));
            let figure = aggregate.of(rows.len(), values.filter(|value| !value.is_null()));
            fields.push((Arc::from(aggregate.name()), figure));
            Row::new(fields)
        };
        groups.into_values().map(figure).collect()
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

impl Aggregate {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// The figure of one group of `rows` rows. What is no number counts for nothing in sums.
    fn of<'v>(self, rows: usize, values: impl Iterator<Item = &'v Value>) -> Value {
        let ordered = |a: &&Value, b: &&Value| compare(Some(a), Some(b));
        match self {
            Self::Count => rows.into(),
            Self::Min => values.min_by(ordered).cloned().unwrap_or_default(),
            Self::Max => values.max_by(ordered).cloned().unwrap_or_default(),
            Self::Sum | Self::Avg => {
                let numbers: Vec<f64> = values.filter_map(Value::as_f64).collect();
                let sum: f64 = numbers.iter().sum();
                let count = numbers.iter().map(|_| 1.0).sum::<f64>();
                match self {
                    Self::Avg if numbers.is_empty() => Value::Null,
                    Self::Avg => Value::from(sum / count),
                    _ => Value::from(sum),
                }
            }
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
