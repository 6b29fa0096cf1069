//! The text of a statement for one call, and the values that are bound to its placeholders.

use std::fmt::Write;
use std::sync::Arc;

use super::{SqlDialect, Statement, StatementSegment};
use crate::statement::{BoundList, BoundValue, Parameter};

/// A subquery without rows, which replaces a list without elements in databases without arrays.
const NO_ROWS: &str = "SELECT NULL WHERE FALSE";
const NO_ROWS_IN_MYSQL: &str = "SELECT NULL FROM DUAL WHERE FALSE";

struct StatementWriter {
    dialect: SqlDialect,
    sql: String,
    values: Vec<BoundValue>,
}

impl Statement {
    /// Returns the text for the database, and the values in the order of its placeholders. `identifiers` replace the names.
    /// `row_rule` is a condition whose placeholders are numbered after the parameters, with its values; without a row rule
    /// all rows pass. `params` are in the order of [`Self::params`].
    ///
    /// A list is padded to the next power of two by repeating its last element. Each distinct text is kept as a prepared
    /// statement, so there should be few.
    pub fn with_values(
        &self,
        identifiers: &[&str],
        row_rule: Option<(&str, &[BoundValue])>,
        params: &[Parameter],
    ) -> (Arc<str>, Vec<BoundValue>) {
        self.write(&self.segments, identifiers, row_rule, params)
    }

    /// Returns what [`Self::with_values`] returns, without the limit at the end of the statement. The values of the limit
    /// are left out if the placeholders have no numbers.
    pub fn without_limit(
        &self,
        identifiers: &[&str],
        row_rule: Option<(&str, &[BoundValue])>,
        params: &[Parameter],
    ) -> (Arc<str>, Vec<BoundValue>) {
        let segments = &self.segments[..self.before_limit];
        self.write(segments, identifiers, row_rule, params)
    }

    fn write(
        &self,
        segments: &[StatementSegment],
        identifiers: &[&str],
        row_rule: Option<(&str, &[BoundValue])>,
        params: &[Parameter],
    ) -> (Arc<str>, Vec<BoundValue>) {
        let (rule, rule_values) = row_rule.unwrap_or(("TRUE", &[]));
        let mut writer = StatementWriter {
            dialect: self.dialect,
            sql: String::new(),
            values: Vec::new(),
        };
        if self.dialect != SqlDialect::Mysql {
            writer
                .values
                .extend(params.iter().map(|it| self.bound_value(it)));
            writer.values.extend_from_slice(rule_values);
        }
        for segment in segments {
            match segment {
                StatementSegment::Text(text) => writer.sql.push_str(text),
                StatementSegment::Name(index) => {
                    writer.sql.push_str(identifiers.get(*index).unwrap_or(&""));
                }
                StatementSegment::Param(index) => writer.parameter(*index, params.get(*index)),
                StatementSegment::RowRule => {
                    // Writing to a `String` does not fail.
                    let _ = write!(writer.sql, "({rule})");
                    if self.dialect == SqlDialect::Mysql {
                        writer.values.extend_from_slice(rule_values);
                    }
                }
            }
        }
        (writer.sql.into(), writer.values)
    }

    /// Returns the value that is bound to the number of a parameter.
    fn bound_value(&self, param: &Parameter) -> BoundValue {
        match param {
            Parameter::One(value) => value.clone(),
            Parameter::List(kind, items) if self.dialect == SqlDialect::Postgres => {
                BoundValue::List(BoundList::from_items(*kind, items))
            }
            // The elements of the list are bound after all other values. This unused value keeps the numbers of the other
            // parameters.
            Parameter::List(..) => BoundValue::Integer(None),
        }
    }
}

impl StatementWriter {
    fn parameter(&mut self, index: usize, param: Option<&Parameter>) {
        let number = index + 1;
        match param {
            Some(Parameter::List(_, items)) if self.dialect != SqlDialect::Postgres => {
                self.elements(items);
            }
            // A prepared text has fixed parameter types, so a value of another type needs another text.
            Some(Parameter::One(BoundValue::BigInteger(_)))
                if self.dialect == SqlDialect::Postgres =>
            {
                let _ = write!(self.sql, "CAST(${number} AS numeric)");
            }
            Some(Parameter::List(kind, items)) if is_big(&BoundList::from_items(*kind, items)) => {
                let _ = write!(self.sql, "CAST(${number} AS numeric[])");
            }
            _ => self.sql.push_str(&self.dialect.placeholder(number)),
        }
        if let (Some(Parameter::One(value)), SqlDialect::Mysql) = (param, self.dialect) {
            self.values.push(value.clone());
        }
    }

    fn elements(&mut self, items: &[BoundValue]) {
        let Some(last) = items.last() else {
            self.sql.push_str(match self.dialect {
                SqlDialect::Mysql => NO_ROWS_IN_MYSQL,
                _ => NO_ROWS,
            });
            return;
        };
        let padding = items.len().next_power_of_two() - items.len();
        let padded = items.iter().chain(std::iter::repeat_n(last, padding));
        for (position, item) in padded.enumerate() {
            self.values.push(item.clone());
            let separator = if position > 0 { ", " } else { "" };
            let placeholder = self.dialect.placeholder(self.values.len());
            let _ = write!(self.sql, "{separator}{placeholder}");
        }
    }
}

fn is_big(list: &BoundList) -> bool {
    matches!(list, BoundList::BigIntegers(_))
}
