//! The forms of a class, which depend on its last word unless the deployment configures others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wardgate_domain::ColumnClass;

use crate::Form;

/// The forms of the values of a class in the two tiers that depend on the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassForms {
    /// The form in the partial tier, in which a value can be recognised but not used.
    pub partial: Form,
    /// The form in the generalised tier, in which a value is less precise.
    pub generalised: Form,
}

/// A kind of value, which is determined by the last word of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Identifiers.
    Identifier,
    /// Names of people.
    Name,
    /// Telephone and fax numbers.
    Phone,
    /// E-mail addresses.
    Email,
    /// Dates, with or without a time.
    Date,
    /// Postcodes.
    Postcode,
    /// Ages in years.
    Age,
    /// Free text, addresses, codes, numbers, and everything else that has no shorter form that is known to be safe.
    Opaque,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Identifier,
        Self::Name,
        Self::Phone,
        Self::Email,
        Self::Date,
        Self::Postcode,
        Self::Age,
        Self::Opaque,
    ];

    /// Returns the name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identifier => "identifier",
            Self::Name => "name",
            Self::Phone => "phone",
            Self::Email => "email",
            Self::Date => "date",
            Self::Postcode => "postcode",
            Self::Age => "age",
            Self::Opaque => "text",
        }
    }

    /// Returns the last words of the classes of this kind.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Identifier => &["id", "insurance", "account", "number"],
            Self::Name => &["name"],
            Self::Phone => &["phone", "fax"],
            Self::Email => &["email"],
            Self::Date => &["date", "datetime"],
            Self::Postcode => &["zip", "postcode"],
            Self::Age => &["age"],
            Self::Opaque => &[],
        }
    }

    /// Returns an example of a value of this kind, for tables.
    pub fn example(self) -> &'static str {
        match self {
            Self::Identifier => "NUGWI",
            Self::Name => "Jane Doe",
            Self::Phone => "+1 (206) 555-0142",
            Self::Email => "jane@example.com",
            Self::Date => "1961-04-23",
            Self::Postcode => "98101",
            Self::Age => "42",
            Self::Opaque => "12 Elm Street",
        }
    }

    /// Returns the kind of a class, by its last word. A class of the family `id` whose last word names no other kind
    /// holds identifiers.
    pub fn from_class(class: &ColumnClass) -> Self {
        let word = class.as_str().rsplit('.').next().unwrap_or_default();
        let named = Self::ALL
            .into_iter()
            .find(|kind| kind.words().contains(&word));
        named.unwrap_or(if class.family() == "id" {
            Self::Identifier
        } else {
            Self::Opaque
        })
    }

    /// Returns the forms of values of this kind.
    pub fn forms(self) -> ClassForms {
        let (partial, generalised) = match self {
            Self::Identifier => (Form::Last(2), Form::Withheld),
            Self::Name => (Form::Initials, Form::Withheld),
            Self::Phone => (Form::LastDigits(4), Form::Withheld),
            Self::Email => (Form::Outline, Form::Withheld),
            Self::Date => (Form::Month, Form::Year),
            Self::Postcode => (Form::First(3), Form::First(3)),
            Self::Age => (Form::Masked, Form::AgeBand(10)),
            Self::Opaque => (Form::Withheld, Form::Withheld),
        };
        ClassForms {
            partial,
            generalised,
        }
    }
}

/// The forms that a deployment configures for classes, instead of those of their kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfiguredForms(BTreeMap<ColumnClass, ClassForms>);

impl ConfiguredForms {
    /// No configured forms: every class has the forms of its kind.
    pub const NONE: &'static Self = &Self(BTreeMap::new());

    /// Creates the forms from classes and their forms, which also apply to the classes below them.
    pub fn new(forms: BTreeMap<ColumnClass, ClassForms>) -> Self {
        Self(forms)
    }

    /// Returns the classes with configured forms, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&ColumnClass, &ClassForms)> {
        self.0.iter()
    }

    /// Returns the forms of `class`: those configured for it or else for its nearest family, or those of its kind.
    pub fn for_class(&self, class: &ColumnClass) -> Cow<'_, ClassForms> {
        let mut name = Some(class.as_str());
        while let Some(this) = name.filter(|_| !self.0.is_empty()) {
            let found = self.0.iter().find(|(class, _)| class.as_str() == this);
            if let Some((_, forms)) = found {
                return Cow::Borrowed(forms);
            }
            name = this.rsplit_once('.').map(|(family, _)| family);
        }
        Cow::Owned(Kind::from_class(class).forms())
    }
}

impl ClassForms {
    /// Returns the text `value` in the partial and in the generalised form.
    pub fn apply(&self, value: &str) -> [String; 2] {
        [&self.partial, &self.generalised].map(|form| form.apply(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{MASK, WITHHELD};

    fn partial(class: &str, value: &str) -> String {
        Kind::from_class(&class.parse().unwrap())
            .forms()
            .partial
            .apply(value)
    }

    fn generalise(class: &str, value: &str) -> String {
        Kind::from_class(&class.parse().unwrap())
            .forms()
            .generalised
            .apply(value)
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
            assert_eq!(generalise(class, value), masked, "{class} {value}");
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
            assert_eq!(generalise(class, value), WITHHELD, "{class} {value}");
        }
        assert_eq!(partial("contact.email", "Jane Doe"), MASK);
        assert_eq!(generalise("phi.age", "forty"), WITHHELD);
        assert_eq!(generalise("phi.name", "Jane Doe"), WITHHELD);
        assert_eq!(generalise("id.patient", "NUGWI"), WITHHELD);
    }

    #[test]
    fn configured_forms_hold_for_a_class_and_the_classes_below_it() {
        let class = |name: &str| name.parse::<ColumnClass>().unwrap();
        let forms = |partial| ClassForms {
            partial,
            generalised: Form::Quarter,
        };
        let configured = ConfiguredForms::new(
            [
                (class("phi"), forms(Form::Masked)),
                (class("phi.visit"), forms(Form::Year)),
            ]
            .into(),
        );
        assert_eq!(
            configured.for_class(&class("phi.visit")).partial,
            Form::Year
        );
        assert_eq!(
            configured.for_class(&class("phi.visit.date")).partial,
            Form::Year
        );
        assert_eq!(
            configured.for_class(&class("phi.name")).partial,
            Form::Masked
        );
        assert_eq!(
            configured.for_class(&class("contact.name")).partial,
            Form::Initials
        );
        assert_eq!(
            ConfiguredForms::NONE.for_class(&class("phi.date")).partial,
            Form::Month
        );
    }
}
