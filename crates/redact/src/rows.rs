//! What can be done with redacted rows: taking some of them, in another order, in part, and figures about them. Whatever
//! comes out was in them or is computed from them alone, and no caller brings a value of its own.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::{Redacted, Row};

/// A figure about the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// How many rows there are.
    Count,
    /// The sum of a column. What is no number counts for nothing.
    Sum,
    /// The mean of a column's numbers; null where there are none.
    Avg,
    /// The least value of a column.
    Min,
    /// The greatest value of a column.
    Max,
}

impl Redacted<Vec<Row>> {
    /// The rows that `keep` accepts, in their order.
    #[must_use]
    pub fn filter(self, keep: impl FnMut(&Row) -> bool) -> Self {
        let mut rows = self.into_inner();
        rows.retain(keep);
        Self::new(rows)
    }

    /// The rows in the order of `compare`; equal ones stay as they are.
    #[must_use]
    pub fn sort_by(self, compare: impl FnMut(&Row, &Row) -> Ordering) -> Self {
        let mut rows = self.into_inner();
        rows.sort_by(compare);
        Self::new(rows)
    }

    /// At most `limit` rows after the first `offset`.
    #[must_use]
    pub fn page(self, offset: usize, limit: usize) -> Self {
        let rows = self.into_inner().into_iter();
        Self::new(rows.skip(offset).take(limit).collect())
    }

    /// The rows before the first one that `keep` does not accept.
    #[must_use]
    pub fn take_while(self, keep: impl FnMut(&Row) -> bool) -> Self {
        Self::new(self.into_inner().into_iter().take_while(keep).collect())
    }

    /// The columns whose names `keep` accepts.
    #[must_use]
    pub fn columns(self, keep: impl Fn(&str) -> bool) -> Self {
        let project = |row: Row| {
            let fields = row.into_fields().into_iter();
            fields.filter(|(name, _)| keep(name)).collect()
        };
        Self::new(self.into_inner().into_iter().map(project).collect())
    }

    /// One row for each value of the column `group_by`, or one for all rows: that value, and the figure under the name of
    /// `aggregate`. It is about the column `of`, whose values are put in order by `compare`; null counts for nothing.
    #[must_use]
    pub fn figures(
        self,
        aggregate: Aggregate,
        of: Option<&str>,
        group_by: Option<&str>,
        compare: impl Fn(&Value, &Value) -> Ordering,
    ) -> Self {
        let mut groups: BTreeMap<String, (Value, Vec<&Row>)> = BTreeMap::new();
        for row in self.get() {
            let group = group_by.and_then(|column| row.get(column));
            let group = group.cloned().unwrap_or(Value::Null);
            let entry = groups.entry(group.to_string());
            entry.or_insert_with(|| (group, Vec::new())).1.push(row);
        }
        if groups.is_empty() && group_by.is_none() {
            groups.insert(String::new(), (Value::Null, Vec::new()));
        }
        // The name is the rows' own too: a column that none of them has is left out.
        let mut names = self.get().iter().flat_map(Row::fields);
        let name = group_by.and_then(|column| names.find(|(name, _)| **name == *column));
        let name = name.map(|(name, _)| Arc::clone(name));
        let figure = |(group, rows): (Value, Vec<&Row>)| {
            let mut fields = Vec::new();
            if let Some(name) = &name {
                fields.push((Arc::clone(name), group));
            }
            let values = rows.iter().filter_map(|row| row.get(of?));
            let values = values.filter(|value| !value.is_null());
            let figure = aggregate.of(rows.len(), values, &compare);
            fields.push((Arc::from(aggregate.name()), figure));
            Row::new(fields)
        };
        Self::new(groups.into_values().map(figure).collect())
    }
}

impl Aggregate {
    /// The column that holds the figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    fn of<'v>(
        self,
        rows: usize,
        values: impl Iterator<Item = &'v Value>,
        compare: impl Fn(&Value, &Value) -> Ordering,
    ) -> Value {
        let ordered = |a: &&Value, b: &&Value| compare(a, b);
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

    fn shown(rows: &Redacted<Vec<Row>>) -> Value {
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
            shown(&some.clone().columns(|name| name == "patient")),
            json!([{ "patient": "c" }, { "patient": "a" }])
        );
        assert_eq!(
            shown(&some.clone().page(1, 1)),
            json!([{ "patient": "a", "age": 3 }])
        );
        assert_eq!(shown(&some.take_while(|row| age(row) > Some(2))), json!([]));
    }

    #[test]
    fn figures_are_of_the_rows_that_are_there() {
        let by_number = |a: &Value, b: &Value| a.as_i64().cmp(&b.as_i64());
        let figure = |rows: Redacted<Vec<Row>>, aggregate, group_by| {
            shown(&rows.figures(aggregate, Some("age"), group_by, by_number))
        };
        let some = || rows(&[("a", 3), ("b", 1), ("a", 2)]);
        assert_eq!(
            figure(some(), Aggregate::Count, None),
            json!([{ "count": 3 }])
        );
        assert_eq!(
            figure(some(), Aggregate::Sum, None),
            json!([{ "sum": 6.0 }])
        );
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
