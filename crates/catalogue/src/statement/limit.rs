//! The limit at the end of a statement, which can be applied after the row rule instead of by the database.
//!
//! ```text
//!   SELECT … ORDER BY name LIMIT :n OFFSET 20     ─▶   SELECT … ORDER BY name, and of the admitted rows n after the first 20
//! ```

use bigdecimal::ToPrimitive;

use super::{BoundValue, Parameter, SqlDialect, Statement};
use crate::template::UnfitValue;

/// A limit at the end of a statement. Both numbers are optional.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrailingLimit {
    /// The position of its first word in the text.
    pub(super) at: usize,
    pub(super) skip: Option<RowNumber>,
    pub(super) take: Option<RowNumber>,
}

/// A number of rows in the text of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowNumber {
    Literal(usize),
    /// The name of a parameter.
    Param(String),
}

/// The rows that a limit selects, in the order of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRange {
    /// The number of rows that are left out at the beginning.
    pub skip: usize,
    /// The maximum number of rows after those, or `None` if there is no maximum.
    pub take: Option<usize>,
}

impl Statement {
    /// Returns the rows that the limit at the end of the statement selects, or `None` if it has no such limit. `params` are
    /// in the order of [`Self::params`].
    ///
    /// A number means what it means to the database: NULL is no limit in PostgreSQL, and so is a negative number in SQLite.
    /// A number that the database would refuse is an error. An argument of the type `number` must be whole, such as 5 or 5.0.
    pub fn limited_rows(&self, params: &[Parameter]) -> Result<Option<RowRange>, UnfitValue> {
        let Some(limit) = &self.handling.limit else {
            return Ok(None);
        };
        let number = |number: &Option<RowNumber>| match number {
            None => Ok(None),
            Some(RowNumber::Literal(number)) => Ok(Some(*number)),
            Some(RowNumber::Param(name)) => self.bound_number(name, params),
        };
        Ok(Some(RowRange {
            skip: number(&limit.skip)?.unwrap_or(0),
            take: number(&limit.take)?,
        }))
    }

    fn bound_number(&self, name: &str, params: &[Parameter]) -> Result<Option<usize>, UnfitValue> {
        let index = self.params.iter().position(|it| it == name);
        let bound = match index.and_then(|index| params.get(index)) {
            Some(Parameter::One(BoundValue::Integer(number))) => Some(*number),
            Some(Parameter::One(BoundValue::Decimal(None))) => Some(None),
            Some(Parameter::One(BoundValue::Decimal(Some(number)))) if number.is_integer() => {
                number.to_i64().map(Some)
            }
            _ => None,
        };
        match (
            bound.map(|number| number.map(usize::try_from)),
            self.dialect,
        ) {
            (Some(Some(Ok(number))), _) => Ok(Some(number)),
            (Some(Some(Err(_))), SqlDialect::Sqlite) | (Some(None), SqlDialect::Postgres) => {
                Ok(None)
            }
            _ => Err(UnfitValue {
                argument: name.to_owned(),
                problem: "is not a number of rows: a whole number that is not negative",
            }),
        }
    }
}
