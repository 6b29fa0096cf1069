//! Tests of P3: no row and no column is released beyond the rule.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, TestRng, TestRunner};
use serde_json::json;
use wardgate_domain::{AttributeType, ColumnTier, Digest, PermitTerms};

use super::harness::{Harness, rule, tools};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

/// Rules over the harness's rows, and the ids that they admit, determined by reading the rows.
const RULES: [(&[&str], &[i64]); 32] = [
    (&[], &[]),
    (
        &["permit(principal, action, resource);"],
        &[1, 2, 3, 4, 5, 6, 7],
    ),
    (
        &[
            r#"permit(principal, action, resource) when { resource has doctor && resource.doctor == "d1" };"#,
        ],
        &[1, 4, 7],
    ),
    // A policy fails on absent attributes, and a row on which a policy fails is withheld.
    (
        &[r#"permit(principal, action, resource) when { resource.doctor == "d1" };"#],
        &[1, 4, 7],
    ),
    (
        &[r#"permit(principal, action, resource) when { resource.doctor != "d1" };"#],
        &[2, 5, 6],
    ),
    (
        &["permit(principal, action, resource) when { !(resource has ward) };"],
        &[5],
    ),
    (
        &[
            r#"permit(principal, action, resource) unless { resource has ward && resource.ward == "W1" };"#,
        ],
        &[3, 4, 5, 7],
    ),
    (
        &["permit(principal, action, resource) when { resource.sealed };"],
        &[4, 6],
    ),
    (
        &["permit(principal, action, resource) when { !resource.sealed };"],
        &[1, 2, 3, 5, 7],
    ),
    (
        &["permit(principal, action, resource) when { resource.sealed == false };"],
        &[1, 2, 3, 5, 7],
    ),
    (
        &[
            "permit(principal, action, resource);",
            "forbid(principal, action, resource) when { resource.sealed };",
        ],
        &[1, 2, 3, 5, 7],
    ),
    (
        &[
            "permit(principal, action, resource);",
            r#"forbid(principal, action, resource) when { resource.ward == "W1" };"#,
        ],
        &[3, 4, 7],
    ),
    (
        &[
            "permit(principal, action, resource) when { resource has level && resource.level >= 2 };",
        ],
        &[2, 3, 4, 6],
    ),
    (
        &["permit(principal, action, resource) when { resource has level && resource.level < 0 };"],
        &[7],
    ),
    (
        &[
            "permit(principal, action, resource) when { resource has level && resource.level == 9007199254740993 };",
        ],
        &[6],
    ),
    (
        &[r#"permit(principal, action, resource) when { ["W2","W3"].contains(resource.ward) };"#],
        &[3, 4, 7],
    ),
    (
        &["permit(principal, action, resource) when { [].contains(resource.patient) };"],
        &[],
    ),
    (
        &[r#"permit(principal, action, resource) when { resource.doctor == "d'1" };"#],
        &[6],
    ),
    (
        &[r#"permit(principal, action, resource) when { resource.doctor == "x' OR '1'='1" };"#],
        &[],
    ),
    (
        &[
            r#"permit(principal, action, resource) when { resource.sealed || resource.ward == "W1" };"#,
        ],
        &[1, 2, 4, 6],
    ),
    (
        &[
            r#"permit(principal, action, resource) when { resource has ward && resource.ward == "W1" };"#,
            r#"permit(principal, action, resource) when { resource.patient == "ABCDE" };"#,
        ],
        &[1, 2, 4, 5, 6],
    ),
    // Strings are compared exactly, regardless of the collation of a column.
    (
        &[r#"permit(principal, action, resource) when { resource.doctor == "D1" };"#],
        &[],
    ),
    (
        &[r#"permit(principal, action, resource) when { resource.doctor != "D1" };"#],
        &[1, 2, 4, 5, 6, 7],
    ),
    (
        &[
            r#"permit(principal, action, resource) when { ["d1 ", "D2"].contains(resource.doctor) };"#,
        ],
        &[],
    ),
    (
        &[
            "permit(principal, action, resource);",
            r#"forbid(principal, action, resource) when { resource has ward && (resource.ward == "w1" || resource.ward == "W3 ") };"#,
        ],
        &[1, 2, 3, 4, 5, 6, 7],
    ),
    (
        &["permit(principal, action, resource) when { resource.doctor == resource.ward };"],
        &[],
    ),
    (
        &[r#"permit(principal, action, resource) when { resource.note like "*th" };"#],
        &[4, 5],
    ),
    // Expressions that are not translated to SQL: a set with an attribute, arithmetic, an attribute without SQL in a
    // conditional, the row itself, another type.
    (
        &[r#"permit(principal, action, resource) when { [resource.note].contains("first") };"#],
        &[1],
    ),
    (
        &[
            "permit(principal, action, resource) when { resource has level && resource.level + 1 == 3 };",
        ],
        &[2],
    ),
    (
        &[
            r#"permit(principal, action, resource) when { if resource.sealed then resource.doctor == "d1" else resource.id < 3 };"#,
        ],
        &[1, 2, 4],
    ),
    (
        &[r#"permit(principal == User::"d1", action == Action::"read", resource == Record::"5");"#],
        &[5],
    ),
    (&["permit(principal, action, resource is Other);"], &[]),
];

async fn both_ways(database: &TestDatabase) -> [Harness; 2] {
    [
        Harness::with(database, tools(), |config| config.pushdown = true).await,
        Harness::with(database, tools(), |config| config.pushdown = false).await,
    ]
}

async fn ids(harness: &Harness, policies: &[&str]) -> (Vec<i64>, u64) {
    let mut terms = harness.terms("governed_rows").await;
    terms.row_rule = Some(rule(policies));
    let answer = harness.call_with(&terms, "{}").await.unwrap();
    let withheld = answer.facts().rows_withheld;
    if answer.0.is_error {
        assert_eq!(
            answer.facts().error_kind,
            "no_rows",
            "{policies:?}: {}",
            answer.text()
        );
        return (Vec::new(), withheld);
    }
    (answer.column("id"), withheld)
}

#[tokio::test]
async fn p3_no_row_beyond_the_rule() {
    for database in database::each().await {
        let [pushed, checked] = both_ways(&database).await;
        for (policies, admitted) in RULES {
            let (by_check, withheld) = ids(&checked, policies).await;
            assert_eq!(by_check, admitted, "{policies:?}");
            assert_eq!(withheld, 7 - admitted.len() as u64, "{policies:?}");
            let (by_pushdown, withheld) = ids(&pushed, policies).await;
            assert_eq!(
                by_pushdown,
                admitted,
                "{}, pushed down: {policies:?}",
                database.kind()
            );
            assert!(withheld <= 7 - admitted.len() as u64, "{policies:?}");
        }
    }
}

#[tokio::test]
async fn the_database_leaves_out_what_it_understands() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        for (policies, withheld) in [
            (
                &[r#"permit(principal, action, resource) when { resource.doctor == "d1" };"#][..],
                0,
            ),
            (
                &["permit(principal, action, resource) when { !resource.sealed };"],
                0,
            ),
            (&[], 0),
            // A forbid fails for the row without a ward, so the database leaves out that row, too.
            (
                &[
                    "permit(principal, action, resource);",
                    r#"forbid(principal, action, resource) when { resource.ward == "W1" };"#,
                ],
                0,
            ),
            (
                &[r#"permit(principal, action, resource) when { resource.doctor like "d*1" };"#],
                0,
            ),
            (
                &[
                    "permit(principal, action, resource) when { if resource.sealed then false else resource.level > 1 };",
                ],
                0,
            ),
            // The condition is not translated, so the database returns every row and the check withholds some.
            (
                &[
                    r#"permit(principal, action, resource) when { [resource.note].contains("first") };"#,
                ],
                6,
            ),
        ] {
            assert_eq!(ids(&harness, policies).await.1, withheld, "{policies:?}");
        }
    }
}

/// Tests texts that the pattern operators of SQLite compare differently: `GLOB` ignores what follows a NUL character, and treats
/// U+FFFF as U+FFFD.
#[tokio::test]
async fn p3_a_pattern_is_compared_with_the_whole_text() {
    let database = database::sqlite().await;
    database
        .execute(
            "INSERT INTO records VALUES
             (8, 'NUGWI', 'd1' || char(0) || 'x', NULL, FALSE, 0, NULL),
             (9, 'NUGWI', char(65535) || 'x', NULL, FALSE, 0, NULL)",
        )
        .await;
    let [pushed, checked] = both_ways(&database).await;
    for (pattern, admitted) in [
        ("d1", &[1, 4, 7][..]),
        ("d1*", &[1, 4, 7, 8]),
        ("*x", &[8, 9]),
        ("d*1", &[1, 4, 6, 7]),
        ("*1*", &[1, 4, 6, 7, 8]),
        ("**", &[1, 2, 4, 5, 6, 7, 8, 9]),
        ("d1*1", &[]),
        ("D1", &[]),
        ("\u{fffd}*", &[]),
    ] {
        let policy = format!(
            "permit(principal, action, resource) when {{ resource.doctor like \"{pattern}\" }};"
        );
        let (by_check, _) = ids(&checked, &[&policy]).await;
        assert_eq!(by_check, admitted, "{pattern}");
        assert_eq!(ids(&pushed, &[&policy]).await, (by_check, 0), "{pattern}");
    }
}

/// Random conditions over the attributes, including some that fail and some that are not translated to SQL.
fn condition() -> impl Strategy<Value = String> {
    let text = proptest::sample::select(vec!["doctor", "ward", "patient", "note", "absent"]);
    let value = proptest::sample::select(vec!["d1", "D1", "d2 ", "W1", "W2", "NUGWI", "d'1", ""]);
    let operator = proptest::sample::select(vec!["==", "!="]);
    let order = proptest::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
    let leaf = proptest::prop_oneof![
        (text.clone(), operator, value.clone())
            .prop_map(|(attr, op, value)| format!(r#"(resource.{attr} {op} "{value}")"#)),
        (order, -2..4_i64).prop_map(|(op, level)| format!("(resource.level {op} {level})")),
        text.clone()
            .prop_map(|attr| format!("(resource has {attr})")),
        text.clone()
            .prop_map(|attr| format!(r#"(resource has {attr} && resource.{attr} like "*1")"#)),
        (text, value.clone(), value)
            .prop_map(|(attr, a, b)| format!(r#"(["{a}", "{b}"].contains(resource.{attr}))"#)),
        proptest::strategy::Just("resource.sealed".to_owned()),
        proptest::bool::ANY.prop_map(|truth| truth.to_string()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        proptest::prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.prop_map(|a| format!("(!{a})")),
        ]
    })
}

#[tokio::test]
async fn p3_pushdown_changes_no_answer() {
    let policies = (
        proptest::collection::vec(condition(), 0..3),
        proptest::collection::vec(condition(), 0..2),
    );
    let mut runner = TestRunner::new_with_rng(
        Cases::default(),
        TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    for database in database::each().await {
        let [pushed, checked] = both_ways(&database).await;
        for _ in 0..150 {
            let (permits, forbids) = policies.new_tree(&mut runner).unwrap().current();
            let policy = |effect: &str, condition: &String| {
                format!("{effect}(principal, action, resource) when {{ {condition} }};")
            };
            let mut texts: Vec<_> = permits.iter().map(|one| policy("permit", one)).collect();
            texts.extend(forbids.iter().map(|one| policy("forbid", one)));
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            let (with, _) = ids(&pushed, &texts).await;
            let (without, _) = ids(&checked, &texts).await;
            assert_eq!(with, without, "{}: {texts:#?}", database.kind());
        }
    }
}

#[tokio::test]
async fn p3_no_column_beyond_the_permit() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let mut terms: PermitTerms = harness.terms("governed_rows").await;
        let mut tier = |class: &str, tier| terms.column_tiers.insert(class.parse().unwrap(), tier);
        tier("id.patient", ColumnTier::Partial);
        tier("place.ward", ColumnTier::Pseudonym);
        tier("phi.text", ColumnTier::Dropped);
        // Even a tier for the internal columns does not release them.
        tier("staff.id", ColumnTier::Clear);
        terms.column_tiers.remove(&"admin.level".parse().unwrap());
        let answer = harness.call_with(&terms, "{}").await.unwrap();
        let row = answer.rows()[0].as_object().unwrap().clone();
        let columns: Vec<_> = row.keys().map(String::as_str).collect();
        assert_eq!(columns, ["id", "patient", "ward"]);
        assert_eq!(row["patient"], "•••WI");
        assert!(
            row["ward"].as_str().unwrap().starts_with("[WARD_"),
            "{row:?}"
        );
        // The patient, note and level of 7 rows, and the ward of the 6 rows that have one.
        assert_eq!(answer.facts().fields_redacted, 7 * 3 + 6);
        assert!(answer.facts().phi);
        for canary in [
            "NUGWI",
            "ABCDE",
            "d1",
            "first",
            "sealed",
            "doctor",
            "9007199254740993",
        ] {
            assert!(
                !answer.text().contains(canary),
                "{canary}: {}",
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn an_unclassified_column_needs_a_tier_like_any_other() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let mut terms = harness.terms("plain_rows").await;
    assert_eq!(
        harness
            .call_with(&terms, "{}")
            .await
            .unwrap()
            .column("id")
            .len(),
        7
    );
    terms.column_tiers.remove(&"unclassified".parse().unwrap());
    let answer = harness.call_with(&terms, "{}").await.unwrap();
    assert!(answer.rows().iter().all(|row| row.get("id").is_none()));
    let dropped = answer.facts().dropped_columns.unwrap();
    assert!(dropped.unclassified > 0, "{dropped:?}");
    assert_eq!(dropped.not_permitted, 0);
}

#[tokio::test]
async fn hidden_rows_and_no_rows_look_the_same() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let mut terms = harness.terms("governed_rows").await;
    let one_patient =
        r#"permit(principal, action, resource) when { resource.patient == "NUGWI" };"#;
    terms.row_rule = Some(rule(&[one_patient]));
    let hidden = harness
        .call_with(&terms, r#"{"patient":"ABCDE"}"#)
        .await
        .unwrap();
    let unknown = harness
        .call_with(&terms, r#"{"patient":"NOGWI"}"#)
        .await
        .unwrap();
    assert!(hidden.0.is_error && unknown.0.is_error);
    assert_eq!(hidden.text(), "Invalid patient: ABCDE");
    assert_eq!(unknown.text(), "Invalid patient: NOGWI");
    assert_eq!(hidden.facts().status, unknown.facts().status);
}

/// Tests that a forbid on an absent attribute, or on an attribute of another type than the checked one, does not
/// silently fail to forbid, and that the caller cannot see that there is such a row.
#[tokio::test]
async fn p3_a_row_the_rule_was_not_made_for_is_withheld() {
    for database in database::each().await {
        let [_, checked] = both_ways(&database).await;
        for (attribute, kind) in [
            ("missing", AttributeType::Boolean),
            ("sealed", AttributeType::Integer),
            ("id", AttributeType::Text),
        ] {
            let text = "forbid(principal, action, resource) when { resource has NAME && resource.NAME == true };"
                .replace("NAME", attribute);
            let mut terms = checked.terms("governed_rows").await;
            let mut spoilt = rule(&["permit(principal, action, resource);", &text]);
            spoilt.attributes = [(attribute.to_owned(), kind)].into();
            terms.row_rule = Some(spoilt);
            // The answer is the same as for a patient who has no rows.
            for (patient, withheld) in [("NUGWI", 3), ("NOGWI", 0)] {
                let arguments = json!({ "patient": patient }).to_string();
                let answer = checked.call_with(&terms, &arguments).await.unwrap();
                let facts = answer.facts();
                assert_eq!(answer.text(), format!("Invalid patient: {patient}"));
                assert_eq!((facts.error_kind.as_str(), facts.rows), ("no_rows", 0));
                let undecided = facts.outline.as_ref().map_or(0, |it| it.rows_undecided);
                assert_eq!(
                    (facts.rows_withheld, undecided),
                    (withheld, withheld),
                    "{attribute}"
                );
            }
        }
    }
}

/// Tests that the tool receives exactly the arguments that the policy decided on, without conversions or defaults that
/// the policy has not seen.
#[tokio::test]
async fn arguments_that_were_decided_on_are_not_made_into_others() {
    for database in database::each().await {
        let harness = Harness::with(&database, tools(), |_| {}).await;
        let facts = harness.facts("governed_rows").await;
        assert_eq!(facts.argument_defaults["patient"], "");
        for (arguments, taken) in [
            (r#"{"whole": 7}"#, true),
            (r#"{"whole": "7"}"#, true),
            (r#"{"truth": "true"}"#, true),
            (r#"{"number": 1.50}"#, true),
            (r#"{"whole": 7.0}"#, false),
            (r#"{"text": 12345678901234567890123}"#, true),
            (r#"{"text": 1E5}"#, false),
        ] {
            let mut terms = harness.terms("echo").await;
            terms.arguments_digest = Some(Digest::compute(arguments.as_bytes()));
            let answer = harness.call_with(&terms, arguments).await.unwrap();
            assert_eq!(!answer.0.is_error, taken, "{arguments}: {}", answer.text());
            terms.arguments_digest = None;
            let answer = harness.call_with(&terms, arguments).await.unwrap();
            assert!(!answer.0.is_error, "{arguments}: {}", answer.text());
        }
    }
}
