//! The forms of partial and generalised values: how much of a value is shown.

use std::fmt;

use bigdecimal::{BigDecimal, RoundingMode};
use wardgate_json::decimal_of_text;

/// The replacement of hidden characters. Its width is fixed.
pub(crate) const MASK: &str = "•••";
/// The replacement of a value of which nothing can be shown.
pub(crate) const WITHHELD: &str = "[withheld]";
/// Minimum number of characters of a value that is shown in part.
const SHOWABLE: usize = 4;
/// Age from which on there is only one band (45 CFR 164.514(b)(2)(i)(C)).
const OLDEST: u8 = 90;

/// The form in which a value is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Nothing: `[withheld]` for a text, and no value at all for a generalised number.
    Withheld,
    /// Only that there is a value: `•••`.
    Masked,
    /// This number of last characters, but never more than two fifths of all.
    Last(usize),
    /// This number of last digits, but never more than two fifths of all.
    LastDigits(usize),
    /// The first letter of each word of three characters or more.
    Initials,
    /// The first letter and the top-level domain of an e-mail address.
    Outline,
    /// This number of first characters of a value that has at least two more.
    First(usize),
    /// The year and month of an ISO 8601 date.
    Month,
    /// The year and quarter of an ISO 8601 date.
    Quarter,
    /// The year of an ISO 8601 date.
    Year,
    /// The decade of an ISO 8601 date.
    Decade,
    /// The band of this many years that contains an age; from 90 on `90+`.
    AgeBand(u8),
    /// A number rounded to the nearest multiple of this one.
    Rounded(BigDecimal),
    /// A number rounded to this many decimal digits.
    Decimals(i64),
    /// The band of a number between two neighbours of these edges, which are in ascending order.
    Bands(Vec<BigDecimal>),
}

impl Form {
    /// Returns `value` in this form.
    pub(crate) fn apply(&self, value: &str) -> String {
        self.try_apply(value)
            .unwrap_or_else(|| self.replacement().to_owned())
    }

    /// Returns whether this form can generalise a number.
    pub(crate) fn takes_numbers(&self) -> bool {
        matches!(
            self,
            Self::First(_)
                | Self::AgeBand(_)
                | Self::Rounded(_)
                | Self::Decimals(_)
                | Self::Bands(_)
        )
    }

    /// Returns whether the form of a number is a number.
    pub(crate) fn keeps_numbers(&self) -> bool {
        matches!(self, Self::Rounded(_) | Self::Decimals(_))
    }

    /// Returns the replacement of a value that does not have the expected format.
    pub(crate) fn replacement(&self) -> &'static str {
        match self {
            Self::Masked | Self::Last(_) | Self::LastDigits(_) | Self::Initials | Self::Outline => {
                MASK
            }
            _ => WITHHELD,
        }
    }

    fn try_apply(&self, value: &str) -> Option<String> {
        match self {
            Self::Withheld | Self::Masked => None,
            Self::Last(count) => last(value.chars(), *count),
            Self::LastDigits(count) => last(
                value.chars().filter(|character| character.is_numeric()),
                *count,
            ),
            Self::Initials => initials(value),
            Self::Outline => outline(value),
            Self::First(count) => first(value, *count).map(str::to_owned),
            Self::Month => year_and_month(value).map(str::to_owned),
            Self::Quarter => quarter(value),
            Self::Year => year_and_month(value)?.get(..4).map(str::to_owned),
            Self::Decade => year_and_month(value)?
                .get(..3)
                .map(|decade| format!("{decade}0s")),
            Self::AgeBand(years) => age_band(value, *years),
            Self::Rounded(step) => round_to_step(value, step),
            Self::Decimals(digits) => {
                let number = decimal_of_text(value)?;
                Some(
                    number
                        .with_scale_round(*digits, RoundingMode::HalfUp)
                        .to_plain_string(),
                )
            }
            Self::Bands(edges) => band(value, edges),
        }
    }
}

/// Describes the form in words, for tables.
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |is_one: bool| if is_one { "" } else { "s" };
        match self {
            Self::Withheld => f.write_str("`[withheld]`"),
            Self::Masked => f.write_str("`•••`"),
            Self::Last(count) => write!(f, "the last {count} character{}", plural(*count == 1)),
            Self::LastDigits(count) => write!(f, "the last {count} digit{}", plural(*count == 1)),
            Self::Initials => {
                f.write_str("the first letter of each word of three characters or more")
            }
            Self::Outline => f.write_str("the first letter and the top-level domain"),
            Self::First(count) => write!(f, "the first {count} character{}", plural(*count == 1)),
            Self::Month => f.write_str("year and month"),
            Self::Quarter => f.write_str("year and quarter"),
            Self::Year => f.write_str("year"),
            Self::Decade => f.write_str("decade"),
            Self::AgeBand(years) => write!(f, "{years} years, from {OLDEST} on `{OLDEST}+`"),
            Self::Rounded(step) => write!(f, "the nearest multiple of {step}"),
            Self::Decimals(digits) => {
                write!(
                    f,
                    "{digits} digit{} after the decimal point",
                    plural(*digits == 1)
                )
            }
            Self::Bands(edges) => {
                let edges: Vec<_> = edges.iter().map(ToString::to_string).collect();
                write!(f, "the band between two of the edges {}", edges.join(", "))
            }
        }
    }
}

/// Returns the last `visible` characters, but never more than two fifths of all.
fn last(
    characters: impl DoubleEndedIterator<Item = char> + Clone,
    visible: usize,
) -> Option<String> {
    let count = characters.clone().count();
    if count < SHOWABLE {
        return None;
    }
    let hidden = count - visible.min(count * 2 / 5);
    let mut masked = MASK.to_owned();
    masked.extend(characters.skip(hidden));
    Some(masked)
}

/// Returns the first letter of each word. A word of one or two characters is masked completely, because its first
/// letter would reveal most of it.
fn initials(value: &str) -> Option<String> {
    value.chars().nth(SHOWABLE - 1)?;
    let mut masked = String::with_capacity(value.len());
    for word in value.split_whitespace() {
        if !masked.is_empty() {
            masked.push(' ');
        }
        let mut characters = word.chars();
        if let (Some(first), Some(_), Some(_)) =
            (characters.next(), characters.next(), characters.next())
            && first.is_alphabetic()
        {
            masked.push(first);
        }
        masked.push_str(MASK);
    }
    (!masked.is_empty()).then_some(masked)
}

/// Masks `jane@example.com` as `j•••@•••.com`.
fn outline(value: &str) -> Option<String> {
    let (mailbox, domain) = value.rsplit_once('@')?;
    let mut masked = String::with_capacity(24);
    let mut characters = mailbox.chars();
    if let (Some(first), Some(_), Some(_)) =
        (characters.next(), characters.next(), characters.next())
    {
        masked.push(first);
    }
    masked.push_str(MASK);
    masked.push('@');
    masked.push_str(MASK);
    if let Some((_, top)) = domain.rsplit_once('.')
        && (2..=6).contains(&top.len())
        && top.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        masked.push('.');
        masked.push_str(top);
    }
    Some(masked)
}

/// Returns for example `2025-11` of an ISO 8601 calendar date, with or without a time of day.
fn year_and_month(value: &str) -> Option<&str> {
    let bytes = value.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let is_date = digits(0..4)
        && bytes.get(4) == Some(&b'-')
        && digits(5..7)
        && bytes.get(7) == Some(&b'-')
        && digits(8..10)
        && matches!(bytes.get(10), None | Some(b'T' | b't' | b' '));
    if is_date { value.get(..7) } else { None }
}

/// Returns for example `2025-Q4` of a date in November 2025.
fn quarter(value: &str) -> Option<String> {
    let (year, month) = year_and_month(value)?.split_once('-')?;
    let month: u8 = month
        .parse()
        .ok()
        .filter(|month| (1..=12).contains(month))?;
    Some(format!("{year}-Q{}", (month - 1) / 3 + 1))
}

/// Returns the first characters of a value that has at least two more, such as three of a five-digit postcode (45 CFR
/// 164.514(b)(2)(i)(B)).
fn first(value: &str, count: usize) -> Option<&str> {
    value.chars().nth(count + 1)?;
    let (end, _) = value.char_indices().nth(count)?;
    value.get(..end)
}

fn age_band(value: &str, years: u8) -> Option<String> {
    let age: u8 = value.parse().ok()?;
    let from = age.checked_div(years)? * years;
    Some(match from.checked_add(years - 1).filter(|_| age < OLDEST) {
        Some(to) => format!("{from}-{}", to.min(OLDEST - 1)),
        None => format!("{OLDEST}+"),
    })
}

/// Returns the nearest multiple of `step`; if two are equally near, the one further from zero.
fn round_to_step(value: &str, step: &BigDecimal) -> Option<String> {
    let number = decimal_of_text(value)?;
    let multiples = (number / step).with_scale_round(0, RoundingMode::HalfUp);
    Some((multiples * step).normalized().to_plain_string())
}

/// Returns `<0`, `0-<1000` or `1000+` for the edges 0 and 1000.
fn band(value: &str, edges: &[BigDecimal]) -> Option<String> {
    let number = decimal_of_text(value)?;
    let above = edges.partition_point(|edge| *edge <= number);
    let (below, above) = (
        above.checked_sub(1).and_then(|at| edges.get(at)),
        edges.get(above),
    );
    let shown = |edge: &BigDecimal| edge.to_plain_string();
    Some(match (below, above) {
        (None, None) => return None,
        (None, Some(above)) => format!("<{}", shown(above)),
        (Some(below), Some(above)) => format!("{}-<{}", shown(below), shown(above)),
        (Some(below), None) => format!("{}+", shown(below)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> BigDecimal {
        text.parse().unwrap()
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_multiple_exactly() {
        for (value, step, left) in [
            ("12345", "1000", "12000"),
            ("12500", "1000", "13000"),
            ("-12500", "1000", "-13000"),
            ("0.1", "0.25", "0"),
            ("72.4", "5", "70"),
            (
                "123456789012345678901234567890",
                "10",
                "123456789012345678901234567890",
            ),
            ("1e3", "300", "900"),
        ] {
            assert_eq!(
                Form::Rounded(number(step)).apply(value),
                left,
                "{value} by {step}"
            );
        }
    }

    #[test]
    fn a_band_holds_its_lower_edge_and_not_its_upper() {
        let bands = Form::Bands(["0", "1000", "2500.50"].map(number).to_vec());
        for (value, left) in [
            ("-0.01", "<0"),
            ("0", "0-<1000"),
            ("999.99", "0-<1000"),
            ("1000", "1000-<2500.50"),
            ("2500.5", "2500.50+"),
            ("1e9", "2500.50+"),
        ] {
            assert_eq!(bands.apply(value), left, "{value}");
        }
        assert_eq!(Form::Bands(Vec::new()).apply("1"), WITHHELD);
    }

    #[test]
    fn coordinates_keep_the_digits_that_are_allowed() {
        assert_eq!(Form::Decimals(1).apply("47.608013"), "47.6");
        assert_eq!(Form::Decimals(0).apply("-122.335167"), "-122");
        assert_eq!(Form::Decimals(-1).apply("47.6"), "50");
    }

    #[test]
    fn dates_postcodes_and_ages_are_as_coarse_as_configured() {
        for (form, value, left) in [
            (Form::Quarter, "2025-11-10", "2025-Q4"),
            (Form::Quarter, "2025-00-10", WITHHELD),
            (Form::Decade, "1968-02-29T00:00:00Z", "1960s"),
            (Form::First(2), "98101", "98"),
            (Form::First(4), "98101", WITHHELD),
            (Form::AgeBand(20), "42", "40-59"),
            (Form::AgeBand(20), "85", "80-89"),
            (Form::AgeBand(20), "90", "90+"),
            (Form::AgeBand(0), "42", WITHHELD),
            (Form::AgeBand(5), "300", WITHHELD),
        ] {
            assert_eq!(form.apply(value), left, "{form:?} of {value}");
        }
    }

    #[test]
    fn what_is_no_number_shows_nothing_where_numbers_are_expected() {
        for form in [
            Form::Rounded(number("10")),
            Form::Decimals(1),
            Form::Bands(vec![number("0")]),
        ] {
            for value in ["true", "12 EUR", "Jane Doe", "0x10", " 1", "NaN"] {
                assert_eq!(form.apply(value), WITHHELD, "{form:?} of {value}");
            }
        }
    }
}
