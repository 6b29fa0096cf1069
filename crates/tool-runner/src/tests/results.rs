//! Tests of the form of results.

use serde_json::json;
use wardgate_proto::toolrunner::v1::OutcomeStatus;

use super::harness::{DOCTOR_ONE, Harness, one_statement, rule, tools};
use crate::tests::database;

#[tokio::test]
async fn a_result_is_the_same_as_text_and_structured_in_the_statements_order() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let answer = harness
            .call("governed_rows", r#"{"patient":"FGHIJ"}"#)
            .await;
        let text = r#"{"data":[{"note":null,"id":7,"patient":"FGHIJ","ward":"W3","level":-1}]}"#;
        assert_eq!(answer.text(), text);
        assert_eq!(
            std::str::from_utf8(&answer.0.structured_content_json).unwrap(),
            text
        );
        let facts = answer.facts();
        assert_eq!(facts.status, i32::from(OutcomeStatus::Ok));
        assert_eq!(
            (facts.rows, facts.rows_withheld, facts.fields_redacted),
            (1, 0, 0)
        );
        assert!(facts.phi && facts.error_kind.is_empty());
        let stages: Vec<_> = facts
            .stages
            .iter()
            .map(|stage| stage.stage.as_str())
            .collect();
        assert_eq!(
            stages,
            ["permit", "validate", "execute", "row_rule", "redact"]
        );
        assert!(facts.stages.iter().all(|stage| stage.duration.is_some()));
    }
}

#[tokio::test]
async fn without_rows_a_result_is_an_empty_list_or_the_configured_error() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let empty = harness.call("plain_rows", r#"{"from":99}"#).await;
    assert_eq!(empty.text(), r#"{"data":[]}"#);
    assert!(!empty.facts().phi);
    let error = harness
        .call("governed_rows", r#"{"patient":"NOGWI"}"#)
        .await;
    assert!(error.0.is_error);
    assert_eq!(error.text(), "Invalid patient: NOGWI");
    assert_eq!(error.facts().status, i32::from(OutcomeStatus::ToolError));
}

#[tokio::test]
async fn rows_beyond_the_cap_are_left_out_and_the_result_says_so() {
    for database in database::each().await {
        let harness = Harness::start(&database).await;
        let full = harness.call("series", r#"{"last":5}"#).await;
        assert_eq!(full.column("value"), [1, 2, 3, 4, 5]);
        assert!(full.structured_content().get("truncated").is_none());
        for last in [6, 100_000_000] {
            let cut = harness
                .call("series", &json!({"last": last}).to_string())
                .await;
            assert_eq!(cut.column("value"), [1, 2, 3, 4, 5]);
            assert_eq!(cut.structured_content()["truncated"], true);
            assert!(
                cut.text().ends_with(r#""truncated":true}"#),
                "{}",
                cut.text()
            );
        }
    }
}

#[tokio::test]
async fn bytes_beyond_the_cap_are_left_out_too() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, tools(), |config| config.max_result_bytes = 100).await;
    let cut = harness.call("plain_rows", "{}").await;
    assert_eq!(cut.column("id"), [1, 2]);
    assert_eq!(cut.structured_content()["truncated"], true);
    let tiny = Harness::with(&database, tools(), |config| config.max_result_bytes = 10).await;
    let nothing = tiny.call("plain_rows", "{}").await;
    assert!(nothing.0.is_error);
    assert_eq!(nothing.facts().error_kind, "result_too_large");
}

#[tokio::test]
async fn withheld_rows_do_not_count_towards_the_cap() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, tools(), |config| {
        config.max_rows = 3;
        config.pushdown = false;
    })
    .await;
    let mut terms = harness.terms("governed_rows").await;
    terms.row_rule = Some(rule(&[DOCTOR_ONE]));
    let answer = harness.call_with(&terms, "{}").await.unwrap();
    assert_eq!(answer.column("id"), [1, 4, 7]);
    assert!(
        answer.structured_content().get("truncated").is_none(),
        "hidden rows do not show in the cut"
    );
}

#[tokio::test]
async fn sqlite_values_keep_what_they_are() {
    let database = database::sqlite().await;
    database
        .execute("CREATE TABLE kinds (yes BOOLEAN, two BOOLEAN); INSERT INTO kinds VALUES (1, 2)")
        .await;
    let statement = "SELECT 1 AS whole, 9223372036854775807 AS large, 1.5 AS float, 9e999 AS endless, \
                     'é' AS text, x'00ff' AS bytes, NULL AS absent, yes, two, true AS bare FROM kinds";
    let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
    assert_eq!(
        harness.call("one", "{}").await.rows(),
        [json!({
            "whole": 1, "large": i64::MAX, "float": 1.5, "endless": "Infinity", "text": "é",
            "bytes": "AP8=", "absent": null, "yes": true, "two": 2, "bare": 1,
        })]
    );
}

#[tokio::test]
async fn postgresql_values_keep_what_they_are() {
    let Some(database) = database::postgres().await else {
        return;
    };
    database
        .execute("CREATE TYPE mood AS ENUM ('calm', 'wild'); CREATE DOMAIN code AS text")
        .await;
    let statement = "SELECT true AS truth, 1::int2 AS i2, -2::int4 AS i4, 9223372036854775807 AS i8, \
        0.1::float4 AS f4, 0.1::float8 AS f8, 'NaN'::float8 AS nan, \
        12345678901234567890.0012300::numeric AS decimal, -0.00000123::numeric AS small, \
        10000::numeric AS tens, 0::numeric(9,2) AS zero, 'NaN'::numeric AS notnum, 1e20::numeric AS big, \
        'x'::text AS text, 'y'::varchar(9) AS varchar, 'z'::char(3) AS padded, 'n'::name AS name, \
        'calm'::mood AS mood, 'c'::code AS domain, '\\x00ff'::bytea AS bytes, \
        '{\"b\":1,\"a\":[null]}'::jsonb AS jsonb, '[1]'::json AS json, \
        '6f9619ff-8b86-d011-b42d-00c04fc964ff'::uuid AS uuid, '2025-11-10'::date AS date, \
        'infinity'::date AS nodate, '10:00:00.5'::time AS time, '24:00'::time AS midnight, \
        '2025-11-10T10:00:00Z'::timestamptz AS zoned, '2025-11-10 10:00:00.25'::timestamp AS local, \
        '0001-01-01 00:00:00'::timestamp AS early, '-infinity'::timestamptz AS never, \
        ARRAY['a', NULL] AS texts, ARRAY[1, 2] AS numbers, NULL::text AS nothing";
    let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
    assert_eq!(
        harness.call("one", "{}").await.rows(),
        [json!({
            "truth": true, "i2": 1, "i4": -2, "i8": i64::MAX, "f4": 0.1, "f8": 0.1, "nan": "NaN",
            "decimal": "12345678901234567890.0012300", "small": "-0.00000123", "tens": "10000",
            "zero": "0.00", "notnum": "NaN", "big": "100000000000000000000",
            "text": "x", "varchar": "y", "padded": "z  ", "name": "n", "mood": "calm", "domain": "c",
            "bytes": "AP8=", "jsonb": {"b": 1, "a": [null]}, "json": [1],
            "uuid": "6f9619ff-8b86-d011-b42d-00c04fc964ff", "date": "2025-11-10",
            "nodate": "infinity", "time": "10:00:00.5", "midnight": "24:00:00",
            "zoned": "2025-11-10T10:00:00Z", "local": "2025-11-10T10:00:00.25",
            "early": "0001-01-01T00:00:00", "never": "-infinity",
            "texts": ["a", null], "numbers": [1, 2], "nothing": null,
        })]
    );
    for (statement, column) in [
        ("SELECT '12000-01-01'::date AS beyond", "beyond"),
        (
            "SELECT '200000-01-01 BC'::timestamp AS beyond",
            "never parsed",
        ),
        ("SELECT 1 AS twice, 2 AS twice", "twice"),
    ] {
        let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
        let answer = harness.call("one", "{}").await;
        assert!(answer.0.is_error, "{column}");
        let kind = &answer.facts().error_kind;
        assert!(
            kind == "bad_result" || kind == "sql_error",
            "{column}: {kind}"
        );
    }
}

#[tokio::test]
async fn two_columns_of_one_name_are_no_result() {
    let database = database::sqlite().await;
    let statement = "SELECT 'secret' AS a, 'open' AS a";
    let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
    let answer = harness.call("one", "{}").await;
    assert_eq!(answer.facts().error_kind, "bad_result");
    assert!(!answer.text().contains("open"));
}
