//! Tests of `derive` in statements, and of results whose length an argument sets.

use serde_json::json;
use wardgate_proto::toolrunner::v1::OutcomeStatus;

use super::arguments::INJECTIONS;
use super::harness::{DOCTOR_ONE, Harness, rule};
use crate::tests::database;
use wardgate_testkit::TestDatabase;

const TOOLS: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}" }
tools:
  - name: find
    description: Rows of a table by a part of a column.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties:
        part: { type: string }
        table: { type: string, default: records }
        column: { type: string }
      required: [part, column]
    execute:
      type: sql
      source: rows
      derive:
        pattern: "%{part}%"
        from: { argument: table, allow: [records, 'odd "name'] }
        by: { argument: column, allow: [note, patient] }
      statement: "SELECT id, {by} AS found, '{by}' AS text FROM {from} WHERE {by} LIKE :pattern AND {by} <> :table ORDER BY id"
  - name: mine
    description: The records of whoever calls.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { part: { type: string } } }
    execute:
      type: sql
      source: rows
      derive: { who: { caller: subject }, ward: { caller: ward } }
      statement: "SELECT id FROM records WHERE doctor = :who AND :ward = 'W1' ORDER BY id"
  - name: of_team
    description: The records of the caller's team.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute:
      type: sql
      source: rows
      derive: { team: { caller: team } }
      statement: "SELECT id FROM records WHERE doctor = :team"
  - name: page
    description: As many governed rows as asked for.
    annotations: { readOnlyHint: true }
    input_schema:
      type: object
      properties: { rows: { type: integer } }
    execute:
      type: sql
      source: rows
      statement: SELECT id, doctor FROM records r WHERE :row_rule ORDER BY id
    result:
      entity: Record
      key: id
      row_rule: { doctor: r.doctor }
      max_rows: { argument: rows }
"#;

#[tokio::test]
async fn a_derived_text_is_bound_and_a_derived_name_chosen() {
    for database in database::each().await {
        let name = match database {
            TestDatabase::Postgres { .. } => r#""odd ""name""#,
            _ => r#"`odd "name`"#,
        };
        database
            .execute(&format!(
                "CREATE TABLE {name} (id INTEGER, patient VARCHAR(9), note VARCHAR(9));
                 INSERT INTO {name} VALUES (8, 'ODD', 'odd')"
            ))
            .await;
        let harness = Harness::with(&database, TOOLS, |_| ()).await;
        for (arguments, found) in [
            (
                json!({"part": "ir", "column": "note"}),
                json!([{"id": 1, "found": "first", "text": "{by}"}, {"id": 3, "found": "third", "text": "{by}"}]),
            ),
            (
                json!({"part": "FGH", "column": "patient"}),
                json!([{"id": 7, "found": "FGHIJ", "text": "{by}"}]),
            ),
            (
                json!({"part": "O", "column": "patient", "table": "odd \"name"}),
                json!([{"id": 8, "found": "ODD", "text": "{by}"}]),
            ),
            (json!({"part": "' OR ''='", "column": "note"}), json!([])),
        ] {
            let answer = harness.call("find", &arguments.to_string()).await;
            let structured = answer.structured_content();
            assert_eq!(structured["data"], found, "{}", database.kind());
        }
        for table in INJECTIONS
            .into_iter()
            .chain(["written", "Records", "", "records r"])
        {
            let arguments = json!({"part": "x", "column": "note", "table": table});
            let answer = harness.call("find", &arguments.to_string()).await;
            assert_eq!(
                answer.facts().status,
                i32::from(OutcomeStatus::InvalidArguments)
            );
            assert_eq!(
                answer.text(),
                "Invalid arguments: `table` is not one of the allowed values"
            );
        }
    }
}

#[tokio::test]
async fn what_the_token_says_is_bound_and_no_argument_sets_it() {
    for database in database::each().await {
        let harness = Harness::with(&database, TOOLS, |_| ()).await;
        let own = harness.call("mine", r#"{"part": "d2"}"#).await;
        assert_eq!(own.column("id"), [1, 4, 7], "{}", database.kind());
        let set = harness.call("mine", r#"{"who": "d2"}"#).await;
        assert_eq!(
            set.facts().status,
            i32::from(OutcomeStatus::InvalidArguments)
        );
        let absent = harness.call("of_team", "{}").await;
        assert_eq!(
            absent.text(),
            "Invalid arguments: `team` is not a string claim of the caller's token, and this tool requires it"
        );
    }
}

#[tokio::test]
async fn an_argument_says_how_many_rows_are_enough() {
    for database in database::each().await {
        for pushdown in [true, false] {
            let harness = Harness::with(&database, TOOLS, |config| {
                config.pushdown = pushdown;
                config.max_rows = 5;
            })
            .await;
            let mut terms = harness.terms("page").await;
            // Rows 2, 3, 5 and 6 are withheld and do not count.
            terms.row_rule = Some(rule(&[DOCTOR_ONE]));
            for (rows, ids) in [
                (0, &[][..]),
                (1, &[1]),
                (2, &[1, 4]),
                (3, &[1, 4, 7]),
                (9, &[1, 4, 7]),
                (-1, &[]),
            ] {
                let arguments = json!({"rows": rows}).to_string();
                let answer = harness.call_with(&terms, &arguments).await.unwrap();
                assert_eq!(answer.column("id"), ids, "{rows}");
                assert!(
                    answer.structured_content().get("truncated").is_none(),
                    "{rows}"
                );
            }
            // The result is limited to the maximum for any result, and is then marked as truncated.
            for (arguments, is_cut) in [
                (r#"{"rows":5}"#, false),
                (r#"{"rows":6}"#, true),
                ("{}", true),
            ] {
                let answer = harness.call("page", arguments).await;
                assert_eq!(answer.column("id"), [1, 2, 3, 4, 5], "{arguments}");
                assert_eq!(
                    answer.structured_content()["truncated"] == true,
                    is_cut,
                    "{arguments}"
                );
            }
        }
    }
}
