//! What the values of a class look like, and what of them may be shown.

use wardgate_domain::ColumnClass;

/// Stands for hidden characters, always this many.
const MASK: &str = "•••";
/// Stands for a value of which nothing can be shown.
const WITHHELD: &str = "[withheld]";
/// Values shorter than this show nothing of themselves.
const SHOWABLE: usize = 4;

/// The kind of value a column class holds, by its last dotted word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Identifier,
    Name,
    Phone,
    Email,
    Date,
    Postcode,
    Age,
    /// Free text, addresses, codes, and whatever has no shorter form that is known to be safe.
    Opaque,
}

impl Kind {
    pub(crate) fn of(class: &ColumnClass) -> Self {
        let word = class.as_str().rsplit('.').next().unwrap_or_default();
        match word {
            "name" => Self::Name,
            "phone" | "fax" => Self::Phone,
            "email" => Self::Email,
            "date" | "datetime" => Self::Date,
            "zip" | "postcode" => Self::Postcode,
            "age" => Self::Age,
            "id" | "insurance" | "account" | "number" => Self::Identifier,
            _ if class.family() == "id" => Self::Identifier,
            _ => Self::Opaque,
        }
    }

    /// `value`, shortened so that it can be recognised but not used.
    pub(crate) fn partial(self, value: &str) -> String {
        let masked = match self {
            Self::Opaque => return WITHHELD.to_owned(),
            Self::Date => return year_and_month(value).map_or_else(withheld, str::to_owned),
            Self::Postcode => return postcode_area(value).map_or_else(withheld, str::to_owned),
            Self::Identifier => last(value.chars(), 2),
            Self::Name => initials(value),
            Self::Phone => last(value.chars().filter(|character| character.is_numeric()), 4),
            Self::Email => email_outline(value),
            Self::Age => None,
        };
        masked.unwrap_or_else(|| MASK.to_owned())
    }

    /// `value`, made coarser.
    pub(crate) fn generalised(self, value: &str) -> String {
        match self {
            Self::Date => year(value).map(str::to_owned),
            Self::Postcode => postcode_area(value).map(str::to_owned),
            Self::Age => age_band(value),
            Self::Identifier | Self::Name | Self::Phone | Self::Email | Self::Opaque => None,
        }
        .unwrap_or_else(withheld)
    }

    /// True when a number of this kind has a coarser form.
    pub(crate) fn generalises_numbers(self) -> bool {
        matches!(self, Self::Postcode | Self::Age)
    }
}

fn withheld() -> String {
    WITHHELD.to_owned()
}

/// The last `wanted` characters, but never more than two fifths of all.
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

/// The first letter of each word; words of one or two characters would be told by it and show nothing.
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

/// `jane@example.com` as `j•••@•••.com`.
fn email_outline(value: &str) -> Option<String> {
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

/// `2025-11` of an ISO 8601 calendar date, with or without a time of day.
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

fn year(value: &str) -> Option<&str> {
    year_and_month(value)?.get(..4)
}

/// The first three characters of a postcode of five or more (45 CFR 164.514(b)(2)(i)(B)).
fn postcode_area(value: &str) -> Option<&str> {
    value.chars().nth(4)?;
    let (end, _) = value.char_indices().nth(3)?;
    value.get(..end)
}

/// Ten years, and one band from 90 on (45 CFR 164.514(b)(2)(i)(C)).
fn age_band(value: &str) -> Option<String> {
    let age: u8 = value.parse().ok()?;
    if age >= 90 {
        return Some("90+".to_owned());
    }
    let from = age / 10 * 10;
    Some(format!("{from}-{}", from + 9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(class: &str, value: &str) -> String {
        Kind::of(&class.parse().unwrap()).partial(value)
    }

    fn generalised(class: &str, value: &str) -> String {
        Kind::of(&class.parse().unwrap()).generalised(value)
    }

    #[test]
    fn a_partial_value_can_be_recognised() {
        for (class, value, masked) in [
            ("id.patient", "NUGWI", "•••WI"),
            ("id.staff", "dr.yenji", "•••ji"),
            ("id.patient", "ABCD", "•••D"),
            ("finance.insurance", "HP-4711-0815", "•••15"),
            ("phi.name", "Jane Doe", "J••• D•••"),
            ("phi.name", "Nguyễn Thị Ánh", "N••• T••• Á•••"),
            ("phi.name", "Li Xiaoming", "••• X•••"),
            ("phi.name", "  4th  Earl ", "••• E•••"),
            ("contact.phone", "+1 (206) 555-0142", "•••0142"),
            ("contact.phone", "555 1234", "•••34"),
            ("contact.fax", "０３－１２３４－５６７８", "•••５６７８"),
            ("contact.email", "jane.doe@mail.example.com", "j•••@•••.com"),
            ("contact.email", "jo@example.museum", "•••@•••.museum"),
            ("contact.email", "jane@localhost", "j•••@•••"),
            ("phi.date", "1961-04-23", "1961-04"),
            ("phi.date", "2025-11-10T10:00:00Z", "2025-11"),
            ("contact.zip", "98101-1234", "981"),
        ] {
            assert_eq!(partial(class, value), masked, "{class} {value}");
        }
    }

    #[test]
    fn a_generalised_value_is_coarser() {
        for (class, value, masked) in [
            ("phi.date", "1961-04-23", "1961"),
            ("phi.datetime", "2025-11-10 10:00:00+00", "2025"),
            ("contact.postcode", "SW1A 1AA", "SW1"),
            ("phi.age", "0", "0-9"),
            ("phi.age", "42", "40-49"),
            ("phi.age", "89", "80-89"),
            ("phi.age", "90", "90+"),
            ("phi.age", "104", "90+"),
        ] {
            assert_eq!(generalised(class, value), masked, "{class} {value}");
        }
    }

    #[test]
    fn short_values_show_nothing() {
        for value in ["A", "Al", "Doe", "王小明", "12", "911", "１１０"] {
            for class in ["id.patient", "phi.name", "contact.phone", "phi.age"] {
                assert_eq!(partial(class, value), MASK, "{class} {value}");
            }
        }
        assert_eq!(partial("contact.email", "a@b"), "•••@•••");
    }

    #[test]
    fn what_has_not_the_form_of_its_kind_is_withheld() {
        for (class, value) in [
            ("phi.date", "23 April 1961"),
            ("phi.date", "1961"),
            ("phi.date", "1961-04-23rd, or so she says"),
            ("phi.date", "１９６１-０４-２３"),
            ("contact.zip", "9810"),
            ("phi.text", "Jane Doe, born 1961-04-23"),
            ("contact.address", "12 Elm Street, Springfield"),
            ("phi.code", "I10"),
            ("unclassified", "Jane Doe"),
        ] {
            assert_eq!(partial(class, value), WITHHELD, "{class} {value}");
            assert_eq!(generalised(class, value), WITHHELD, "{class} {value}");
        }
        assert_eq!(partial("contact.email", "Jane Doe"), MASK);
        assert_eq!(generalised("phi.age", "forty"), WITHHELD);
        assert_eq!(generalised("phi.name", "Jane Doe"), WITHHELD);
        assert_eq!(generalised("id.patient", "NUGWI"), WITHHELD);
    }
}
