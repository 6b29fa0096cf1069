//! Tests of features specific to MySQL: types, collations and modes.

use serde_json::json;

use super::harness::{Harness, one_statement, rule, tools};
use crate::tests::database;

#[tokio::test]
async fn mysql_values_keep_what_they_are() {
    let Some(database) = database::mysql().await else {
        return;
    };
    database
        .execute(
            "SET sql_mode = '', time_zone = '+02:00';
            CREATE TABLE kinds (
                yes BOOLEAN, two TINYINT(1), small TINYINT UNSIGNED, whole INT, large BIGINT UNSIGNED,
                dec_ DECIMAL(30, 7), f4 FLOAT, f8 DOUBLE, bits BIT(9), born YEAR,
                word VARCHAR(9) CHARACTER SET latin1, exact_ VARCHAR(9) COLLATE utf8mb4_bin,
                long_ TEXT, mood ENUM('calm', 'wild'), moods SET('calm', 'wild'),
                raw VARBINARY(9), blob_ BLOB, doc JSON, day DATE, zero DATE, clock TIME(6), span TIME,
                local_ DATETIME(6), zoned TIMESTAMP
            );
            INSERT INTO kinds VALUES (
                TRUE, 2, 255, -7, 18446744073709551615, 12345678901234567890.0012300, 0.1, 0.1, 259, 2025,
                'é', 'x', '日本', 'calm', 'calm,wild', x'00ff', 'bytes', '{\"b\": 1, \"a\": [null]}',
                '2025-11-10', '0000-00-00', '10:00:00.5', '-100:00:01', '2025-11-10 10:00:00.25',
                '2025-11-10 12:00:00'
            )",
        )
        .await;
    let statement = "SELECT kinds.*, NULL AS absent, 1 = 1 AS truth, 'text' AS text FROM kinds";
    let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
    let row = harness.call("one", "{}").await.rows().remove(0);
    // MariaDB stores JSON as text.
    let doc = json!({"b": 1, "a": [null]});
    assert!(row["doc"] == doc || row["doc"] == r#"{"b": 1, "a": [null]}"#);
    assert_eq!(
        row,
        json!({
            "yes": true, "two": 2, "small": 255, "whole": -7, "large": u64::MAX,
            "dec_": "12345678901234567890.0012300", "f4": 0.1, "f8": 0.1, "bits": 259, "born": 2025,
            "word": "é", "exact_": "x", "long_": "日本", "mood": "calm", "moods": "calm,wild",
            "raw": "AP8=", "blob_": "Ynl0ZXM=", "doc": row["doc"], "day": "2025-11-10", "zero": null,
            "clock": "10:00:00.5", "span": "-100:00:01", "local_": "2025-11-10T10:00:00.25",
            "zoned": "2025-11-10T10:00:00Z", "absent": null, "truth": 1, "text": "text",
        })
    );
    for (statement, column) in [
        ("SELECT POINT(1, 2) AS place", "place"),
        ("SELECT 1 AS twice, 2 AS twice", "twice"),
    ] {
        let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
        let answer = harness.call("one", "{}").await;
        assert_eq!(answer.facts().error_kind, "bad_result", "{column}");
        assert!(
            answer.text().contains(&format!("`{column}`")),
            "{}",
            answer.text()
        );
    }
    database
        .execute("CREATE TABLE places (place POINT); INSERT INTO places VALUES (NULL)")
        .await;
    let harness = Harness::with(
        &database,
        &one_statement("SELECT place FROM places"),
        |_| (),
    )
    .await;
    assert_eq!(
        harness.call("one", "{}").await.rows(),
        [json!({"place": null})]
    );
}

#[tokio::test]
async fn a_session_reads_a_statement_as_it_was_checked() {
    let Some(database) = database::mysql().await else {
        return;
    };
    // With its default settings, a server would interpret all of these differently.
    let statement = r#"SELECT '\' AS backslash, "note" AS quoted, 'a' || 'b' AS joined, ' ' = '' AS padded,
                       'a' = 'A' AS folded FROM records WHERE "id" = 1"#;
    let harness = Harness::with(&database, &one_statement(statement), |_| ()).await;
    assert_eq!(
        harness.call("one", "{}").await.rows(),
        [json!({"backslash": "\\", "quoted": "first", "joined": "ab", "padded": 0, "folded": 0})]
    );
}

/// MySQL returns an error for a comparison of strings whose character sets have no common superset.
#[tokio::test]
async fn p3_a_rule_compares_texts_of_any_character_set() {
    let Some(database) = database::mysql().await else {
        return;
    };
    database
        .execute(
            "ALTER TABLE records MODIFY doctor VARCHAR(20) CHARACTER SET latin1,
                MODIFY ward VARCHAR(20) CHARACTER SET ucs2;
            UPDATE records SET doctor = 'é' WHERE id = 1;
            UPDATE records SET doctor = 'W1' WHERE id = 2;
            UPDATE records SET ward = '日本' WHERE id = 3",
        )
        .await;
    let harness = Harness::with(&database, tools(), |_| ()).await;
    for (condition, admitted) in [
        (r#"resource.doctor == "é""#, &[1][..]),
        (r#"resource.doctor == "e""#, &[]),
        (r#"resource.doctor == "日本""#, &[]),
        (r#"resource.doctor != "日本""#, &[1, 2, 4, 5, 6, 7]),
        (r#"["日本", "é"].contains(resource.doctor)"#, &[1]),
        (r#"["W1", "w2"].contains(resource.doctor)"#, &[2]),
        (r#"resource.ward == "日本""#, &[3]),
        (r#"resource.ward == "W2""#, &[4]),
        (r#"resource.ward == "w2""#, &[]),
        ("resource.doctor == resource.ward", &[2]),
    ] {
        let mut terms = harness.terms("governed_rows").await;
        terms.row_rule = Some(rule(&[&format!(
            "permit(principal, action, resource) when {{ {condition} }};"
        )]));
        let answer = harness.call_with(&terms, "{}").await.unwrap();
        let facts = answer.facts();
        assert_eq!(facts.rows_withheld, 0, "{condition}");
        if admitted.is_empty() {
            assert_eq!(facts.error_kind, "no_rows", "{condition}");
        } else {
            assert_eq!(answer.column("id"), admitted, "{condition}");
        }
    }
}
