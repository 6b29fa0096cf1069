//! The columns of a stored result: their names, their types and the order of their values.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use wardgate_json::{decimal_of, decimal_of_text, exact_number};
use wardgate_redact::{Aggregate, Row};

use crate::executor_error::ExecutorError;

/// The type of the values of a column, not counting NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// All values are NULL.
    Null,
    Boolean,
    Number,
    /// All values are strings that contain numbers. Databases return exact decimals in this form.
    Decimal,
    Text,
    /// The values are lists or objects, or have several types.
    Json,
}

impl ColumnType {
    fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if decimal_of(number).is_some() => Self::Number,
            Value::String(text) if decimal_of_text(text).is_some() => Self::Decimal,
            Value::String(_) => Self::Text,
            Value::Number(_) | Value::Array(_) | Value::Object(_) => Self::Json,
        }
    }

    /// Returns the type of a column that holds values of both types.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (same, other) if same == other => same,
            (Self::Null, known) | (known, Self::Null) => known,
            (Self::Decimal | Self::Text, Self::Decimal | Self::Text) => Self::Text,
            _ => Self::Json,
        }
    }

    /// Returns a description of the type for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL only",
            Self::Boolean => "Boolean values",
            Self::Number | Self::Decimal => "numbers",
            Self::Text => "texts",
            Self::Json => "lists, objects or values of several types",
        }
    }

    /// Returns whether the aggregate can be computed for a column of this type.
    pub(super) fn takes(self, aggregate: Aggregate) -> bool {
        match aggregate {
            Aggregate::Count => true,
            Aggregate::Min | Aggregate::Max => self != Self::Json,
            Aggregate::Sum | Aggregate::Avg => self.is_number() || self == Self::Null,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Decimal)
    }
}

/// The columns of a set of rows, in their order, and their types by name.
pub(super) struct Columns {
    names: Vec<Arc<str>>,
    types: HashMap<Arc<str>, ColumnType>,
}

impl Columns {
    pub(super) fn from_rows(rows: &[Row]) -> Self {
        let mut names = Vec::new();
        let mut types: HashMap<Arc<str>, ColumnType> = HashMap::new();
        for (name, value) in rows.iter().flat_map(Row::fields) {
            let kind = ColumnType::from_value(value);
            if let Some(known) = types.get_mut(name) {
                *known = known.join(kind);
            } else {
                names.push(Arc::clone(name));
                types.insert(Arc::clone(name), kind);
            }
        }
        Self { names, types }
    }

    /// Returns the type of the column that the member `member` of the query names. If there are no rows, the columns
    /// are unknown and every name is accepted.
    pub(super) fn get(&self, member: &str, name: &str) -> Result<ColumnType, ExecutorError> {
        if self.names.is_empty() {
            return Ok(ColumnType::Null);
        }
        self.types.get(name).copied().ok_or_else(|| {
            let known: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
            ExecutorError::BadArgument {
                text: format!(
                    "`{member}` is not a column of this result; its columns are {}",
                    known.join(", ")
                ),
            }
        })
    }
}

/// Compares two values of a column: numbers exactly, strings by their characters, and false before true. NULL and
/// absent values sort first. Lists and objects are compared by their JSON and sort after everything else.
pub(super) fn compare(kind: ColumnType, a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let (a, b) = (a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null));
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if kind.is_number()
        && let (Some(a), Some(b)) = (exact_number(a), exact_number(b))
    {
        return a.cmp(&b);
    }
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.as_str().cmp(b.as_str()),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => rank(a)
            .cmp(&rank(b))
            .then_with(|| a.to_string().cmp(&b.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn type_of(values: &[Value]) -> ColumnType {
        let rows: Vec<_> = values
            .iter()
            .map(|value| Row::new(vec![(Arc::from("c"), value.clone())]))
            .collect();
        Columns::from_rows(&rows).get("of", "c").unwrap()
    }

    #[test]
    fn a_column_has_the_type_of_its_values() {
        assert_eq!(
            type_of(&[json!(1), json!(null), json!(2.5)]),
            ColumnType::Number
        );
        assert_eq!(type_of(&[json!("1.50"), json!("-2")]), ColumnType::Decimal);
        assert_eq!(type_of(&[json!("1.50"), json!("007")]), ColumnType::Text);
        assert_eq!(type_of(&[json!("1"), json!(" 2")]), ColumnType::Text);
        assert_eq!(type_of(&[json!("1"), json!(1)]), ColumnType::Json);
        assert_eq!(type_of(&[json!(null)]), ColumnType::Null);
    }

    #[test]
    fn numbers_compare_exactly() {
        let number = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (a, b) = (
            number("12345678901234567890123"),
            number("12345678901234567890124"),
        );
        assert_eq!(
            compare(ColumnType::Number, Some(&a), Some(&b)),
            Ordering::Less
        );
        let (a, b) = (json!("9.50"), json!("10.0"));
        assert_eq!(
            compare(ColumnType::Decimal, Some(&a), Some(&b)),
            Ordering::Less
        );
        assert_eq!(
            compare(ColumnType::Text, Some(&a), Some(&b)),
            Ordering::Greater
        );
    }
}
