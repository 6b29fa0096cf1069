//! Tests of limits, circuit breakers and cached results through the service.

use std::time::Duration;

use tokio::net::TcpListener;

use super::harness::{DOCTOR_ONE, Harness, rule};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

const GUARDED: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
  gone:
    type: postgres
    url: postgres://nobody@127.0.0.1:1/nothing
    retry: { attempts: 1 }
    breaker: { failures: 2, probe_after: 1m }
tools:
  - name: counted
    description: How many lines were written.
    annotations: { readOnlyHint: true }
    cache: 30s
    input_schema: { type: object, properties: { a: { type: integer }, b: { type: integer } } }
    execute: { type: sql, source: rows, statement: "SELECT count(*) AS lines FROM written" }
  - name: governed
    description: Rows that the policy governs.
    annotations: { readOnlyHint: true }
    cache: 30s
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor FROM records r WHERE :row_rule ORDER BY r.id
    result: { entity: Record, key: id, internal: [doctor], row_rule: { doctor: r.doctor } }
  - name: append
    description: Writes a line.
    limits: { per_caller: 2/h }
    input_schema: { type: object, properties: { line: { type: string } }, required: [line] }
    execute: { type: sql, source: rows, statement: "INSERT INTO written VALUES (:line)" }
  - name: unreachable
    description: Its database is gone.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute: { type: sql, source: gone, statement: "SELECT 1 AS one" }
"#;

/// Returns the service and its database, which exists as long as it is held.
async fn harness() -> (Harness, TestDatabase) {
    let database = database::sqlite().await;
    (Harness::with(&database, GUARDED, |_| ()).await, database)
}

#[tokio::test]
async fn a_caller_who_calls_too_often_is_told_when_to_come_back() {
    let (harness, _database) = harness().await;
    for line in ["one", "two"] {
        let arguments = format!(r#"{{"line": "{line}"}}"#);
        assert!(!harness.call("append", &arguments).await.0.is_error);
    }
    let refused = harness.call("append", r#"{"line": "three"}"#).await;
    assert_eq!(refused.facts().error_kind, "rate_limited");
    let wait: Duration = refused.facts().retry_after.unwrap().try_into().unwrap();
    let half_an_hour = Duration::from_mins(30);
    assert!(
        wait <= half_an_hour && wait > Duration::from_mins(29),
        "{wait:?}"
    );
    let lines = harness.call("counted", "{}").await;
    assert_eq!(lines.column("lines"), [2], "and the third was not written");
}

#[tokio::test]
async fn a_source_that_does_not_answer_in_its_own_time_is_named_with_its_limit() {
    // This server accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    for (attempts, suffix) in [(1, ""), (3, ", in 3 attempts")] {
        let tools = format!(
            "sources:
  silent:
    type: http
    base_url: \"http://{address}\"
    private: [127.0.0.1/32]
    timeout: 50ms
    retry: {{ attempts: {attempts} }}
tools:
  - name: ask
    description: Never answered.
    annotations: {{ readOnlyHint: true }}
    time_limit: 1m
    input_schema: {{ type: object }}
    execute: {{ type: http, source: silent }}
"
        );
        let harness = Harness::with(&database::sqlite().await, &tools, |_| ()).await;
        let answer = harness.call("ask", "{}").await;
        assert_eq!(answer.facts().error_kind, "timeout");
        assert_eq!(
            answer.text(),
            format!("Timeout: the source `silent` did not answer within 50ms{suffix}")
        );
    }
}

#[tokio::test]
async fn a_kept_result_is_given_again_until_it_is_too_old() {
    let (harness, _database) = harness().await;
    let lines = async |arguments| harness.call("counted", arguments).await.column("lines");
    assert_eq!(lines(r#"{"a": 1, "b": 2}"#).await, [0]);
    harness.call("append", r#"{"line": "one"}"#).await;
    assert_eq!(
        lines(r#"{"b": 2, "a": 1}"#).await,
        [0],
        "kept, however it is written"
    );
    assert_eq!(
        lines(r#"{"a": 1}"#).await,
        [1],
        "other arguments, another result"
    );
    harness.advance(Duration::from_secs(31));
    assert_eq!(lines(r#"{"a": 1, "b": 2}"#).await, [1]);
}

#[tokio::test]
async fn a_kept_result_is_never_shared_with_another_rule() {
    let (harness, _database) = harness().await;
    let mut terms = harness.terms("governed").await;
    let all = harness.call_with(&terms, "{}").await.unwrap();
    assert_eq!(all.column("id"), [1, 2, 3, 4, 5, 6, 7]);
    terms.row_rule = Some(rule(&[DOCTOR_ONE]));
    let own = harness.call_with(&terms, "{}").await.unwrap();
    assert_eq!(own.column("id"), [1, 4, 7]);
}

#[tokio::test]
async fn a_source_that_only_fails_is_left_alone() {
    let (harness, _database) = harness().await;
    for _ in 0..2 {
        let failed = harness.call("unreachable", "{}").await;
        assert_eq!(failed.facts().error_kind, "source_unavailable");
        assert!(failed.facts().retry_after.is_none(), "it was asked");
    }
    let refused = harness.call("unreachable", "{}").await;
    assert_eq!(refused.facts().error_kind, "source_unavailable");
    assert!(refused.facts().retry_after.is_some(), "it was not");
    assert!(
        !harness.call("counted", "{}").await.0.is_error,
        "others go on"
    );
}
