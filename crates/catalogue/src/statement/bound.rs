//! Values that are bound to a statement. They are never part of its text and are never rounded.
//!
//! ```text
//!                   PostgreSQL             MariaDB, MySQL       SQLite
//!   Integer         int8                   BIGINT               INTEGER
//!   BigInteger      numeric, by a cast     DECIMAL              TEXT
//!   Decimal         numeric                DECIMAL              REAL if that keeps all digits, else INTEGER or TEXT
//!   List            an array               as many values       as many values
//! ```

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use serde_json::Value;
use wardgate_arguments::JsonType;
use wardgate_json::{MAX_DIGITS, decimal_of};

use super::SqlDialect;

/// Maximum number of elements of a bound list.
const MAX_LIST: usize = 1_000;

/// Maximum number of digits of a DECIMAL of MySQL and MariaDB, in total and after the decimal point (MariaDB would have
/// 38).
const MYSQL_DIGITS: (i64, i64) = (65, 30);

/// A value bound to a placeholder. `None` is NULL of that type.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundValue {
    /// A text.
    Text(Option<String>),
    /// An integer.
    Integer(Option<i64>),
    /// An integer beyond 64 bits, of a parameter whose other values are bound as [`Self::Integer`].
    BigInteger(BigDecimal),
    /// A number with all of its digits.
    Decimal(Option<BigDecimal>),
    /// A boolean.
    Boolean(Option<bool>),
    /// A list, for databases that have arrays.
    List(BoundList),
}

/// The elements of a list. `None` is NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundList {
    /// Texts.
    Texts(Vec<Option<String>>),
    /// Integers.
    Integers(Vec<Option<i64>>),
    /// Integers, at least one of which is beyond 64 bits.
    BigIntegers(Vec<Option<BigDecimal>>),
    /// Numbers with all of their digits.
    Decimals(Vec<Option<BigDecimal>>),
    /// Booleans.
    Booleans(Vec<Option<bool>>),
}

/// The declared type of a parameter of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// One value.
    One(JsonType),
    /// A list of values of that type.
    List(JsonType),
}

/// The value of one parameter of a statement in one call.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// One value.
    One(BoundValue),
    /// The elements of a list, of one type.
    List(JsonType, Vec<BoundValue>),
}

/// The reason why an argument cannot be bound. Its message follows the name of the argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnbindableArgument {
    #[error("has more than {MAX_DIGITS} digits when written without an exponent")]
    TooLong,
    #[error(
        "has more digits than a DECIMAL of this database: {} in total, {} after the decimal point",
        MYSQL_DIGITS.0,
        MYSQL_DIGITS.1
    )]
    NoDecimal,
    #[error("has more than {MAX_LIST} elements")]
    TooMany,
}

impl Parameter {
    /// Converts the value of an argument, which must fit its schema. A missing or null argument is NULL, or a list without
    /// elements.
    pub fn from_value(
        kind: ParameterType,
        value: Option<&Value>,
        dialect: SqlDialect,
    ) -> Result<Self, UnbindableArgument> {
        match (kind, value) {
            (ParameterType::One(kind), value) => {
                BoundValue::from_value(kind, value, dialect).map(Self::One)
            }
            (ParameterType::List(kind), Some(Value::Array(items))) => {
                if items.len() > MAX_LIST {
                    return Err(UnbindableArgument::TooMany);
                }
                let items = items
                    .iter()
                    .map(|item| BoundValue::from_value(kind, Some(item), dialect));
                Ok(Self::List(kind, items.collect::<Result<_, _>>()?))
            }
            (ParameterType::List(kind), _) => Ok(Self::List(kind, Vec::new())),
        }
    }
}

impl BoundValue {
    /// Returns NULL of the type as which values of `kind` are bound.
    pub fn null(kind: JsonType) -> Self {
        match kind {
            JsonType::Integer => Self::Integer(None),
            JsonType::Number => Self::Decimal(None),
            JsonType::Boolean => Self::Boolean(None),
            // Values of all other types are bound as text.
            _ => Self::Text(None),
        }
    }

    fn from_value(
        kind: JsonType,
        value: Option<&Value>,
        dialect: SqlDialect,
    ) -> Result<Self, UnbindableArgument> {
        let number = match value {
            Some(Value::Number(number)) => {
                let value = decimal_of(number).ok_or(UnbindableArgument::TooLong)?;
                Some(storable(value, dialect)?)
            }
            _ => None,
        };
        Ok(match (kind, number) {
            (JsonType::Integer, Some(number)) => match number.to_i64() {
                Some(number) => Self::Integer(Some(number)),
                None => Self::BigInteger(number),
            },
            (JsonType::Integer, None) => Self::Integer(None),
            (JsonType::Number, number) => Self::Decimal(number),
            (JsonType::Boolean, _) => Self::Boolean(value.and_then(Value::as_bool)),
            // Values of all other types are bound as text.
            _ => Self::Text(value.and_then(Value::as_str).map(str::to_owned)),
        })
    }
}

/// Returns the number in a form that the database can store. Trailing zeros are removed if there are too many digits.
fn storable(number: BigDecimal, dialect: SqlDialect) -> Result<BigDecimal, UnbindableArgument> {
    if dialect != SqlDialect::Mysql || fits_mysql(&number) {
        return Ok(number);
    }
    Some(number.normalized())
        .filter(fits_mysql)
        .ok_or(UnbindableArgument::NoDecimal)
}

fn fits_mysql(number: &BigDecimal) -> bool {
    let fraction = number.fractional_digit_count().max(0);
    let digits = if number.is_zero() {
        0
    } else {
        number.order_of_magnitude().saturating_add(1).max(0)
    };
    fraction <= MYSQL_DIGITS.1 && digits.saturating_add(fraction) <= MYSQL_DIGITS.0
}

impl BoundList {
    /// Returns the elements of a list whose declared element type is `kind`.
    pub(crate) fn from_items(kind: JsonType, items: &[BoundValue]) -> Self {
        let decimals = || {
            let decimal = |item: &BoundValue| match item {
                BoundValue::Integer(number) => number.map(BigDecimal::from),
                BoundValue::BigInteger(number) => Some(number.clone()),
                BoundValue::Decimal(number) => number.clone(),
                _ => None,
            };
            items.iter().map(decimal).collect()
        };
        match kind {
            JsonType::Integer => {
                let is_big = |item: &BoundValue| matches!(item, BoundValue::BigInteger(_));
                if items.iter().any(is_big) {
                    return Self::BigIntegers(decimals());
                }
                let integer = |item: &BoundValue| match item {
                    BoundValue::Integer(number) => *number,
                    _ => None,
                };
                Self::Integers(items.iter().map(integer).collect())
            }
            JsonType::Number => Self::Decimals(decimals()),
            JsonType::Boolean => {
                let boolean = |item: &BoundValue| match item {
                    BoundValue::Boolean(truth) => *truth,
                    _ => None,
                };
                Self::Booleans(items.iter().map(boolean).collect())
            }
            _ => {
                let text = |item: &BoundValue| match item {
                    BoundValue::Text(text) => text.clone(),
                    _ => None,
                };
                Self::Texts(items.iter().map(text).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind_number(
        kind: JsonType,
        number: &str,
        dialect: SqlDialect,
    ) -> Result<BoundValue, UnbindableArgument> {
        let value = serde_json::from_str(number).unwrap();
        BoundValue::from_value(kind, Some(&value), dialect)
    }

    #[test]
    fn a_whole_number_is_an_integer_as_far_as_64_bits_reach() {
        let bound = |number| bind_number(JsonType::Integer, number, SqlDialect::Postgres).unwrap();
        assert_eq!(
            bound("9223372036854775807"),
            BoundValue::Integer(Some(i64::MAX))
        );
        assert_eq!(bound("10.0"), BoundValue::Integer(Some(10)));
        assert!(matches!(
            bound("9223372036854775808"),
            BoundValue::BigInteger(_)
        ));
    }

    #[test]
    fn a_number_that_the_database_would_cut_is_refused() {
        let bound = |number: &str| bind_number(JsonType::Number, number, SqlDialect::Mysql);
        for number in [
            &"9".repeat(65),
            &format!("0.{}", "9".repeat(30)),
            &format!("{}.{}", "9".repeat(35), "9".repeat(30)),
            &format!("0.5{}", "0".repeat(60)),
            "0e-60",
            "1e64",
        ] {
            assert!(bound(number).is_ok(), "{number}");
        }
        for number in [
            &"9".repeat(66),
            &format!("0.{}", "9".repeat(31)),
            &format!("{}.{}", "9".repeat(36), "9".repeat(30)),
            "1e65",
        ] {
            assert_eq!(
                bound(number),
                Err(UnbindableArgument::NoDecimal),
                "{number}"
            );
        }
    }
}
