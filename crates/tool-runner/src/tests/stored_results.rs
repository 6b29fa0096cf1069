//! Tests of results that are too large for a response, and of calls that must run only once.

use std::time::Duration;

use futures::future::select;
use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, Digest};
use wardgate_proto::toolrunner::v1 as pb;

use super::harness::{Answer, DOCTOR_ONE, Harness, caller, rule};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

const LARGE: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
tools:
  - name: all_rows
    description: Every row there is.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { last: { type: integer, default: 1200 } } }
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :last)
        SELECT n.value AS id, r.patient, r.doctor, r.note FROM n JOIN records r ON r.id = 1 + n.value % 7
        WHERE :row_rule ORDER BY n.value
    result:
      entity: Record
      key: id
      classes: { id: admin.id, patient: id.patient, note: phi.text }
      internal: [doctor]
      row_rule: { doctor: r.doctor }
  - name: read_more
    description: More of a large result.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        handle: { type: string }
        columns: { type: array, items: { type: string } }
        filter: { type: array, items: { type: object } }
        order_by: { type: string }
        descending: { type: boolean }
        offset: { type: integer }
        limit: { type: integer }
        aggregate: { type: string }
        of: { type: string }
        group_by: { type: string }
      required: [handle]
    execute: { type: query, interface: results, query_type: read }
    result: { shape: rows }
  - name: append
    description: Writes a line.
    time_limit: 2s
    input_schema: { type: object, properties: { line: { type: string } }, required: [line] }
    execute: { type: sql, source: rows, statement: "INSERT INTO written VALUES (:line) RETURNING line" }
  - name: append_for_ever
    description: Writes without end.
    time_limit: 2s
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n)
        INSERT INTO written SELECT 'x' || max(value) FROM n
"#;

async fn harness() -> (Harness, TestDatabase) {
    let database = database::sqlite().await;
    (Harness::with(&database, LARGE, |_| ()).await, database)
}

async fn read_more(harness: &Harness, handle: &str, query: Value) -> Answer {
    let mut arguments = query;
    arguments["handle"] = handle.into();
    harness.call("read_more", &arguments.to_string()).await
}

fn handle(answer: &Answer) -> String {
    answer.structured_content()["kept"]["handle"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_result_too_large_is_kept_and_its_answer_says_where() {
    let (harness, _database) = harness().await;
    let answer = harness.call("all_rows", "{}").await;
    let structured = answer.structured_content();
    assert_eq!(structured["data"].as_array().unwrap().len(), 20, "a sample");
    assert_eq!(structured["truncated"], true);
    let kept = &structured["kept"];
    assert_eq!(kept["rows"], 1_200);
    assert_eq!(kept["complete"], true);
    assert_eq!(
        kept["columns"],
        json!([
            {"name": "id", "type": "number"},
            {"name": "patient", "type": "string"},
            {"name": "note", "type": "string"},
        ]),
        "and none that is for the policy only"
    );
    let handle = handle(&answer);
    let page = read_more(&harness, &handle, json!({"offset": 1_190, "limit": 50})).await;
    assert_eq!(page.column("id"), (1_191..=1_200).collect::<Vec<_>>());
    let found = json!({
        "filter": [{"column": "patient", "op": "eq", "value": "NUGWI"}, {"column": "id", "op": "gt", "value": 1000}],
        "order_by": "id", "descending": true, "limit": 2, "columns": ["id"],
    });
    let found = read_more(&harness, &handle, found).await.rows();
    assert_eq!(found, [json!({"id": 1_199}), json!({"id": 1_198})]);
    let figures = json!({"aggregate": "count", "group_by": "patient", "order_by": "patient"});
    let figures = read_more(&harness, &handle, figures).await.rows();
    assert_eq!(
        figures,
        [
            json!({"patient": "ABCDE", "count": 514}),
            json!({"patient": "FGHIJ", "count": 171}),
            json!({"patient": "NUGWI", "count": 515}),
        ]
    );
    let sum = read_more(&harness, &handle, json!({"aggregate": "sum", "of": "id"})).await;
    assert_eq!(sum.rows(), [json!({"sum": 720_600})]);
    let mean = read_more(&harness, &handle, json!({"aggregate": "avg", "of": "id"})).await;
    assert_eq!(mean.rows(), [json!({"avg": 600.5})]);
    let faulty = read_more(
        &harness,
        &handle,
        json!({"aggregate": "median", "of": "id"}),
    )
    .await;
    assert_eq!(faulty.facts().error_kind, "invalid_arguments");
}

const AMOUNTS: &str = r"
  - name: amounts
    description: Rows with an exact decimal, a large whole number and a truth value.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 1200)
        SELECT value AS id, CAST(value AS TEXT) || '.10' AS amount, 9007199254740992 + value AS large,
               'p' || value AS patient, NULL AS missing FROM n
";

#[tokio::test]
async fn a_question_about_a_column_that_is_not_there_or_of_another_type_is_refused() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, &format!("{LARGE}{AMOUNTS}"), |_| ()).await;
    let handle = handle(&harness.call("amounts", "{}").await);
    let filter = |column: &str, op: &str, value: Value| json!({"filter": [{"column": column, "op": op, "value": value}], "aggregate": "count"});
    let known = "its columns are `id`, `amount`, `large`, `patient`, `missing`";
    for (query, problem) in [
        (json!({"aggregate": "sum", "of": "amuont"}), known),
        (json!({"aggregate": "count", "of": "amuont"}), known),
        (json!({"aggregate": "count", "group_by": "zone"}), known),
        (json!({"order_by": "zone"}), known),
        (json!({"columns": ["id", "zone"]}), known),
        (filter("zone", "eq", json!("x")), known),
        (
            json!({"aggregate": "count", "order_by": "id"}),
            "its columns are `count`",
        ),
        (
            json!({"aggregate": "sum", "of": "patient"}),
            "`sum` cannot be computed for `patient`, which contains texts",
        ),
        (
            filter("id", "gt", json!("many")),
            "`id`, which contains numbers",
        ),
        (
            filter("amount", "eq", json!(true)),
            "`amount`, which contains numbers",
        ),
        (
            filter("patient", "eq", json!(7)),
            "`patient`, which contains texts",
        ),
        (
            filter("id", "contains", json!("5")),
            "`id`, which contains numbers",
        ),
        (filter("id", "eq", Value::Null), "use the op `is_null`"),
    ] {
        let refused = read_more(&harness, &handle, query.clone()).await;
        assert_eq!(refused.facts().error_kind, "invalid_arguments", "{query}");
        assert!(
            refused.text().contains(problem),
            "{query}: {}",
            refused.text()
        );
    }
}

#[tokio::test]
async fn numbers_of_a_kept_result_are_compared_and_summed_up_exactly() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, &format!("{LARGE}{AMOUNTS}"), |_| ()).await;
    let handle = handle(&harness.call("amounts", "{}").await);
    let count = async |column: &str, op: &str, value: Value| {
        let query =
            json!({"filter": [{"column": column, "op": op, "value": value}], "aggregate": "count"});
        read_more(&harness, &handle, query).await.column("count")[0]
    };
    assert_eq!(count("id", "gt", json!(50)).await, 1_150);
    assert_eq!(
        count("id", "gt", json!("50")).await,
        1_150,
        "a number in quotes is one"
    );
    assert_eq!(count("amount", "lt", json!(10)).await, 9);
    assert_eq!(count("amount", "eq", json!("7.100")).await, 1);
    assert_eq!(
        count("large", "eq", json!(9_007_199_254_740_993_i64)).await,
        1
    );
    assert_eq!(count("patient", "contains", json!("p120")).await, 2);
    assert_eq!(count("missing", "is_null", Value::Null).await, 1_200);
    let figure = async |aggregate: &str, of: &str| {
        let query = json!({"aggregate": aggregate, "of": of});
        read_more(&harness, &handle, query).await.rows().remove(0)[aggregate].to_string()
    };
    assert_eq!(figure("sum", "amount").await, "\"720720.00\"");
    assert_eq!(figure("avg", "amount").await, "\"600.6\"");
    assert_eq!(figure("max", "amount").await, "\"1200.10\"");
    assert_eq!(figure("sum", "large").await, "10808639105689911000");
    assert_eq!(figure("sum", "missing").await, "0");
    assert_eq!(figure("avg", "missing").await, "null");
    let ordered =
        json!({"order_by": "amount", "limit": 3, "columns": ["amount"], "descending": true});
    let rows = read_more(&harness, &handle, ordered).await.rows();
    assert_eq!(rows[0]["amount"], "1200.10");
    assert_eq!(rows[2]["amount"], "1198.10");
}

#[tokio::test]
async fn p3_what_is_kept_obeys_rows_and_columns_at_every_read() {
    let (harness, _database) = harness().await;
    let mut terms = harness.terms("all_rows").await;
    terms.row_rule = Some(rule(&[DOCTOR_ONE]));
    terms
        .column_tiers
        .insert("phi.text".parse().unwrap(), ColumnTier::Dropped);
    terms
        .column_tiers
        .insert("id.patient".parse().unwrap(), ColumnTier::Partial);
    let arguments = r#"{"last": 3000}"#;
    let answer = harness.call_with(&terms, arguments).await.unwrap();
    let handle = handle(&answer);
    let rows = read_more(&harness, &handle, json!({"limit": 5000}))
        .await
        .rows();
    assert!(rows.len() > 1_000);
    for row in rows {
        let keys: Vec<_> = row.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["id", "patient"],
            "dropped and internal columns stay away"
        );
        assert!(row["patient"].as_str().unwrap().starts_with('•'), "{row}");
        assert!(
            [0, 3, 6].contains(&(row["id"].as_i64().unwrap() % 7)),
            "only the doctor's own"
        );
    }
    let oracle = json!({"filter": [{"column": "patient", "op": "eq", "value": "NUGWI"}]});
    let oracle = read_more(&harness, &handle, oracle).await;
    assert_eq!(oracle.rows().len(), 0, "a filter sees what its caller sees");
    let oracle = json!({"filter": [{"column": "doctor", "op": "eq", "value": "d1"}]});
    assert_eq!(
        read_more(&harness, &handle, oracle).await.text(),
        "Invalid arguments: `filter` is not a column of this result; its columns are `id`, `patient`"
    );
}

#[tokio::test]
async fn a_handle_is_worth_nothing_to_others_later_or_under_other_rules() {
    let (mut harness, _database) = harness().await;
    let answer = harness.call("all_rows", "{}").await;
    let handle = handle(&answer);
    let refused = async |harness: &Harness| {
        let answer = read_more(harness, &handle, json!({})).await;
        assert_eq!(answer.facts().error_kind, "invalid_arguments");
        answer.text()
    };
    let mut terms = harness.terms("read_more").await;
    terms.policy_hash = Digest::compute(b"other policies");
    let arguments = json!({"handle": handle}).to_string();
    let changed = harness.call_with(&terms, &arguments).await.unwrap();
    assert!(
        changed.text().contains("before the rules"),
        "{}",
        changed.text()
    );

    let own = std::mem::replace(&mut harness.caller, caller("d2"));
    let foreign = refused(&harness).await;
    assert!(
        foreign.contains("does not name a stored result"),
        "{foreign}"
    );
    harness.caller = own;
    let unknown = read_more(&harness, "0123456789abcdef", json!({}))
        .await
        .text();
    assert_eq!(unknown, foreign, "another's handle is like none");

    assert!(!read_more(&harness, &handle, json!({})).await.0.is_error);
    harness.advance(Duration::from_mins(16));
    assert_eq!(refused(&harness).await, foreign, "as is one that ended");
}

async fn append_with_key(harness: &Harness, key: &str, arguments: &str) -> Answer {
    keyed_call(harness, "append", key, arguments).await
}

async fn keyed_call(harness: &Harness, tool: &str, key: &str, arguments: &str) -> Answer {
    let terms = harness.terms(tool).await;
    let permit = harness.signer.sign(&terms);
    let request = pb::CallToolRequest {
        idempotency_key: key.to_owned(),
        ..harness.request(tool, arguments.as_bytes(), Some(&permit))
    };
    harness.send(request).await.unwrap()
}

#[tokio::test]
async fn one_key_runs_a_writing_tool_once() {
    let (harness, database) = harness().await;
    let written = || database.number("SELECT count(*) FROM written");
    let first = append_with_key(&harness, "k1", r#"{"line": "one"}"#).await;
    let again = append_with_key(&harness, "k1", r#"{ "line": "one" }"#).await;
    assert_eq!(again.structured_content(), first.structured_content());
    assert_eq!(written().await, 1);
    let other = append_with_key(&harness, "k1", r#"{"line": "two"}"#).await;
    assert_eq!(other.facts().error_kind, "idempotency_conflict");
    assert_eq!(written().await, 1);
    assert!(
        !append_with_key(&harness, "k2", r#"{"line": "two"}"#)
            .await
            .0
            .is_error
    );
    assert_eq!(written().await, 2);
}

#[tokio::test]
async fn a_key_is_free_again_when_nothing_ran_and_never_when_that_is_open() {
    let (harness, _database) = harness().await;
    let refused = append_with_key(&harness, "k", r#"{"line": 7, "other": 1}"#).await;
    assert_eq!(refused.facts().error_kind, "invalid_arguments");
    assert!(
        !append_with_key(&harness, "k", r#"{"line": "one"}"#)
            .await
            .0
            .is_error
    );

    // The caller disconnects while the call runs, so whether it has written is not known.
    let call = || Box::pin(keyed_call(&harness, "append_for_ever", "left", "{}"));
    let (answer, still_running) = select(call(), call()).await.factor_first();
    assert_eq!(answer.facts().error_kind, "idempotency_running");
    drop(still_running);
    harness.advance(Duration::from_secs(3));
    assert_eq!(call().await.facts().error_kind, "idempotency_unknown");
}
