//! Property tests of redaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use wardgate_domain::{ColumnClass, ColumnTier};

use crate::{ClassForms, ConfiguredForms, DropReason, Form, PseudonymKey, Redactor, Row};

const TIERS: [ColumnTier; 5] = [
    ColumnTier::Clear,
    ColumnTier::Partial,
    ColumnTier::Pseudonym,
    ColumnTier::Generalised,
    ColumnTier::Dropped,
];

const CLASSES: [&str; 14] = [
    "none",
    "unclassified",
    "id.patient",
    "id.staff",
    "phi.name",
    "phi.date",
    "phi.age",
    "phi.text",
    "phi.code",
    "contact.phone",
    "contact.email",
    "contact.address",
    "contact.zip",
    "finance.insurance",
];

fn class(name: &str) -> ColumnClass {
    name.parse().unwrap()
}

fn redactor() -> Redactor {
    Redactor::new(&PseudonymKey::new([7; 32]), "tenant")
}

fn row(fields: &[(&str, Value)]) -> Row {
    fields
        .iter()
        .map(|(name, value)| (Arc::from(*name), value.clone()))
        .collect()
}

/// Texts as in databases: any script, the formats of every kind, and texts that nearly have such a format. They contain
/// neither mask characters nor words of a marker, so finding a value in a result means that it leaked.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        r"\PC{1,60}",
        r"[A-Z]{4,8}",
        r"[g-z]{1,9}( [G-Z][g-z]{1,9}){1,3}",
        r"\+?[0-9]{1,3}( [0-9]{2,4}){2,4}",
        r"[０-９]{1,12}",
        r"[g-z]{1,9}@[g-z]{1,9}\.[g-z]{1,8}",
        r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9](T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?.{0,3}",
        r"[0-9]{1,9}",
        r"[\p{Han}\u{1f600}-\u{1f64f}\u{301}]{1,9}",
    ]
    .prop_filter("is no part of a marker", |text| {
        !text.contains('•') && !"[withheld]".contains(text.as_str())
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => text().prop_map(Value::String),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        2 => (1_000_i64..).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Returns every text, number and boolean in `value`, as text.
fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Bool(_) | Value::Number(_) => vec![value.to_string()],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(members) => members.values().flat_map(leaves).collect(),
    }
}

/// Returns whether the text is `[KIND_` + 16 hexadecimal digits + `]`.
fn is_token(text: &str) -> bool {
    text.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|rest| rest.rsplit_once('_'))
        .is_some_and(|(_, digits)| {
            digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

/// Returns what `masked` shows of the original value at most.
fn revealed_characters(masked: &str) -> String {
    match masked {
        "[withheld]" => String::new(),
        token if is_token(token) => String::new(),
        other => other
            .chars()
            .filter(|character| !"•@. ".contains(*character))
            .collect(),
    }
}

proptest! {
    #[test]
    fn p3_no_column_beyond_the_tier(
        cells in prop::collection::vec((value(), 0..CLASSES.len(), 0..TIERS.len()), 1..8),
    ) {
        let names: Vec<Arc<str>> = (0..cells.len()).map(|at| Arc::from(format!("c{at}"))).collect();
        let classes: Vec<ColumnClass> = cells.iter().map(|(_, at, _)| class(CLASSES[*at])).collect();
        let given: Row = names.iter().cloned().zip(cells.iter().map(|cell| cell.0.clone())).collect();
        let classify = |name: &str| {
            let at: usize = name[1..].parse().unwrap();
            (&classes[at], TIERS[cells[at].2])
        };

        let (released, _) = redactor().rows([given.clone()], ConfiguredForms::NONE, classify);

        let released = &released.get()[0];
        for (name, before) in given.fields() {
            let (_, tier) = classify(name);
            let after = released.get(name);
            match tier {
                ColumnTier::Clear => prop_assert_eq!(after, Some(before)),
                ColumnTier::Dropped => prop_assert_eq!(after, None),
                ColumnTier::Pseudonym => {
                    prop_assert!(leaves(after.unwrap()).iter().all(|leaf| is_token(leaf)));
                }
                ColumnTier::Partial | ColumnTier::Generalised => {
                    let raw: Vec<String> =
                        leaves(before).into_iter().filter(|leaf| leaf.chars().count() >= 4).collect();
                    for leaf in after.map(leaves).unwrap_or_default() {
                        prop_assert!(!raw.contains(&leaf), "{} is released", leaf);
                    }
                }
            }
        }
    }

    #[test]
    fn a_masked_text_never_contains_the_text(text in text(), at in 0..CLASSES.len()) {
        // Shorter texts may be part of a mask by chance. Other tests cover them.
        if text.chars().count() < 4 {
            return Ok(());
        }
        for tier in [ColumnTier::Partial, ColumnTier::Generalised] {
            let released = redactor().field(&class(CLASSES[at]), tier, ConfiguredForms::NONE, json!(text));
            let released = released.unwrap();
            prop_assert!(!released.as_str().unwrap().contains(&text), "{released} for {text}");
        }
    }

    #[test]
    fn no_more_remains_than_the_kind_allows(text in text(), at in 0..CLASSES.len()) {
        let name = CLASSES[at];
        let characters = text.chars().count();
        let released = |tier| {
            let released = redactor().field(&class(name), tier, ConfiguredForms::NONE, json!(text)).unwrap();
            revealed_characters(released.as_str().unwrap()).chars().count()
        };
        let partial = match name {
            "id.patient" | "id.staff" | "finance.insurance" => 2.min(characters * 2 / 5),
            "contact.phone" => 4.min(characters * 2 / 5),
            "phi.name" => characters / 3,
            "contact.email" => 1 + 6,
            "phi.date" => "1961-04".len(),
            "contact.zip" => 3,
            _ => 0,
        };
        prop_assert!(released(ColumnTier::Partial) <= partial, "{name} {text}");
        let generalised = match name {
            "phi.date" => 4,
            "contact.zip" => 3,
            "phi.age" => "40-49".len(),
            _ => 0,
        };
        prop_assert!(released(ColumnTier::Generalised) <= generalised, "{name} {text}");
    }

    #[test]
    fn a_text_of_three_characters_shows_none_of_them(text in r"[\p{Lu}\p{Nd}\p{Han}]{1,3}", at in 0..CLASSES.len()) {
        let released = redactor().field(&class(CLASSES[at]), ColumnTier::Partial, ConfiguredForms::NONE, json!(text));
        let released = released.unwrap();
        prop_assert!(!released.as_str().unwrap().chars().any(|shown| text.contains(shown)));
    }

    #[test]
    fn a_pseudonym_depends_on_nothing_but_key_tenant_class_and_value(value in value()) {
        let class = class("phi.name");
        let first = redactor().field(&class, ColumnTier::Pseudonym, ConfiguredForms::NONE, value.clone());
        prop_assert_eq!(&first, &redactor().field(&class, ColumnTier::Pseudonym, ConfiguredForms::NONE, value.clone()));
        let elsewhere = Redactor::new(&PseudonymKey::new([7; 32]), "other");
        let second = elsewhere.field(&class, ColumnTier::Pseudonym, ConfiguredForms::NONE, value);
        for (here, there) in leaves(&first.unwrap()).iter().zip(leaves(&second.unwrap())) {
            prop_assert_ne!(here, &there);
        }
    }
}

#[test]
fn the_mask_reaches_every_leaf_of_a_nested_value() {
    let value = json!({ "a": ["NUGWI", 4711, null, true, ""], "b": { "c": "KELPO" } });
    let field = |class_name, tier| {
        redactor().field(
            &class(class_name),
            tier,
            ConfiguredForms::NONE,
            value.clone(),
        )
    };
    assert_eq!(
        field("id.patient", ColumnTier::Partial),
        Some(json!({ "a": ["•••WI", "•••1", null, "•••", ""], "b": { "c": "•••PO" } }))
    );
    assert_eq!(
        field("phi.text", ColumnTier::Generalised),
        Some(json!({ "a": ["[withheld]", null, ""], "b": { "c": "[withheld]" } }))
    );
}

#[test]
fn a_number_leaves_generalised_only_where_its_kind_has_a_coarser_form() {
    let generalised = |name, value| {
        redactor().field(
            &class(name),
            ColumnTier::Generalised,
            ConfiguredForms::NONE,
            json!(value),
        )
    };
    assert_eq!(generalised("phi.age", 91), Some(json!("90+")));
    assert_eq!(generalised("contact.zip", 98_101), Some(json!("981")));
    assert_eq!(generalised("phi.date", 1961), None);
    assert_eq!(generalised("none", 12), None);
}

#[test]
fn a_number_and_its_text_have_one_pseudonym() {
    let token = |value| {
        redactor().field(
            &class("id.patient"),
            ColumnTier::Pseudonym,
            ConfiguredForms::NONE,
            value,
        )
    };
    assert_eq!(token(json!(4711)), token(json!("4711")));
}

#[test]
fn columns_keep_their_order_and_dropped_ones_are_gone() {
    let (clear, gone) = (class("none"), class("phi.text"));
    let rows = [row(&[("z", json!(1)), ("m", json!("x")), ("a", json!(2))])];
    let (released, _) = redactor().rows(rows, ConfiguredForms::NONE, |name| match name {
        "m" => (&gone, ColumnTier::Dropped),
        _ => (&clear, ColumnTier::Clear),
    });
    assert_eq!(
        serde_json::to_string(&released).unwrap(),
        r#"[{"z":1,"a":2}]"#
    );
}

#[test]
fn rows_of_different_columns_are_each_classified_by_name() {
    let (clear, text) = (class("none"), class("phi.text"));
    let rows = [
        row(&[("note", json!("x")), ("id", json!(1))]),
        row(&[("id", json!(2)), ("note", json!("y"))]),
    ];
    let (released, _) = redactor().rows(rows, ConfiguredForms::NONE, |name| match name {
        "note" => (&text, ColumnTier::Partial),
        _ => (&clear, ColumnTier::Clear),
    });
    assert_eq!(
        serde_json::to_value(&released).unwrap(),
        json!([{ "note": "[withheld]", "id": 1 }, { "id": 2, "note": "[withheld]" }])
    );
}

#[test]
fn a_column_of_shared_name_is_classified_once() {
    let name: Arc<str> = Arc::from("id");
    let asked = std::cell::Cell::new(0);
    let clear = class("none");
    let rows = (0..100).map(|at| Row::new(vec![(Arc::clone(&name), json!(at))]));
    let (released, _) = redactor().rows(rows, ConfiguredForms::NONE, |_| {
        asked.set(asked.get() + 1);
        (&clear, ColumnTier::Clear)
    });
    assert_eq!((released.get().len(), asked.get()), (100, 1));
}

#[test]
fn the_counts_tell_what_was_withheld_and_that_health_information_left() {
    let counted = |class_name: &str, tier, value| {
        let class = class(class_name);
        redactor()
            .rows([row(&[("c", value)])], ConfiguredForms::NONE, |_| {
                (&class, tier)
            })
            .1
    };
    for (class_name, tier, value, fields_redacted, phi) in [
        ("phi.text", ColumnTier::Clear, json!("x"), 0, true),
        ("phi.text", ColumnTier::Partial, json!("x"), 1, true),
        ("phi.text", ColumnTier::Dropped, json!("x"), 1, false),
        ("phi.text", ColumnTier::Partial, Value::Null, 0, false),
        ("phi.date", ColumnTier::Generalised, json!(1961), 1, false),
        (
            "finance.insurance",
            ColumnTier::Partial,
            json!("HP-4711"),
            1,
            false,
        ),
        ("none", ColumnTier::Clear, json!("x"), 0, false),
    ] {
        let counts = counted(class_name, tier, value);
        assert_eq!(
            (counts.fields_redacted, counts.phi),
            (fields_redacted, phi),
            "{class_name} {tier:?}"
        );
    }
}

#[test]
fn a_column_that_is_dropped_is_counted_once_with_the_reason() {
    let (unclassified, text, date) = (
        ColumnClass::unclassified(),
        class("phi.text"),
        class("phi.date"),
    );
    let rows = [json!(1961), json!(1962)].map(|born| {
        row(&[
            ("a", json!("x")),
            ("b", json!("x")),
            ("note", json!("x")),
            ("born", born),
        ])
    });
    let (released, counts) = redactor().rows(rows, ConfiguredForms::NONE, |column| match column {
        "note" => (&text, ColumnTier::Dropped),
        "born" => (&date, ColumnTier::Generalised),
        _ => (&unclassified, ColumnTier::Dropped),
    });
    assert_eq!(serde_json::to_value(&released).unwrap(), json!([{}, {}]));
    let names = |reason| counts.dropped.names(reason).collect::<Vec<_>>();
    assert_eq!(names(DropReason::Unclassified), ["a", "b"]);
    assert_eq!(names(DropReason::NotPermitted), ["born", "note"]);
    assert_eq!(counts.dropped.count(DropReason::Unclassified), 2);

    let (_, counts) = redactor().rows([row(&[("a", json!("x"))])], ConfiguredForms::NONE, |_| {
        (&unclassified, ColumnTier::Clear)
    });
    assert!(counts.dropped.is_empty());
}

#[test]
fn no_debug_form_shows_a_value() {
    let clear = class("phi.name");
    let raw = row(&[("name", json!("Jane Doe"))]);
    let shown = format!("{raw:?}");
    let (released, _) = redactor().rows([raw], ConfiguredForms::NONE, |_| {
        (&clear, ColumnTier::Clear)
    });
    assert_eq!(shown, r#"Row {"name"}"#);
    assert_eq!(format!("{released:?}"), "Redacted(..)");
}

#[test]
fn a_megabyte_in_one_field_takes_linear_time() {
    let redactor = redactor();
    let started = Instant::now();
    for hostile in [
        "1".repeat(1 << 20),
        "a ".repeat(1 << 19),
        "@".repeat(1 << 20),
        "１".repeat(1 << 19),
    ] {
        for name in CLASSES {
            for tier in TIERS {
                redactor.field(&class(name), tier, ConfiguredForms::NONE, json!(hostile));
            }
        }
    }
    // Quadratic work on a megabyte would take hours; linear work takes about a second without optimisation.
    assert!(
        started.elapsed() < Duration::from_mins(1),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn configured_forms_make_numbers_coarser_and_keep_them_numbers_where_they_round() {
    let number = |text: &str| text.parse().unwrap();
    let forms = |generalised| ClassForms {
        partial: Form::Masked,
        generalised,
    };
    let configured = ConfiguredForms::new(
        [
            (
                class("finance.amount"),
                forms(Form::Bands(["0", "1000"].map(number).to_vec())),
            ),
            (class("finance.limit"), forms(Form::Rounded(number("500")))),
            (class("contact.latitude"), forms(Form::Decimals(1))),
        ]
        .into(),
    );
    for (name, value, left) in [
        ("finance.amount", json!(250), Some(json!("0-<1000"))),
        ("finance.amount", json!("1250.75"), Some(json!("1000+"))),
        ("finance.amount", json!(true), Some(json!("[withheld]"))),
        ("finance.limit", json!(1_260), Some(json!(1500))),
        ("finance.limit", json!("1260"), Some(json!("1500"))),
        (
            "contact.latitude",
            json!([47.608_013, null]),
            Some(json!([47.6, null])),
        ),
        ("finance.rate", json!(3.5), None),
    ] {
        let released = redactor().field(
            &class(name),
            ColumnTier::Generalised,
            &configured,
            value.clone(),
        );
        assert_eq!(released, left, "{name} {value}");
    }
    let partial = redactor().field(
        &class("finance.amount"),
        ColumnTier::Partial,
        &configured,
        json!(250),
    );
    assert_eq!(partial, Some(json!("•••")));
}
