//! Figures of a kept result: one for each group of its rows.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use serde::Deserialize;
use serde_json::Value;
use wardgate_arguments::number_of;
use wardgate_redact::Row;

use super::column::{ColumnType, compare, number};

/// Significant digits of a mean that has no end.
const MEAN_DIGITS: u64 = 34;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aggregate {
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

impl Aggregate {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Whether it can be taken of a column of type `kind`.
    pub(super) fn takes(self, kind: ColumnType) -> bool {
        match self {
            Self::Count => true,
            Self::Min | Self::Max => kind != ColumnType::Json,
            Self::Sum | Self::Avg => kind.is_number() || kind == ColumnType::Null,
        }
    }

    /// The figure of one group of `rows` rows: exact, and written as the values of the column are.
    pub(super) fn of<'v>(
        self,
        rows: usize,
        kind: ColumnType,
        values: impl Iterator<Item = &'v Value>,
    ) -> Value {
        let ordered = |a: &&Value, b: &&Value| compare(kind, Some(a), Some(b));
        match self {
            Self::Count => rows.into(),
            Self::Min => values.min_by(ordered).cloned().unwrap_or_default(),
            Self::Max => values.max_by(ordered).cloned().unwrap_or_default(),
            Self::Sum | Self::Avg => {
                let numbers: Vec<_> = values.filter_map(number).collect();
                let count = numbers.len() as u64;
                let sum: BigDecimal = numbers.into_iter().sum();
                match self {
                    Self::Avg if count == 0 => Value::Null,
                    Self::Avg => written(&mean(&sum, count), kind),
                    _ => written(&sum, kind),
                }
            }
        }
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

fn written(figure: &BigDecimal, kind: ColumnType) -> Value {
    match kind {
        ColumnType::Decimal => Value::from(figure.to_plain_string()),
        _ => number_of(figure).map_or(Value::Null, Value::Number),
    }
}

/// The rows of each group with the value that they share, in the order of that value.
pub(super) fn groups<'r>(
    column: Option<(&str, ColumnType)>,
    rows: &'r [Row],
) -> Vec<(Value, Vec<&'r Row>)> {
    let Some((column, kind)) = column else {
        return vec![(Value::Null, rows.iter().collect())];
    };
    let mut sorted: Vec<_> = rows.iter().collect();
    sorted.sort_by(|a, b| compare(kind, a.get(column), b.get(column)));
    let same = |a: &&Row, b: &&Row| compare(kind, a.get(column), b.get(column)).is_eq();
    sorted
        .chunk_by(same)
        .map(|rows| {
            let value = rows.first().and_then(|row| row.get(column));
            (value.cloned().unwrap_or_default(), rows.to_vec())
        })
        .collect()
}

/// One row of figures.
pub(super) fn figures(group: Option<(Arc<str>, Value)>, name: &str, figure: Value) -> Row {
    let mut fields: Vec<_> = group.into_iter().collect();
    fields.push((Arc::from(name), figure));
    Row::new(fields)
}
