//! Tests that no digit of a number is lost, neither from the argument to the source nor from the source to the client.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use bigdecimal::BigDecimal;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::arguments::exact;
use super::harness::Harness;
use crate::tests::database;
use wardgate_testkit::TestDatabase;

/// Number of numbers that the property is tested with, on each database and over HTTP.
const CASES: usize = 100_000;

/// Number of numbers in one call.
const BATCH: usize = 250;

/// Returns decimals of up to 50 digits, whole numbers up to 10^30, and the limits of 64-bit integers and of doubles, as
/// JSON writes them.
fn numbers(count: usize) -> Vec<String> {
    let edges = [
        "0",
        "0.1",
        "-0.10",
        "99999999999999.99",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "12345678901234567890123",
        "1000000000000000000000000000000",
        "-1000000000000000000000000000000",
        "0.1234567890123456789",
        "1.5e-7",
        "12e20",
    ];
    let number = proptest::prop_oneof![
        "-?[1-9][0-9]{0,29}",
        "-?(0|[1-9][0-9]{0,13})\\.[0-9]{2}",
        "-?(0|[1-9][0-9]{0,24})\\.[0-9]{1,25}",
        "-?0\\.0{0,9}[0-9]{1,19}",
        "-?[1-9]\\.[0-9]{0,9}[1-9]e-?[1-9]",
    ];
    let mut runner = TestRunner::new_with_rng(
        Cases::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let random = std::iter::repeat_with(move || number.new_tree(&mut runner).unwrap().current());
    let edges = edges.into_iter().map(str::to_owned);
    edges.chain(random).take(count).collect()
}

fn decimal(text: &str) -> BigDecimal {
    BigDecimal::from_str(text).unwrap()
}

/// Returns a tool whose arguments `n0`, `n1` … of type `kind` are the columns of its one row.
fn echo(name: &str, kind: &str) -> String {
    let properties: Vec<_> = (0..BATCH)
        .map(|at| format!("n{at}: {{ type: {kind} }}"))
        .collect();
    let columns: Vec<_> = (0..BATCH).map(|at| format!(":n{at} AS n{at}")).collect();
    format!(
        "  - name: {name}
    description: Its arguments.
    annotations: {{ readOnlyHint: true }}
    input_schema: {{ type: object, properties: {{ {} }} }}
    execute: {{ type: sql, source: rows, statement: \"SELECT {}\" }}
",
        properties.join(", "),
        columns.join(", ")
    )
}

fn catalogue(tools: &str) -> String {
    format!("sources: {{ rows: {{ type: \"${{TYPE}}\", url: \"${{URL}}\" }} }}\ntools:\n{tools}")
}

async fn assert_kept(harness: &Harness, tool: &str, numbers: &[String], database: &TestDatabase) {
    for batch in numbers.chunks(BATCH) {
        let arguments = batch.iter().enumerate();
        let arguments: Vec<_> = arguments
            .map(|(at, number)| format!("\"n{at}\":{number}"))
            .collect();
        let answer = harness
            .call(tool, &format!("{{{}}}", arguments.join(",")))
            .await;
        let row = answer.rows().remove(0);
        for (at, number) in batch.iter().enumerate() {
            let got = &row[format!("n{at}")];
            assert_eq!(exact(got), decimal(number), "{}: {number}", database.kind());
        }
    }
}

#[tokio::test]
async fn no_digit_of_a_number_is_lost_on_its_way_through_a_database() {
    let numbers = numbers(CASES);
    let whole: Vec<_> = numbers
        .iter()
        .filter(|number| !number.contains(['.', 'e']))
        .cloned()
        .collect();
    assert!(whole.len() > CASES / 10);
    let tools = catalogue(&(echo("numbers", "number") + &echo("integers", "integer")));
    for database in database::each().await {
        let harness = Harness::with(&database, &tools, |_| ()).await;
        assert_kept(&harness, "numbers", &numbers, &database).await;
        assert_kept(&harness, "integers", &whole, &database).await;
    }
}

/// Returns a document with these numbers, some of them nested.
fn document(numbers: &[String]) -> String {
    let (list, nested) = numbers.split_at(numbers.len() / 2);
    format!(
        r#"{{"list":[{}],"nested":{{"a":[[{}]]}}}}"#,
        list.join(","),
        nested.join(",")
    )
}

/// Returns the numbers of a document, in order.
fn numbers_of(document: &Value) -> Vec<BigDecimal> {
    match document {
        Value::Number(number) => vec![decimal(number.as_str())],
        Value::Array(items) => items.iter().flat_map(numbers_of).collect(),
        Value::Object(members) => members.values().flat_map(numbers_of).collect(),
        other => panic!("no number: {other}"),
    }
}

#[tokio::test]
async fn no_digit_of_a_json_document_is_lost_on_its_way_through_a_database() {
    let numbers = numbers(CASES / 10);
    for database in database::each().await {
        let columns = match &database {
            TestDatabase::Postgres { .. } => {
                "CAST(:document AS json) AS plain, CAST(:document AS jsonb) AS stored"
            }
            // MySQL and SQLite store JSON documents as text.
            TestDatabase::Mysql { .. } => ":document AS plain, JSON_COMPACT(:document) AS stored",
            TestDatabase::Sqlite { .. } => ":document AS plain, json(:document) AS stored",
        };
        let tool = format!(
            "  - name: document
    description: A document.
    annotations: {{ readOnlyHint: true }}
    input_schema: {{ type: object, properties: {{ document: {{ type: string }} }} }}
    execute: {{ type: sql, source: rows, statement: \"SELECT {columns}\" }}
"
        );
        let harness = Harness::with(&database, &catalogue(&tool), |_| ()).await;
        for batch in numbers.chunks(BATCH) {
            let arguments = json!({ "document": document(batch) });
            let answer = harness.call("document", &arguments.to_string()).await;
            let row = answer.rows().remove(0);
            let expected: Vec<_> = batch.iter().map(|number| decimal(number)).collect();
            for column in ["plain", "stored"] {
                let got = match &row[column] {
                    Value::String(text) => numbers_of(&serde_json::from_str(text).unwrap()),
                    document => numbers_of(document),
                };
                assert_eq!(got, expected, "{}: {column}", database.kind());
            }
        }
    }
}

/// The request bodies that a service received.
type Bodies = Arc<Mutex<Vec<Bytes>>>;

async fn repeat(State(bodies): State<Bodies>, body: Bytes) -> impl IntoResponse {
    bodies.lock().unwrap().push(body.clone());
    ([(CONTENT_TYPE, "application/json")], body)
}

#[tokio::test]
async fn no_digit_of_a_number_is_lost_on_its_way_through_a_service() {
    let bodies = Bodies::default();
    let service = Router::new()
        .route("/repeat", post(repeat))
        .with_state(Arc::clone(&bodies));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });
    let tools = format!(
        "sources: {{ echo: {{ type: http, base_url: \"http://{address}\", private: [127.0.0.1/32] }} }}
tools:
  - name: repeat
    description: Repeats what it is sent.
    annotations: {{ readOnlyHint: true }}
    input_schema:
      type: object
      properties:
        one: {{ type: number }}
        text: {{ type: string }}
        list: {{ type: array, items: {{ type: number }} }}
        document: {{ type: object }}
    execute:
      type: http
      source: echo
      method: POST
      path: /repeat
      json: {{ one: \"{{one}}\", in_text: \"n={{one}}\", text: \"{{text}}\", list: \"{{list}}\", document: \"{{document}}\", fixed: 99999999999999.990 }}
    result: {{ shape: rows }}
"
    );
    let database = database::sqlite().await;
    let harness = Harness::with(&database, &tools, |_| ()).await;
    for batch in numbers(CASES).chunks(BATCH) {
        let one = &batch[0];
        let arguments = format!(
            r#"{{"one":{one},"text":{one},"list":[{}],"document":{}}}"#,
            batch.join(","),
            document(batch)
        );
        let answer = harness.call("repeat", &arguments).await;
        let sent: BTreeMap<String, Value> =
            serde_json::from_slice(&bodies.lock().unwrap().pop().unwrap()).unwrap();
        let got = answer.rows().remove(0);
        let expected: Vec<_> = batch.iter().map(|number| decimal(number)).collect();
        for (member, numbers) in [
            ("one", &expected[..1]),
            ("list", &expected),
            ("document", &expected),
        ] {
            assert_eq!(numbers_of(&sent[member]), *numbers, "{member}");
            assert_eq!(numbers_of(&got[member]), *numbers, "{member}");
        }
        assert_eq!(got["text"], json!(one), "a text has the very letters");
        assert_eq!(
            got["in_text"].as_str().map(|text| decimal(&text[2..])),
            Some(decimal(one))
        );
        assert_eq!(got["fixed"].to_string(), "99999999999999.990");
    }
    serving.abort();
}

/// Tests what a number becomes in each database, and what a column does with a number that it cannot hold.
#[tokio::test]
async fn a_number_is_bound_as_what_holds_all_of_it() {
    for (number, sqlite, others) in [
        ("5", json!(5.0), json!("5")),
        ("0.1", json!(0.1), json!("0.1")),
        ("1.50", json!(1.5), json!("1.50")),
        (
            "99999999999999.99",
            json!("99999999999999.99"),
            json!("99999999999999.99"),
        ),
        (
            "9007199254740993",
            json!(9_007_199_254_740_993_i64),
            json!("9007199254740993"),
        ),
        (
            "12345678901234567890123",
            json!("12345678901234567890123"),
            json!("12345678901234567890123"),
        ),
        (
            "0.1234567890123456789",
            json!("0.1234567890123456789"),
            json!("0.1234567890123456789"),
        ),
    ] {
        for database in database::each().await {
            let tools = catalogue(&echo("numbers", "number"));
            let harness = Harness::with(&database, &tools, |_| ()).await;
            let answer = harness
                .call("numbers", &format!("{{\"n0\":{number}}}"))
                .await;
            let expected = if database.is_sqlite() {
                &sqlite
            } else {
                &others
            };
            assert_eq!(answer.rows()[0]["n0"], *expected, "{}", database.kind());
        }
    }
}

const COLUMNS: &str = r#"
sources: { rows: { type: "${TYPE}", url: "${URL}" } }
tools:
  - name: insert
    description: Writes a number.
    input_schema: { type: object, properties: { n: { type: number } } }
    execute: { type: sql, source: rows, statement: "INSERT INTO amounts (exact_, cents) VALUES (:n, :n)" }
  - name: insert_whole
    description: Writes a whole number.
    input_schema: { type: object, properties: { n: { type: integer } } }
    execute: { type: sql, source: rows, statement: "INSERT INTO amounts (whole) VALUES (:n)" }
  - name: amounts
    description: What was written.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { n: { type: number } } }
    execute: { type: sql, source: rows, statement: "SELECT exact_, cents FROM amounts WHERE exact_ = :n" }
"#;

#[tokio::test]
async fn a_column_keeps_what_its_declared_type_can_hold() {
    for database in database::each().await {
        let column = match &database {
            TestDatabase::Postgres { .. } => "NUMERIC",
            TestDatabase::Mysql { .. } => "DECIMAL(65, 30)",
            TestDatabase::Sqlite { .. } => "TEXT",
        };
        database
            .execute(&format!(
                "CREATE TABLE amounts (exact_ {column}, cents DECIMAL(20, 2), whole BIGINT)"
            ))
            .await;
        let harness = Harness::with(&database, COLUMNS, |_| ()).await;
        let number = r#"{"n": 12345678901234567.125}"#;
        harness.call("insert", number).await.rows();
        let row = harness.call("amounts", number).await.rows().remove(0);
        assert_eq!(exact(&row["exact_"]), decimal("12345678901234567.125"));
        // A column with too few decimal places rounds, as with any client. The column of SQLite holds doubles.
        let cents = exact(&row["cents"]);
        let expected = match &database {
            TestDatabase::Sqlite { .. } => "12345678901234568",
            _ => "12345678901234567.13",
        };
        assert_eq!(cents, decimal(expected), "{}", database.kind());
        let too_large = harness
            .call("insert_whole", r#"{"n": 9223372036854775808}"#)
            .await;
        if database.is_sqlite() {
            // An INTEGER column converts the number to a REAL.
            too_large.rows();
        } else {
            assert_eq!(
                too_large.facts().error_kind,
                "sql_error",
                "{}",
                database.kind()
            );
        }
    }
}

#[tokio::test]
async fn a_number_that_no_decimal_holds_is_refused_by_name() {
    let tools = catalogue(&echo("numbers", "number"));
    for database in database::each().await {
        let harness = Harness::with(&database, &tools, |_| ()).await;
        for number in ["1e1000", "1e-99999999999999999999", &"9".repeat(1_001)] {
            let answer = harness
                .call("numbers", &format!("{{\"n0\":{number}}}"))
                .await;
            assert_eq!(
                answer.text(),
                "Invalid arguments: `n0` has more than 1000 digits when written without an exponent"
            );
        }
        let answer = harness.call("numbers", r#"{"n0":1e-40}"#).await;
        if matches!(database, TestDatabase::Mysql { .. }) {
            assert_eq!(
                answer.text(),
                "Invalid arguments: `n0` has more digits than a DECIMAL of this database: 65 in total, 30 after the decimal point"
            );
        } else {
            assert_eq!(exact(&answer.rows()[0]["n0"]), decimal("1e-40"));
        }
    }
}
