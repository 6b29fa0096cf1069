//! Operations on redacted rows: filtering, sorting, paging, projection and aggregation. Their results consist only of
//! the rows or are computed from them alone, so no caller can add a value.

use std::cmp::Ordering;
use std::sync::Arc;

use bigdecimal::BigDecimal;
use serde::Deserialize;
use serde_json::Value;
use wardgate_json::{exact_number, number_of};

use crate::{Redacted, Row};

/// Number of significant digits of a mean whose decimal expansion is longer.
const MEAN_DIGITS: u64 = 34;

/// An aggregate function over the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The number of rows.
    Count,
    /// The sum of a column. Values that are not numbers are ignored.
    Sum,
    /// The mean of a column's numbers, or null if there are none.
    Avg,
    /// The minimum of a column.
    Min,
    /// The maximum of a column.
    Max,
}

impl Redacted<Vec<Row>> {
    /// Returns the rows that `keep` accepts, in their order.
    #[must_use]
    pub fn filter(self, keep: impl FnMut(&Row) -> bool) -> Self {
        let mut rows = self.into_inner();
        rows.retain(keep);
        Self::new(rows)
    }

    /// Returns the rows in the order of `compare`. The sort is stable.
    #[must_use]
    pub fn sort_by(self, compare: impl FnMut(&Row, &Row) -> Ordering) -> Self {
        let mut rows = self.into_inner();
        rows.sort_by(compare);
        Self::new(rows)
    }

    /// Returns at most `limit` rows after the first `offset`.
    #[must_use]
    pub fn page(self, offset: usize, limit: usize) -> Self {
        let rows = self.into_inner().into_iter();
        Self::new(rows.skip(offset).take(limit).collect())
    }

    /// Returns the rows before the first one that `keep` does not accept.
    #[must_use]
    pub fn take_while(self, keep: impl FnMut(&Row) -> bool) -> Self {
        Self::new(self.into_inner().into_iter().take_while(keep).collect())
    }

    /// Returns the rows with only the columns whose names `keep` accepts.
    #[must_use]
    pub fn columns(self, keep: impl Fn(&str) -> bool) -> Self {
        let project = |row: Row| {
            let fields = row.into_fields().into_iter();
            fields.filter(|(name, _)| keep(name)).collect()
        };
        Self::new(self.into_inner().into_iter().map(project).collect())
    }

    /// Returns one row for each value of the column `group_by`, or one row for all rows. It contains that value, and
    /// the aggregate under the name of its function. `compare` orders the aggregated values, and `compare_groups` those
    /// of `group_by`, which may be absent. Null is ignored. Sums and means are exact.
    #[must_use]
    pub fn figures(
        self,
        question: &FigureQuestion<'_>,
        compare: impl Fn(&Value, &Value) -> Ordering,
        compare_groups: impl Fn(Option<&Value>, Option<&Value>) -> Ordering,
    ) -> Self {
        let mut rows: Vec<&Row> = self.get().iter().collect();
        let groups: Vec<&[&Row]> = if let Some(column) = question.group_by {
            rows.sort_by(|a, b| compare_groups(a.get(column), b.get(column)));
            let is_same = |a: &&Row, b: &&Row| compare_groups(a.get(column), b.get(column)).is_eq();
            rows.chunk_by(is_same).collect()
        } else {
            vec![rows.as_slice()]
        };
        // The name of the column is taken from the rows. A column that no row has is left out.
        let mut names = self.get().iter().flat_map(Row::fields);
        let name = question
            .group_by
            .and_then(|column| names.find(|(name, _)| **name == *column));
        let name = name.map(|(name, _)| Arc::clone(name));
        let row_of = |rows: &&[&Row]| {
            let mut fields = Vec::new();
            if let Some(name) = &name {
                let value = rows.first().and_then(|row| row.get(name)).cloned();
                fields.push((Arc::clone(name), value.unwrap_or_default()));
            }
            let values = rows.iter().filter_map(|row| row.get(question.of?));
            let values = values.filter(|value| !value.is_null());
            let figure = question.figure(rows.len(), values, &compare);
            fields.push((Arc::from(question.aggregate.name()), figure));
            Row::new(fields)
        };
        Self::new(groups.iter().map(row_of).collect())
    }
}

/// An aggregation.
#[derive(Debug, Clone, Copy)]
pub struct FigureQuestion<'a> {
    /// The aggregate function.
    pub aggregate: Aggregate,
    /// The aggregated column, or `None` for a count of rows.
    pub of: Option<&'a str>,
    /// The column whose values form the groups, or `None` for a single group.
    pub group_by: Option<&'a str>,
    /// Whether sums and means are written as texts, like databases return exact decimals.
    pub is_text: bool,
}

impl FigureQuestion<'_> {
    fn figure<'v>(
        &self,
        rows: usize,
        values: impl Iterator<Item = &'v Value>,
        compare: impl Fn(&Value, &Value) -> Ordering,
    ) -> Value {
        let ordered = |a: &&Value, b: &&Value| compare(a, b);
        match self.aggregate {
            Aggregate::Count => rows.into(),
            Aggregate::Min => values.min_by(ordered).cloned().unwrap_or_default(),
            Aggregate::Max => values.max_by(ordered).cloned().unwrap_or_default(),
            Aggregate::Sum => self.format_figure(&values.filter_map(exact_number).sum()),
            Aggregate::Avg => {
                let numbers: Vec<_> = values.filter_map(exact_number).collect();
                let count = numbers.len() as u64;
                if count == 0 {
                    return Value::Null;
                }
                self.format_figure(&mean(&numbers.into_iter().sum(), count))
            }
        }
    }

    fn format_figure(&self, figure: &BigDecimal) -> Value {
        if self.is_text {
            return Value::from(figure.to_plain_string());
        }
        number_of(figure).map_or(Value::Null, Value::Number)
    }
}

fn mean(sum: &BigDecimal, count: u64) -> BigDecimal {
    let mean = (sum / BigDecimal::from(count)).normalized();
    if mean.digits() > MEAN_DIGITS {
        mean.with_prec(MEAN_DIGITS).normalized()
    } else {
        mean
    }
}

impl Aggregate {
    /// Returns the name of the column that holds the aggregate.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(patients: &[(&str, i64)]) -> Redacted<Vec<Row>> {
        let (patient, age): (Arc<str>, Arc<str>) = ("patient".into(), "age".into());
        let row = |(name, years): &(&str, i64)| {
            Row::new(vec![
                (patient.clone(), json!(name)),
                (age.clone(), json!(years)),
            ])
        };
        Redacted::new(patients.iter().map(row).collect())
    }

    fn to_json(rows: &Redacted<Vec<Row>>) -> Value {
        serde_json::to_value(rows).unwrap()
    }

    #[test]
    fn rows_are_taken_in_another_order_and_in_part() {
        let all = rows(&[("a", 3), ("b", 1), ("c", 2)]);
        let age = |row: &Row| row.get("age").and_then(Value::as_i64);
        let some = all
            .filter(|row| age(row) > Some(1))
            .sort_by(|a, b| age(a).cmp(&age(b)));
        assert_eq!(
            to_json(&some.clone().columns(|name| name == "patient")),
            json!([{ "patient": "c" }, { "patient": "a" }])
        );
        assert_eq!(
            to_json(&some.clone().page(1, 1)),
            json!([{ "patient": "a", "age": 3 }])
        );
        assert_eq!(
            to_json(&some.take_while(|row| age(row) > Some(2))),
            json!([])
        );
    }

    #[test]
    fn figures_are_of_the_rows_that_are_there() {
        let by_number = |a: &Value, b: &Value| a.as_i64().cmp(&b.as_i64());
        let by_text = |a: Option<&Value>, b: Option<&Value>| {
            let text = |value: Option<&Value>| value.map(Value::to_string);
            text(a).cmp(&text(b))
        };
        let figure = |rows: Redacted<Vec<Row>>, aggregate, group_by| {
            let question = FigureQuestion {
                aggregate,
                of: Some("age"),
                group_by,
                is_text: false,
            };
            to_json(&rows.figures(&question, by_number, by_text))
        };
        let some = || rows(&[("a", 3), ("b", 1), ("a", 2)]);
        assert_eq!(
            figure(some(), Aggregate::Count, None),
            json!([{ "count": 3 }])
        );
        assert_eq!(figure(some(), Aggregate::Sum, None), json!([{ "sum": 6 }]));
        assert_eq!(
            figure(some(), Aggregate::Max, Some("patient")),
            json!([{ "patient": "a", "max": 3 }, { "patient": "b", "max": 1 }])
        );
        assert_eq!(
            figure(rows(&[]), Aggregate::Avg, None),
            json!([{ "avg": null }])
        );
    }
}
