//! `classes`: the configured redacted forms of column classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigdecimal::BigDecimal;
use wardgate_domain::ColumnClass;
use wardgate_redact::{ClassForms, ConfiguredForms, Form, Kind};
use wardgate_yaml::{Node, Yaml};

use crate::fault::{Faults, FieldReader};

/// Maximum number of characters that a partial value shows.
const MOST_CHARACTERS: usize = 4;

/// A reader that merges the `classes` of all files of a catalogue.
#[derive(Default)]
pub(crate) struct ClassReader(BTreeMap<ColumnClass, ClassForms>);

impl ClassReader {
    /// Adds the classes of one file.
    pub(crate) fn add_classes(&mut self, node: &Node, faults: &mut Faults) {
        for (key, node) in faults.map(node, "classes").unwrap_or_default() {
            let Ok(class) = key.name.parse::<ColumnClass>() else {
                faults.add(
                    key.at,
                    format!("`{}` is not a column class", key.name),
                    "use a dotted name of A-Z a-z 0-9 _ . -, for example finance.amount",
                );
                continue;
            };
            if let Some(forms) = read_forms(&class, node, faults)
                && self.0.insert(class, forms).is_some()
            {
                faults.add(
                    key.at,
                    format!("another file defines the class `{}`", key.name),
                    "define each class once",
                );
            }
        }
    }

    /// Returns all classes that were read.
    pub(crate) fn finish(self) -> Arc<ConfiguredForms> {
        Arc::new(ConfiguredForms::new(self.0))
    }
}

fn read_forms(class: &ColumnClass, node: &Node, faults: &mut Faults) -> Option<ClassForms> {
    let mut fields = FieldReader::new(node, class.as_str(), faults)?;
    let kind = fields.take_optional("kind");
    let [partial, generalised] = ["partial", "generalised"].map(|tier| fields.take_optional(tier));
    fields.finish(faults);
    let kind = match kind {
        Some(node) => read_kind(node, faults)?,
        None => Kind::from_class(class),
    };
    let ClassForms {
        partial: usual_partial,
        generalised: usual_generalised,
    } = kind.forms();
    let mut form = |node: Option<&Node>, usual| match node {
        Some(node) => read_form(node, faults),
        None => Some(usual),
    };
    Some(ClassForms {
        partial: form(partial, usual_partial)?,
        generalised: form(generalised, usual_generalised)?,
    })
}

fn read_kind(node: &Node, faults: &mut Faults) -> Option<Kind> {
    let word = faults.text(node, "kind")?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
    if kind.is_none() {
        faults.add(
            node.at,
            format!("`{word}` is not a kind of value"),
            format!("use one of {}", Kind::ALL.map(Kind::as_str).join(", ")),
        );
    }
    kind
}

/// Forms that are configured by a single word.
static WORDS: [(&str, Form); 8] = [
    ("withheld", Form::Withheld),
    ("masked", Form::Masked),
    ("initials", Form::Initials),
    ("outline", Form::Outline),
    ("month", Form::Month),
    ("quarter", Form::Quarter),
    ("year", Form::Year),
    ("decade", Form::Decade),
];

fn read_form(node: &Node, faults: &mut Faults) -> Option<Form> {
    if let Yaml::Map(_) = node.value {
        return read_measured_form(node, faults);
    }
    let word = faults.text(node, "a form")?;
    let form = WORDS.iter().find(|(name, _)| *name == word);
    if form.is_none() {
        let words: Vec<_> = WORDS.iter().map(|(name, _)| *name).collect();
        faults.add(
            node.at,
            format!("`{word}` is not a form of a value"),
            format!(
                "use one of {}, or one with a measure, such as `{{ round: 1000 }}`",
                words.join(", ")
            ),
        );
    }
    form.map(|(_, form)| form.clone())
}

/// Reads a form with a measure, such as `{ round: 1000 }`.
fn read_measured_form(node: &Node, faults: &mut Faults) -> Option<Form> {
    let mut fields = FieldReader::new(node, "a form", faults)?;
    let measures = [
        "last",
        "last_digits",
        "first",
        "years",
        "round",
        "decimals",
        "bands",
    ];
    let given = measures.map(|measure| (measure, fields.take_optional(measure)));
    fields.finish(faults);
    let mut given = given
        .into_iter()
        .filter_map(|(measure, node)| Some((measure, node?)));
    let (Some((measure, of)), None) = (given.next(), given.next()) else {
        faults.add(
            node.at,
            "a form must have exactly one measure",
            format!("keep one of {}", measures.join(", ")),
        );
        return None;
    };
    match measure {
        "last" => characters(of, measure, faults).map(Form::Last),
        "last_digits" => characters(of, measure, faults).map(Form::LastDigits),
        "first" => characters(of, measure, faults).map(Form::First),
        "years" => {
            let years = faults.positive(of, measure)?;
            let years = u8::try_from(years)
                .ok()
                .filter(|years| (5..=45).contains(years));
            if years.is_none() {
                faults.add(
                    of.at,
                    "`years` is not between 5 and 45",
                    "use for example 10",
                );
            }
            years.map(Form::AgeBand)
        }
        "decimals" => {
            let digits = number(of, faults)?;
            let digits = (0..=6).find(|known| digits == *known);
            if digits.is_none() {
                faults.add(
                    of.at,
                    "`decimals` is not between 0 and 6",
                    "use 1 for a precision of about 10 km in a coordinate",
                );
            }
            digits.map(Form::Decimals)
        }
        "round" => {
            let step = number(of, faults)?;
            if step <= 0 {
                faults.add(
                    of.at,
                    "`round` is not a number above 0",
                    "use for example 1000",
                );
                return None;
            }
            Some(Form::Rounded(step))
        }
        _ => {
            let edges = faults
                .list(of, measure)
                .iter()
                .map(|edge| number(edge, faults));
            let edges: Vec<_> = edges.collect::<Option<_>>()?;
            if edges.is_empty() || !edges.is_sorted_by(|a, b| a < b) {
                faults.add(
                    of.at,
                    "`bands` is not a list of edges in ascending order",
                    "write for example [0, 1000, 10000]",
                );
                return None;
            }
            Some(Form::Bands(edges))
        }
    }
}

fn characters(node: &Node, measure: &str, faults: &mut Faults) -> Option<usize> {
    let count = faults.positive(node, measure)?;
    if count > MOST_CHARACTERS {
        faults.add(
            node.at,
            format!("`{measure}` shows more than {MOST_CHARACTERS} characters"),
            "show fewer; callers that may see the whole value receive it by `show_clear`",
        );
        return None;
    }
    Some(count)
}

fn number(node: &Node, faults: &mut Faults) -> Option<BigDecimal> {
    let number = wardgate_json::exact_number(&node.to_value());
    if number.is_none() {
        faults.add(node.at, "this is not a number", "write a number");
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalogue, FileText};

    fn catalogue(classes: &str) -> Result<Catalogue, Vec<crate::Fault>> {
        let text = format!(
            "classes:\n{classes}\nsources:\n  main: {{ type: sqlite, url: \"sqlite:x\" }}\ntools:\n  - name: a\n    \
             input_schema: {{ type: object }}\n    execute: {{ type: sql, source: main, statement: \"SELECT n FROM t\" }}\n    \
             result: {{ classes: {{ n: finance.amount.gross }} }}\n"
        );
        let path = "tools.yaml".into();
        Catalogue::parse(&[FileText { path, text }], &BTreeMap::new())
    }

    #[test]
    fn a_class_has_the_forms_that_the_file_gives_it() {
        let found = catalogue(
            "  finance.amount: { generalised: { bands: [0, 1000, 2500.50] } }\n  hr.badge: { kind: identifier }\n  \
             phi.visit: { kind: date, partial: quarter, generalised: decade }\n",
        );
        let found = found.unwrap();
        let shape = found.tools()[0].result();
        let shown = |class: &str, value: &str| {
            shape
                .forms()
                .for_class(&class.parse().unwrap())
                .apply(value)
        };
        let gross = shape.class("n").as_str();
        assert_eq!(shown(gross, "999"), ["[withheld]", "0-<1000"]);
        assert_eq!(shown("hr.badge", "B-4711"), ["•••11", "[withheld]"]);
        assert_eq!(shown("phi.visit", "2025-11-10"), ["2025-Q4", "2020s"]);
        assert_eq!(shown("phi.date", "2025-11-10"), ["2025-11", "2025"]);
    }

    #[test]
    fn a_changed_form_is_another_version_of_the_catalogue() {
        let version = |classes: &str| catalogue(classes).unwrap().version();
        let round = |step: u32| version(&format!("  a.b: {{ generalised: {{ round: {step} }} }}"));
        assert_eq!(round(10), round(10));
        assert_ne!(round(10), round(100));
    }

    #[test]
    fn what_is_no_form_is_a_fault_at_its_place() {
        for (classes, told) in [
            ("  \"a b\": { kind: date }", "`a b` is not a column class"),
            ("  a: { kind: money }", "`money` is not a kind of value"),
            ("  a: { partial: half }", "`half` is not a form of a value"),
            (
                "  a: { partial: { last: 20 } }",
                "shows more than 4 characters",
            ),
            (
                "  a: { generalised: { round: 0 } }",
                "`round` is not a number above 0",
            ),
            (
                "  a: { generalised: { bands: [10, 5] } }",
                "not a list of edges in ascending order",
            ),
            (
                "  a: { generalised: { bands: [] } }",
                "not a list of edges in ascending order",
            ),
            (
                "  a: { generalised: { decimals: 9 } }",
                "`decimals` is not between 0 and 6",
            ),
            (
                "  a: { generalised: { years: 1 } }",
                "`years` is not between 5 and 45",
            ),
            (
                "  a: { generalised: { round: 1, decimals: 1 } }",
                "a form must have exactly one measure",
            ),
            (
                "  a: { generalised: { round: much } }",
                "this is not a number",
            ),
            ("  a: { dropped: true }", "dropped"),
        ] {
            let faults = catalogue(classes).unwrap_err();
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            assert!(faults.concat().contains(told), "{classes}: {faults:?}");
            assert!(faults[0].starts_with("tools.yaml:2:"), "{faults:?}");
        }
    }
}
