//! Tests of list arguments that are bound to SQL.

use std::collections::BTreeMap;

use serde_json::json;

use super::arguments::INJECTIONS;
use super::harness::{DOCTOR_ONE, Harness, rule};
use crate::tests::database;
use wardgate_catalogue::{Catalogue, FileText};

const LISTS: &str = r#"
sources: { rows: { type: "${TYPE}", url: "${URL}" } }
tools:
  - name: in_list
    description: Rows with one of these ids.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { ids: { type: array, items: { type: integer } } } }
    execute: { type: sql, source: rows, statement: "SELECT id FROM records WHERE id IN (:ids) ORDER BY id" }
  - name: any_of_list
    description: Rows with one of these ids.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { ids: { type: array, items: { type: integer } } } }
    execute: { type: sql, source: rows, statement: "SELECT id FROM records WHERE id = ANY(:ids) ORDER BY id" }
  - name: not_in_list
    description: Rows with none of these ids.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { ids: { type: array, items: { type: integer } } } }
    execute: { type: sql, source: rows, statement: "SELECT id FROM records WHERE id NOT IN (:ids) ORDER BY id" }
  - name: governed
    description: Rows of these patients and levels that the policy lets out.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        after: { type: integer, default: 0 }
        patients: { type: array, items: { type: string } }
        levels: { type: array, items: { type: number } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor FROM records r
        WHERE r.id > :after AND r.patient IN (:patients) AND :row_rule AND r.level IN (:levels) AND r.id > :after
        ORDER BY r.id
    result: { entity: Record, key: id, internal: [doctor], row_rule: { doctor: r.doctor } }
"#;

#[tokio::test]
async fn a_list_is_bound_on_every_database() {
    for database in database::each().await {
        let harness = Harness::with(&database, LISTS, |_| ()).await;
        let kind = database.kind();
        let long: Vec<_> = (5..1_005).collect();
        for (ids, found, others) in [
            (json!([]), &[][..], &[1, 2, 3, 4, 5, 6, 7][..]),
            (json!([3]), &[3], &[1, 2, 4, 5, 6, 7]),
            (json!([1, 2, 7]), &[1, 2, 7], &[3, 4, 5, 6]),
            (json!([7, 7, 100]), &[7], &[1, 2, 3, 4, 5, 6]),
            (json!(long), &[5, 6, 7], &[1, 2, 3, 4]),
        ] {
            let arguments = json!({ "ids": ids }).to_string();
            for tool in ["in_list", "any_of_list"] {
                let answer = harness.call(tool, &arguments).await;
                assert_eq!(answer.column("id"), found, "{kind}: {tool} {ids}");
            }
            let answer = harness.call("not_in_list", &arguments).await;
            assert_eq!(answer.column("id"), others, "{kind}: {ids}");
        }
        let absent = harness.call("in_list", "{}").await;
        assert!(absent.rows().is_empty(), "{kind}: no list, no row");
        // An integer beyond 64 bits has another type, and the statement is prepared for both types.
        for ids in [
            "[1, 12345678901234567890123]",
            "[1]",
            "[12345678901234567890123, 1]",
        ] {
            let answer = harness
                .call("in_list", &format!("{{\"ids\": {ids}}}"))
                .await;
            assert_eq!(answer.column("id"), [1], "{kind}: {ids}");
        }
        let long: Vec<_> = (0..1_001).collect();
        let refused = harness
            .call("in_list", &json!({ "ids": long }).to_string())
            .await;
        assert_eq!(
            refused.text(),
            "Invalid arguments: `ids` has more than 1000 elements"
        );
        let refused = harness.call("in_list", r#"{"ids": ["1"]}"#).await;
        assert_eq!(refused.facts().error_kind, "invalid_arguments");
    }
}

#[tokio::test]
async fn lists_stand_beside_values_and_a_row_rule() {
    for database in database::each().await {
        for pushdown in [true, false] {
            let harness =
                Harness::with(&database, LISTS, |config| config.pushdown = pushdown).await;
            let mut terms = harness.terms("governed").await;
            terms.row_rule = Some(rule(&[DOCTOR_ONE]));
            let arguments =
                r#"{"after": 1, "patients": ["ABCDE", "FGHIJ", "x"], "levels": [4, 2.5, -1.0]}"#;
            let answer = harness.call_with(&terms, arguments).await.unwrap();
            assert_eq!(answer.column("id"), [4, 7], "{}", database.kind());
        }
    }
}

#[tokio::test]
async fn no_element_of_a_list_changes_the_statement() {
    for database in database::each().await {
        let harness = Harness::with(&database, LISTS, |_| ()).await;
        let arguments = json!({ "patients": INJECTIONS, "levels": [1] }).to_string();
        assert!(harness.call("governed", &arguments).await.rows().is_empty());
        assert_eq!(database.number("SELECT count(*) FROM records").await, 7);
    }
}

#[test]
fn a_list_where_one_value_stands_is_a_fault_of_the_file() {
    for (statement, fault) in [
        (
            "SELECT id FROM records WHERE id = :ids",
            "`:ids` is a list, but a single value is required here",
        ),
        (
            "SELECT :objects",
            "`:objects` has no single type that can be bound",
        ),
    ] {
        let faults = faults(statement);
        assert!(faults.contains(fault), "{faults}");
    }
    assert_eq!(faults("SELECT id FROM records WHERE id IN ( :ids )"), "");
}

/// Returns the faults of a tool with this statement.
fn faults(statement: &str) -> String {
    let text = format!(
        r#"
sources: {{ rows: {{ type: sqlite, url: "sqlite::memory:" }} }}
tools:
  - name: one
    description: One.
    input_schema:
      type: object
      properties:
        ids: {{ type: array, items: {{ type: integer }} }}
        objects: {{ type: array, items: {{ type: object }} }}
    execute: {{ type: sql, source: rows, statement: {} }}
"#,
        json!(statement)
    );
    let path = "tools.yaml".into();
    let faults = Catalogue::parse(&[FileText { path, text }], &BTreeMap::new()).err();
    let faults = faults.unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}
