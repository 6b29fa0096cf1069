//! Conditions on the rows of a stored result.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;
use wardgate_json::exact_number;
use wardgate_redact::Row;

use super::column::{ColumnType, Columns, compare};
use crate::executor_error::ExecutorError;

/// A condition that rows must meet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Condition {
    column: String,
    op: Operator,
    #[serde(default)]
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Contains,
    IsNull,
}

impl Condition {
    /// Returns the type of the condition's column, or an error if its values cannot be compared with the condition's
    /// value.
    pub(super) fn check(&self, columns: &Columns) -> Result<ColumnType, ExecutorError> {
        let kind = columns.get("filter", &self.column)?;
        let fits = match (self.op, kind) {
            (Operator::IsNull, _) => return Ok(kind),
            _ if self.value.is_null() => {
                return Err(ExecutorError::BadArgument {
                    text: format!(
                        "the filter on `{}` requires a `value`; use the op `is_null` for NULL",
                        self.column
                    ),
                });
            }
            (_, ColumnType::Null) | (Operator::Contains, ColumnType::Json) => true,
            (Operator::Contains, ColumnType::Boolean | ColumnType::Number) => false,
            (Operator::Contains, ColumnType::Decimal) | (_, ColumnType::Text) => {
                self.value.is_string()
            }
            (_, ColumnType::Boolean) => self.value.is_boolean(),
            (_, ColumnType::Number | ColumnType::Decimal) => exact_number(&self.value).is_some(),
            (op, ColumnType::Json) => matches!(op, Operator::Eq | Operator::Ne),
        };
        if fits {
            return Ok(kind);
        }
        Err(ExecutorError::BadArgument {
            text: format!(
                "the filter on `{}`, which contains {}, has a value of another type, or an op that does not support the type",
                self.column,
                kind.name()
            ),
        })
    }

    /// Returns whether `row` meets the condition. `kind` is the type of the column.
    pub(super) fn holds(&self, kind: ColumnType, row: &Row) -> bool {
        let found = row.get(&self.column).filter(|value| !value.is_null());
        let Some(value) = found else {
            return self.op == Operator::IsNull;
        };
        let order = compare(kind, Some(value), Some(&self.value));
        match self.op {
            Operator::Eq => order == Ordering::Equal,
            Operator::Ne => order != Ordering::Equal,
            Operator::Lt => order == Ordering::Less,
            Operator::Le => order != Ordering::Greater,
            Operator::Gt => order == Ordering::Greater,
            Operator::Ge => order != Ordering::Less,
            Operator::Contains => text(value).contains(&text(&self.value)),
            Operator::IsNull => false,
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
