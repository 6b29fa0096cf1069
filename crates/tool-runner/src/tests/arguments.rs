//! Tests of arguments: they are coerced without loss, refused by name, bound, and never part of a statement.

use bigdecimal::BigDecimal;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, TestRng, TestRunner};
use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1::OutcomeStatus;

use super::harness::{Answer, Harness, tools};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

fn assert_invalid(answer: &Answer, named: &str) {
    assert!(
        answer.0.is_error,
        "{named}: {:?}",
        answer.0.structured_content_json
    );
    assert_eq!(
        answer.facts().status,
        i32::from(OutcomeStatus::InvalidArguments),
        "{named}"
    );
    assert_eq!(answer.facts().error_kind, "invalid_arguments");
    assert!(
        answer.text().starts_with("Invalid arguments: "),
        "{}",
        answer.text()
    );
    assert!(answer.text().contains(named), "{named}: {}", answer.text());
    assert!(answer.0.structured_content_json.is_empty());
    let stages: Vec<_> = answer
        .facts()
        .stages
        .iter()
        .map(|stage| stage.stage.as_str())
        .collect();
    assert_eq!(stages, ["permit", "validate"], "nothing else ran");
}

#[tokio::test]
async fn coercion_never_loses_anything() {
    let given_and_got: [(&str, &str, Value); 28] = [
        ("whole", "10", json!(10)),
        ("whole", r#""10""#, json!(10)),
        ("whole", "10.0", json!(10)),
        ("whole", "1e3", json!(1000)),
        ("whole", "-0", json!(0)),
        ("whole", "9223372036854775807", json!(i64::MAX)),
        ("whole", "-9223372036854775808", json!(i64::MIN)),
        ("whole", r#""-5""#, json!(-5)),
        (
            "whole",
            "9007199254740993.0",
            json!(9_007_199_254_740_993_i64),
        ),
        ("number", "10", json!(10.0)),
        ("number", "0.5", json!(0.5)),
        ("number", r#""2.5e-3""#, json!(0.0025)),
        ("number", r#""10""#, json!(10.0)),
        ("number", "9007199254740992", json!(9_007_199_254_740_992.0)),
        ("truth", "true", json!(true)),
        ("truth", r#""true""#, json!(true)),
        ("truth", r#""false""#, json!(false)),
        ("text", r#""""#, json!("")),
        ("text", "10", json!("10")),
        ("text", "10.50", json!("10.50")),
        (
            "text",
            "123456789012345678901234567890",
            json!("123456789012345678901234567890"),
        ),
        ("text", "1E400", json!("1E400")),
        ("text", r#""10""#, json!("10")),
        ("text", r#""\u00e9\ud83d\ude00""#, json!("é😀")),
        ("text", r#""null""#, json!("null")),
        ("text", "null", Value::Null),
        ("day", r#""2025-11-10""#, json!("2025-11-10")),
        ("day", r#""2024-02-29""#, json!("2024-02-29")),
    ];
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        for (name, given, got) in &given_and_got {
            let answer = harness
                .call("echo", &format!(r#"{{"{name}":{given}}}"#))
                .await;
            let row = answer.rows().remove(0);
            if *name == "number" {
                // Some databases return an exact decimal as a string.
                assert_eq!(
                    exact(&row[name]),
                    exact(got),
                    "{}: {given}",
                    database.kind()
                );
                continue;
            }
            let is_number = *name == "truth" && !matches!(database, TestDatabase::Postgres { .. });
            let got = if is_number {
                json!(i64::from(got == &json!(true)))
            } else {
                got.clone()
            };
            assert_eq!(row[name], got, "{}: {name} {given}", database.kind());
        }
    }
}

/// Returns the value of a number or of a string that contains a number.
pub(super) fn exact(value: &Value) -> BigDecimal {
    match value {
        Value::Number(number) => number.as_str().parse().unwrap(),
        Value::String(text) => text.parse().unwrap(),
        other => panic!("no number: {other}"),
    }
}

#[tokio::test]
async fn a_default_is_bound_however_it_is_written() {
    let database = database::sqlite().await;
    for default in ["5", "5.0", "5e0"] {
        let tools = tools().replace("default: 0 }", &format!("default: {default} }}"));
        let harness = Harness::with(&database, &tools, |_| ()).await;
        assert_eq!(
            harness.call("plain_rows", "{}").await.column("id"),
            [6, 7],
            "{default}"
        );
    }
}

#[tokio::test]
async fn what_would_lose_something_is_refused_and_its_value_not_repeated() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    for (name, given) in [
        ("whole", r#""10.5""#),
        ("whole", "10.5"),
        ("whole", r#""10.0""#),
        ("whole", r#"" 10""#),
        ("whole", r#""10 ""#),
        ("whole", r#""+10""#),
        ("whole", r#""010""#),
        ("whole", r#""0x10""#),
        ("whole", r#""""#),
        ("whole", "9007199254740993.1"),
        ("whole", "1e1000"),
        ("whole", "true"),
        ("whole", "null"),
        ("whole", "[4242]"),
        ("number", r#""NaN""#),
        ("number", r#""1,5""#),
        ("number", "1e1000"),
        ("number", "1e-1001"),
        ("number", "true"),
        ("truth", "1"),
        ("truth", "0"),
        ("truth", r#""True""#),
        ("truth", r#""yes""#),
        ("text", "true"),
        ("text", "[1]"),
        ("text", "{}"),
        ("text", r#""\u0000""#),
        ("text", r#""\ud800""#),
        ("day", r#""yesterday""#),
        ("day", r#""2025-02-30""#),
        ("list", r#"[{"a":1,"a":2}]"#),
        ("list", r#"[{"a":"\u0000"}]"#),
        ("list", "5"),
        ("list", "[5]"),
        ("either", "1.5"),
    ] {
        let answer = harness
            .call("echo", &format!(r#"{{"{name}":{given}}}"#))
            .await;
        assert_invalid(&answer, &format!("`{name}"));
        let value = given.trim_matches('"');
        if value.len() > 3 {
            assert!(
                !answer.text().contains(value),
                "{given} is repeated: {}",
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn p6_bad_arguments_are_refused_well_formed() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let terms = harness.terms("echo").await;
    let permit = harness.signer.sign(&terms);
    let deep = format!(r#"{{"list":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    for junk in [
        &b""[..],
        b"null",
        b"[]",
        b"7",
        b"\"text\"",
        b"{",
        b"{}{}",
        b"{\"text\":}",
        b"{'text':'x'}",
        b"{\"text\":\"x\",}",
        b"\xef\xbb\xbf{}",
        b"{\"text\":\"\xff\"}",
        b"{\"text\":NaN}",
        b"// no\n{}",
        deep.as_bytes(),
    ] {
        let answer = harness
            .send(harness.request("echo", junk, Some(&permit)))
            .await
            .unwrap();
        assert!(answer.0.is_error, "{:?}", String::from_utf8_lossy(junk));
        assert_eq!(
            answer.facts().status,
            i32::from(OutcomeStatus::InvalidArguments)
        );
    }
    for (arguments, named) in [
        (r#"{"text":"a","text":"b"}"#, "`text` occurs twice"),
        (r#"{"txet":"a"}"#, "whose arguments are `text`, `whole`"),
        (r#"{"Text":"a"}"#, "`Text` is not an argument"),
        (r#"{"te\u0000xt":"a"}"#, r"`te\0xt` is not an argument"),
    ] {
        assert_invalid(&harness.call_with(&terms, arguments).await.unwrap(), named);
    }
    assert_invalid(&harness.call("series", "{}").await, "`last` is required");
    let long = harness
        .call("echo", &json!({"text": "ä".repeat(401)}).to_string())
        .await;
    assert_invalid(&long, "`text`");
    assert!(!long.text().contains('ä'));
}

/// Common injection attempts (after the lists of sqlmap and others) for every database.
pub(super) const INJECTIONS: [&str; 24] = [
    "'",
    "''",
    "\"",
    "`",
    "\\",
    "\\'",
    "' OR '1'='1",
    "' OR 1=1 --",
    "' OR 1=1 #",
    "'; DROP TABLE written; --",
    "'; COMMIT; DROP TABLE records; --",
    "') UNION SELECT 1, 'x', 'y' --",
    "1; ATTACH DATABASE 'x' AS y",
    "$1",
    "?1",
    ":text",
    "::text",
    "$$; DROP TABLE records; $$",
    "/* */",
    "-- ",
    "'||(SELECT note FROM records LIMIT 1)||'",
    "1 AND (SELECT pg_sleep(5)) IS NULL",
    "%s %n {text} ${URL}",
    "\u{ff07} OR \u{2019}1\u{2019}=\u{2019}1",
];

#[tokio::test]
async fn no_value_changes_the_statement() {
    let mut runner = TestRunner::new_with_rng(
        Cases::default(),
        TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let strange = "[ -~é'\"\\\\;\n\t:$?]{0,60}".prop_map(|text| text);
    let strange = (0..100).map(|_| strange.new_tree(&mut runner).unwrap().current());
    let texts: Vec<_> = INJECTIONS
        .into_iter()
        .map(str::to_owned)
        .chain(strange)
        .collect();
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        for text in &texts {
            let answer = harness
                .call("echo", &json!({"text": text}).to_string())
                .await;
            assert_eq!(answer.rows()[0]["text"], json!(text), "{}", database.kind());
            assert_eq!(answer.rows()[0]["fixed"], json!("a ':text' b"));
            let answer = harness
                .call("governed_rows", &json!({"patient": text}).to_string())
                .await;
            if !text.is_empty() {
                assert_eq!(answer.facts().error_kind, "no_rows", "{text}");
            }
            for name in ["whole", "number", "truth", "day"] {
                if !text.is_empty() {
                    let answer = harness
                        .call("echo", &json!({ name: text }).to_string())
                        .await;
                    assert_invalid(&answer, name);
                }
            }
        }
        for text in INJECTIONS {
            harness
                .call("append", &json!({"line": text}).to_string())
                .await
                .rows();
        }
        assert_eq!(database.number("SELECT count(*) FROM written").await, 24);
        assert_eq!(database.number("SELECT count(*) FROM records").await, 7);
    }
}
