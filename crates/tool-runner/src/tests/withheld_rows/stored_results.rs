//! Results that are too large for an answer and are stored.

use serde_json::{Value, json};

use super::{CHANGES, DOCTOR_ONE_BY_SET, call};
use crate::tests::database;
use crate::tests::harness::{DOCTOR_ONE, Harness};

/// Tools whose result is too large for an answer, and whose stored rows can be filtered and aggregated.
const LARGE: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
tools:
  - name: many
    description: Many rows.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 3000)
        SELECT n.value AS id, r.patient, r.doctor, r.note FROM n JOIN records r ON r.id = 1 + n.value % 7
        WHERE :row_rule ORDER BY n.value
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor } }
  - name: read_more
    description: More of a large result.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        handle: { type: string }
        filter: { type: array, items: { type: object } }
        order_by: { type: string }
        offset: { type: integer }
        limit: { type: integer }
        aggregate: { type: string }
        of: { type: string }
        group_by: { type: string }
      required: [handle]
    execute: { type: query, interface: results, query_type: read }
    result: { shape: rows }
"#;

/// Reads of the stored rows, including faulty ones.
fn reads() -> [Value; 6] {
    [
        json!({"order_by": "note", "offset": 1_280, "limit": 50}),
        json!({"aggregate": "count"}),
        json!({"aggregate": "count", "group_by": "patient", "order_by": "patient"}),
        json!({"aggregate": "max", "of": "id"}),
        json!({"filter": [{"column": "patient", "op": "eq", "value": "HIDDEN"}]}),
        json!({"aggregate": "sum", "of": "level"}),
    ]
}

/// Returns the answers to the call and to all reads of its stored rows, without the random handle.
async fn large_answers(harness: &Harness, policy: &str) -> Vec<String> {
    let answer = call(harness, "many", "{}", policy).await;
    let handle = answer.structured_content()["kept"]["handle"].clone();
    let handle = handle.as_str().unwrap();
    let mut texts = vec![answer.text().replace(handle, "HANDLE")];
    for mut read in reads() {
        read["handle"] = handle.into();
        texts.push(harness.call("read_more", &read.to_string()).await.text());
    }
    texts
}

#[tokio::test]
async fn p3_a_stored_result_tells_nothing_about_withheld_rows() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, LARGE, |_| ()).await;
    for policy in [DOCTOR_ONE, DOCTOR_ONE_BY_SET] {
        database.execute("DELETE FROM records").await;
        database.execute(RECORDS).await;
        let before = large_answers(&harness, policy).await;
        for change in CHANGES {
            database.execute(change).await;
            assert_eq!(large_answers(&harness, policy).await, before, "{change}");
        }
    }
}

/// Three rows of the doctor, and three that the rule withholds.
const RECORDS: &str = "
    INSERT INTO records VALUES
        (1, 'NUGWI', 'd1', 'W1', FALSE, 1, 'first'),
        (2, 'NUGWI', 'd2', 'W1', FALSE, 2, 'second'),
        (3, 'NUGWI', NULL, 'W2', FALSE, 3, 'third'),
        (4, 'ABCDE', 'd1', 'W2', TRUE, 4, 'fourth'),
        (5, 'ABCDE', 'd2', NULL, FALSE, NULL, 'fifth'),
        (7, 'FGHIJ', 'd1', 'W3', FALSE, -1, NULL)";
