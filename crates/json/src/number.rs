//! JSON numbers as exact decimals.

use bigdecimal::{BigDecimal, ToPrimitive};
use serde_json::{Number, Value};

/// Maximum number of digits on either side of the decimal point, in a number for calculations that is written without
/// an exponent. This is far more than any column holds, and few enough to process quickly.
pub const MAX_DIGITS: usize = 1_000;

/// Returns the exact value of `text`, a JSON number (RFC 8259, section 6), or `None` if it has more than [`MAX_DIGITS`]
/// digits on one side of the decimal point or is not a number.
pub fn decimal(text: &str) -> Option<BigDecimal> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let most = i64::try_from(MAX_DIGITS).ok()?;
    let whole = i64::try_from(whole.trim_start_matches('-').len()).ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let is_short = whole.checked_add(exponent)? <= most && fraction.checked_sub(exponent)? <= most;
    // An exponent can shift all digits to one side, so the number of digits as written is limited too.
    let is_short = is_short && whole <= most && fraction <= most;
    is_short.then(|| text.parse().ok()).flatten()
}

/// Returns the exact value of a number, or `None` if it has more than [`MAX_DIGITS`] digits on one side of the decimal point.
pub fn decimal_of(number: &Number) -> Option<BigDecimal> {
    decimal(number.as_str())
}

/// Returns the exact value of a string that is a JSON number and nothing else, or `None` for any other string.
pub fn decimal_of_text(text: &str) -> Option<BigDecimal> {
    let number: Number = text.parse().ok()?;
    // The parser accepts white space around a number.
    let is_plain = !text.contains(|c: char| c.is_ascii_whitespace());
    decimal(number.as_str()).filter(|_| is_plain)
}

/// Returns the exact value of a number, or of a string that is a number, as databases return exact decimals.
pub fn exact_number(value: &Value) -> Option<BigDecimal> {
    match value {
        Value::Number(number) => decimal_of(number),
        Value::String(text) => decimal_of_text(text),
        _ => None,
    }
}

/// Returns `value` as a JSON number with all digits written out.
pub fn number_of(value: &BigDecimal) -> Option<Number> {
    value.to_plain_string().parse().ok()
}

/// Returns the double whose shortest decimal form is exactly `number`, or `None` if there is none: the double nearest to
/// `number` then has other digits. If there are two shortest forms, it is that of JSON, in which the double is returned.
pub fn exact_double(number: &BigDecimal) -> Option<f64> {
    let double: f64 = number.to_plain_string().parse().ok()?;
    (decimal(&serde_json::to_string(&double).ok()?)? == *number).then_some(double)
}

/// Returns the 32-bit float whose shortest decimal form is exactly `number`, or `None` if there is none.
pub fn exact_float(number: &BigDecimal) -> Option<f32> {
    let float: f32 = number.to_plain_string().parse().ok()?;
    (decimal(&serde_json::to_string(&float).ok()?)? == *number).then_some(float)
}

/// Returns the digits of an integer, which may be written as 10.0 or 1e3. Returns `None` for any other number, and for
/// an integer of more than [`MAX_DIGITS`] digits.
pub fn whole_number(text: &str) -> Option<Number> {
    // Nearly every number takes this path.
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    let value = decimal(text).filter(BigDecimal::is_integer)?;
    number_of(&value.with_scale(0))
}

/// Returns the value of an integer that fits into 64 bits, even if it is written as 10.0.
pub fn integral(value: &Value) -> Option<i64> {
    let Value::Number(number) = value else {
        return None;
    };
    number
        .as_i64()
        .or_else(|| decimal_of(number).filter(BigDecimal::is_integer)?.to_i64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_keeps_every_digit_that_was_written() {
        for text in [
            "0",
            "-1",
            "99999999999999.99",
            "12345678901234567890123",
            "0.10",
            "-1.50",
            "1000000000000000000000000000000",
        ] {
            assert_eq!(decimal(text).unwrap().to_plain_string(), text);
        }
        assert_eq!(decimal("1.5E+3").unwrap().to_plain_string(), "1500");
        assert_eq!(decimal("25e-3").unwrap().to_plain_string(), "0.025");
    }

    #[test]
    fn a_number_of_endless_digits_is_never_written_out() {
        let long = "9".repeat(MAX_DIGITS + 1);
        for text in [
            "1e1000",
            "1e-1001",
            "1e99999999999",
            "1e-99999999999",
            "1e99999999999999999999999",
            "0.1e9223372036854775807",
            "0.1e-9223372036854775808",
            &long,
            &format!("0.{long}"),
            &format!("0.{long}e1000"),
            "NaN",
            "",
        ] {
            assert!(decimal(text).is_none(), "{text}");
        }
        assert!(decimal("1e999").is_some() && decimal("1e-1000").is_some());
    }

    #[test]
    fn a_float_is_exact_if_its_shortest_decimal_form_is_the_number() {
        let is_double = |text| exact_double(&decimal(text).unwrap()).is_some();
        let is_float = |text| exact_float(&decimal(text).unwrap()).is_some();
        for text in ["0", "-0.10", "1.5e-7", "16777216", "0.333", "1e38"] {
            assert!(is_double(text) && is_float(text), "{text}");
        }
        for text in [
            "16777217",
            "0.123456789",
            "9999999999999.99",
            "92866260294215.12",
            "9007199254740992",
            "1.7976931348623157e308",
            "5e-324",
        ] {
            assert!(is_double(text) && !is_float(text), "{text}");
        }
        for text in [
            "99999999999999.99",
            // The nearest double ends in 125, so the shortest forms 12 and 13 are equally near.
            "92866260294215.13",
            "9007199254740993",
            "0.1234567890123456789",
            "12345678901234567890123",
            "1e309",
            "1e-400",
        ] {
            assert!(!is_double(text) && !is_float(text), "{text}");
        }
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point_or_an_exponent() {
        let read = |text| whole_number(text).map(|number| number.to_string());
        assert_eq!(read("10.0").as_deref(), Some("10"));
        assert_eq!(read("1e3").as_deref(), Some("1000"));
        assert_eq!(
            read("1e30").as_deref(),
            Some("1000000000000000000000000000000")
        );
        assert_eq!(
            read("9007199254740993.0").as_deref(),
            Some("9007199254740993")
        );
        assert_eq!(read("10.5"), None);
        assert_eq!(read("9007199254740992.1"), None);
        assert_eq!(integral(&serde_json::from_str("7.0").unwrap()), Some(7));
        assert_eq!(integral(&serde_json::from_str("1e30").unwrap()), None);
    }
}
