//! Tests of PostgreSQL types that have no JSON form.

use serde_json::{Value, json};

use super::harness::{Answer, Harness, one_statement};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

async fn run_statement(database: &TestDatabase, statement: &str) -> Answer {
    let harness = Harness::with(database, &one_statement(statement), |_| ()).await;
    harness.call("one", "{}").await
}

/// Returns each type with a value and the JSON that a client receives for it.
fn types() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("interval", "1 day 02:03:04", json!("1 day 02:03:04")),
        ("timetz", "10:00:00+02", json!("10:00:00+02")),
        ("inet", "10.0.0.1/24", json!("10.0.0.1/24")),
        ("cidr", "10.0.0.0/8", json!("10.0.0.0/8")),
        ("macaddr", "08:00:2b:01:02:03", json!("08:00:2b:01:02:03")),
        (
            "macaddr8",
            "08:00:2b:01:02:03:04:05",
            json!("08:00:2b:01:02:03:04:05"),
        ),
        ("bit(3)", "101", json!("101")),
        ("varbit", "10101", json!("10101")),
        ("money", "12.5", json!("$12.50")),
        ("int4range", "[1,5)", json!("[1,5)")),
        ("numrange", "[1.10,2.20]", json!("[1.10,2.20]")),
        ("tstzrange", "empty", json!("empty")),
        ("point", "(1,2)", json!("(1,2)")),
        ("box", "(2,2),(1,1)", json!("(2,2),(1,1)")),
        ("polygon", "((0,0),(1,1))", json!("((0,0),(1,1))")),
        ("xml", "<a>1</a>", json!("<a>1</a>")),
        ("tsvector", "a fat cat", json!("'a' 'cat' 'fat'")),
        ("tsquery", "fat & cat", json!("'fat' & 'cat'")),
        ("oid", "4294967295", json!(4_294_967_295_u32)),
        ("regclass", "records", json!("records")),
        ("pg_lsn", "16/B374D848", json!("16/B374D848")),
        ("\"char\"", "x", json!("x")),
        (
            "numeric[]",
            "{1.50,NULL,12345678901234567890123}",
            json!(["1.50", null, "12345678901234567890123"]),
        ),
        ("mood[]", "{calm,wild}", json!(["calm", "wild"])),
        ("int4[]", "{{1,2},{3,NULL}}", json!([[1, 2], [3, null]])),
        ("text[]", "{}", json!([])),
        ("date[]", "{2025-11-10}", json!(["2025-11-10"])),
        (
            "uuid[]",
            "{6f9619ff-8b86-d011-b42d-00c04fc964ff}",
            json!(["6f9619ff-8b86-d011-b42d-00c04fc964ff"]),
        ),
        ("jsonb[]", "{\"{\\\"a\\\": 1.50}\"}", json!([{"a": 1.5}])),
        (
            "interval[]",
            "{1 day,02:00:00}",
            json!("{\"1 day\",02:00:00}"),
        ),
        ("address", "(\"Long Road\",7)", json!("(\"Long Road\",7)")),
        ("address[]", "{\"(a,1)\"}", json!("{\"(a,1)\"}")),
        ("street", "Long Road", json!("Long Road")),
        ("span", "3 days", json!("3 days")),
    ]
}

#[tokio::test]
async fn every_type_has_at_least_its_text_and_null_is_null() {
    let Some(database) = database::postgres().await else {
        return;
    };
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('calm', 'wild');
            CREATE TYPE address AS (street text, number int); CREATE DOMAIN street AS text;
            CREATE DOMAIN span AS interval",
        )
        .await;
    let types = types();
    let columns = |value: &dyn Fn(&str) -> String| {
        let columns = types
            .iter()
            .enumerate()
            .map(|(at, (kind, text, _))| format!("CAST({} AS {kind}) AS \"c {at}\"", value(text)));
        columns.collect::<Vec<_>>().join(", ")
    };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let values = run_statement(
        &database,
        &format!("SELECT {} -- all of them", columns(&quoted)),
    )
    .await;
    let row = values.rows().remove(0);
    for (at, (kind, _, expected)) in types.iter().enumerate() {
        let got = &row[format!("c {at}")];
        if *kind == "jsonb[]" {
            assert_eq!(got.to_string(), r#"[{"a":1.50}]"#);
        } else if *kind == "money" {
            // The currency symbol depends on the locale.
            assert!(got.as_str().unwrap().contains("12.50"), "{got}");
        } else {
            assert_eq!(got, expected, "{kind}");
        }
    }
    let nothing = run_statement(
        &database,
        &format!("SELECT {}", columns(&|_| "NULL".to_owned())),
    )
    .await;
    let row = nothing.rows().remove(0);
    assert!(
        row.as_object().unwrap().values().all(Value::is_null),
        "{row}"
    );
}

#[tokio::test]
async fn the_text_is_given_in_rows_of_any_statement_and_in_their_order() {
    let Some(database) = database::postgres().await else {
        return;
    };
    let answer = run_statement(
        &database,
        "SELECT n, make_interval(hours => n) AS \"a \"\"b\" FROM generate_series(1, 500) n ORDER BY -n LIMIT 3",
    )
    .await;
    assert_eq!(
        answer.rows(),
        [
            json!({"n": 500, "a \"b": "500:00:00"}),
            json!({"n": 499, "a \"b": "499:00:00"}),
            json!({"n": 498, "a \"b": "498:00:00"}),
        ]
    );
    let tools = one_statement(
        "INSERT INTO written VALUES ('x') RETURNING line, interval '1 day' AS span, ROW(1, 'a') AS whole",
    )
    .replace("readOnlyHint: true", "readOnlyHint: false");
    let harness = Harness::with(&database, &tools, |_| ()).await;
    let expected = [json!({"line": "x", "span": "1 day", "whole": "(1,a)"})];
    assert_eq!(harness.call("one", "{}").await.rows(), expected);
    assert_eq!(
        database.number("SELECT count(*) FROM written").await,
        1,
        "written once"
    );
}

#[tokio::test]
async fn where_nothing_can_be_given_the_error_names_the_column() {
    let Some(database) = database::postgres().await else {
        return;
    };
    // A statement that writes cannot be part of another statement.
    let writing = "WITH w AS (INSERT INTO written VALUES ('y') RETURNING line)
                   SELECT line, interval '1 day' AS span FROM w";
    let tools = one_statement(writing).replace("readOnlyHint: true", "readOnlyHint: false");
    let harness = Harness::with(&database, &tools, |_| ()).await;
    let answer = harness.call("one", "{}").await;
    assert_eq!(answer.facts().error_kind, "bad_result");
    assert_eq!(
        answer.text(),
        "Tool execution failed: column `span` has type INTERVAL, which has no JSON form; cast it in the statement"
    );
    let far = run_statement(&database, "SELECT '12000-01-01'::date AS beyond").await;
    assert!(far.text().contains("column `beyond`"), "{}", far.text());
    let unknown = run_statement(
        &database,
        "SELECT 1 AS a, '{[1,3)}'::int4multirange AS many",
    )
    .await;
    assert_eq!(
        unknown.text(),
        "Tool execution failed: a column has a type that the database driver does not support, such as a multirange; cast it to text in the statement"
    );
    let cast = run_statement(
        &database,
        "SELECT ('{[1,3)}'::int4multirange)::text AS many",
    )
    .await;
    assert_eq!(cast.rows(), [json!({"many": "{[1,3)}"})]);
    let twice = run_statement(&database, "SELECT 1 AS a, interval '1 day' AS a").await;
    assert!(
        twice.text().contains("two columns are named `a`"),
        "{}",
        twice.text()
    );
}
