//! Tests that an answer depends on released rows only: whatever the withheld rows are, every byte of the answer is the same.
//! This includes pages, order, `LIMIT`, aggregates, stored results, empty results and errors.
//!
//! What is not tested:
//!
//! - Wall-clock time of tools without a `time_step`. The database reads the withheld rows, and without pushdown the tool-runner
//!   checks each, so a caller who measures can estimate how many there are. What is tested is that with pushdown, the number of
//!   rows that the tool-runner receives and checks does not depend on them.
//! - `rows_withheld` and the durations in the facts of a result, which are for the audit log and not for the caller.
//! - Computed columns of a statement whose rule is not pushed down. The database evaluates them before the tool-runner checks
//!   the rows, so one that fails for a withheld row is an error, as the documentation of policies says.

mod failed_runs;
mod stored_results;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wardgate_domain::RowRule;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_testkit::CapturedLog;

use super::harness::{Answer, DOCTOR_ONE, Harness, rule};
use crate::tests::database;

const TOOLS: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
tools:
  - name: page
    description: Some rows, highest level first.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { limit: { type: integer, default: 100, minimum: 1, maximum: 500 } } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.patient, r.doctor, r.note, r.level FROM records r WHERE :row_rule ORDER BY r.level DESC, r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, max_rows: { argument: limit } }
  - name: all
    description: At most three rows.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, r.note FROM records r WHERE :row_rule ORDER BY r.note, r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, max_rows: 3 }
  - name: limited
    description: Some rows, limited by the statement.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { limit: { type: integer, default: 100, minimum: 1, maximum: 500 } } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r WHERE :row_rule ORDER BY r.level DESC, r.id LIMIT :limit
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor } }
  - name: paged
    description: Some rows after others, limited by the statement and by the result.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { limit: { type: integer }, offset: { type: integer, default: 0 } } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r WHERE :row_rule ORDER BY r.level DESC, r.id
        LIMIT :limit OFFSET :offset
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, max_rows: 2 }
  - name: unmarked
    description: Some rows of a statement to which no rule can be pushed down.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { limit: { type: integer }, offset: { type: integer, default: 0 } } }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r ORDER BY r.level DESC, r.id LIMIT :limit OFFSET :offset
    result: { entity: Record, key: id, max_rows: 2 }
  - name: union
    description: Rows of two queries, to which no rule can be pushed down.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r WHERE r.level > 1
        UNION ALL SELECT s.id, s.doctor, s.note FROM records s WHERE s.level <= 1 ORDER BY id LIMIT 2
    result: { entity: Record, key: id }
  - name: distinct
    description: Different rows of a query to which no rule can be pushed down. Only PostgreSQL compares the texts exactly.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT DISTINCT r.doctor, r.ward FROM records r ORDER BY r.doctor, r.ward LIMIT 2
    result: { entity: Record, key: doctor }
  - name: either
    description: A rule that does not restrict every row, and a limit.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r WHERE r.patient = 'NUGWI' OR :row_rule ORDER BY r.id LIMIT 2
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor } }
  - name: numbered
    description: Rows with their numbers among all rows.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, row_number() OVER (ORDER BY r.id) AS number FROM records r ORDER BY r.id
    result: { entity: Record, key: id }
  - name: by_doctor
    description: Figures of each doctor.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.doctor, count(*) AS visits, min(r.level) AS lowest, max(r.level) AS highest, min(r.note) AS first_note
        FROM records r WHERE :row_rule GROUP BY r.doctor ORDER BY r.doctor
    result: { entity: Record, key: doctor, row_rule: { doctor: r.doctor } }
  - name: total
    description: A figure without the column that the rule needs.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute: { type: sql, source: rows, statement: "SELECT count(*) AS visits FROM records r WHERE :row_rule" }
    result: { entity: Record, key: visits, row_rule: { doctor: r.doctor } }
  - name: shares
    description: A column whose computation fails for a level of zero.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, 12 / r.level AS share FROM records r WHERE :row_rule ORDER BY r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor } }
  - name: shares_pushed
    description: The same column in a tool whose rule the database must apply.
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, 12 / r.level AS share FROM records r WHERE :row_rule ORDER BY r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, require_pushdown: true }
  - name: stepped
    description: Some rows, at a time that does not depend on other rows.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { limit: { type: integer } } }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, r.note FROM records r WHERE :row_rule ORDER BY r.id LIMIT :limit
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, time_step: 150ms }
  - name: limited_step
    description: Rows of a tool whose step is longer than its time limit.
    annotations: { readOnlyHint: true }
    time_limit: 2s
    input_schema: { type: object }
    execute:
      type: sql
      source: rows
      statement: SELECT r.id, r.doctor, r.note FROM records r WHERE :row_rule ORDER BY r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor }, time_step: 10m }
  - name: of_patient
    description: Rows of one patient.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { patient: { type: string } }, required: [patient] }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note FROM records r WHERE r.patient = :patient AND :row_rule ORDER BY r.id
    result:
      entity: Record
      key: id
      row_rule: { doctor: r.doctor }
      empty: { error: "Invalid patient: {patient}" }
  - name: by_ward
    description: Rows of one patient, by a column that can be NULL, which is no key.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { patient: { type: string } }, required: [patient] }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.ward, r.doctor, r.note FROM records r WHERE r.patient = :patient AND :row_rule ORDER BY r.id
    result: { entity: Record, key: ward, row_rule: { doctor: r.doctor } }
  - name: twice
    description: Rows of one patient, of which two columns have the same name, which is an error.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { patient: { type: string } }, required: [patient] }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.doctor, r.note, r.ward AS note FROM records r WHERE r.patient = :patient AND :row_rule ORDER BY r.id
    result: { entity: Record, key: id, row_rule: { doctor: r.doctor } }
"#;

/// A policy that admits the same rows as [`DOCTOR_ONE`], and is not pushed down.
const DOCTOR_ONE_BY_SET: &str = r#"permit(principal, action, resource) when { resource has doctor && [resource.doctor].contains("d1") };"#;

/// A policy that fails for rows without a doctor, where SQL decides by the rest of the condition.
const DOCTOR_ONE_OR_FAILS: &str =
    r#"permit(principal, action, resource) when { resource.doctor == "d1" || false };"#;

/// The calls, and whether their answers are the same also without pushdown.
const CALLS: [(&str, &str, bool); 25] = [
    ("page", "{}", true),
    ("page", r#"{"limit": 1}"#, true),
    ("page", r#"{"limit": 2}"#, true),
    ("page", r#"{"limit": 3}"#, true),
    ("all", "{}", true),
    ("of_patient", r#"{"patient": "NUGWI"}"#, true),
    ("of_patient", r#"{"patient": "HIDDEN"}"#, true),
    ("of_patient", "{}", true),
    ("by_ward", r#"{"patient": "NUGWI"}"#, true),
    ("by_ward", r#"{"patient": "HIDDEN"}"#, true),
    ("twice", r#"{"patient": "NUGWI"}"#, true),
    ("twice", r#"{"patient": "HIDDEN"}"#, true),
    ("total", "{}", true),
    ("limited", r#"{"limit": 2}"#, true),
    ("paged", r#"{"limit": 1, "offset": 1}"#, true),
    ("paged", r#"{"limit": 3}"#, true),
    ("paged", r#"{"limit": 5, "offset": 9}"#, true),
    ("unmarked", r#"{"limit": 1, "offset": 1}"#, true),
    ("union", "{}", true),
    ("distinct", "{}", true),
    ("either", "{}", true),
    ("numbered", "{}", true),
    ("by_doctor", "{}", true),
    ("shares", "{}", false),
    ("shares_pushed", "{}", true),
];

/// Statements that change only rows which the rule withholds: other doctors, in other cases and with spaces, none, and
/// values that come first or last in every order.
const CHANGES: [&str; 3] = [
    "INSERT INTO records VALUES
        (-5, 'NUGWI', 'd2', 'W1', FALSE, 0, ''),
        (100, 'HIDDEN', 'D1', 'W1', TRUE, 0, 'aaa'),
        (101, 'HIDDEN', 'd1 ', 'W9', FALSE, NULL, NULL),
        (102, 'HIDDEN', NULL, NULL, TRUE, 9223372036854775807, 'zzz')",
    "UPDATE records SET patient = 'OTHER', level = -9, note = 'first' WHERE id IN (2, 3, 5, 6)",
    "DELETE FROM records WHERE id NOT IN (1, 4, 7)",
];

/// An answer to a call, without what is for the audit log only.
#[derive(Debug, PartialEq)]
struct VisibleAnswer {
    call: String,
    result: pb::ToolResult,
    status: i32,
    rows: u64,
    error_kind: String,
}

impl VisibleAnswer {
    fn new(call: String, answer: Answer) -> Self {
        let mut result = answer.0;
        let facts = result.facts.take().unwrap();
        Self {
            call,
            result,
            status: facts.status,
            rows: facts.rows,
            error_kind: facts.error_kind,
        }
    }
}

async fn call(harness: &Harness, tool: &str, arguments: &str, policy: &str) -> Answer {
    let mut terms = harness.terms(tool).await;
    terms.row_rule = Some(rule(&[policy]));
    harness.call_with(&terms, arguments).await.unwrap()
}

/// Returns the answers to all calls: with the rule pushed down and, where these are the same without, in two ways
/// without.
async fn answers([pushed, checked]: &[Harness; 2]) -> Vec<VisibleAnswer> {
    let mut answers = Vec::new();
    for (tool, arguments, is_same_without) in CALLS {
        let mut ways = vec![(pushed, DOCTOR_ONE)];
        if is_same_without {
            ways.extend([(checked, DOCTOR_ONE), (pushed, DOCTOR_ONE_BY_SET)]);
        }
        for (harness, policy) in ways {
            let answer = call(harness, tool, arguments, policy).await;
            let name = format!("{tool} {arguments} by {policy}");
            answers.push(VisibleAnswer::new(name, answer));
        }
    }
    answers
}

#[tokio::test]
async fn p3_an_answer_tells_nothing_about_withheld_rows() {
    for database in database::each().await {
        let harnesses = [
            Harness::with(&database, TOOLS, |config| config.pushdown = true).await,
            Harness::with(&database, TOOLS, |config| config.pushdown = false).await,
        ];
        let before = answers(&harnesses).await;
        // The answers are of every kind: rows, no rows, invalid arguments, a result that cannot be shown, and a refusal.
        for kind in [
            "",
            "no_rows",
            "invalid_arguments",
            "bad_result",
            "row_rule_too_late",
        ] {
            assert!(
                before.iter().any(|answer| answer.error_kind == kind),
                "{kind}"
            );
        }
        for change in CHANGES {
            database.execute(change).await;
            let after = answers(&harnesses).await;
            assert_eq!(after, before, "{}: {change}", database.kind());
        }
    }
}

/// Tests that the limit of a statement counts admitted rows, whether the database or the tool-runner applies the rule.
#[tokio::test]
async fn p3_a_limit_of_a_statement_counts_admitted_rows_only() {
    for database in database::each().await {
        let pushed = Harness::with(&database, TOOLS, |config| config.pushdown = true).await;
        let checked = Harness::with(&database, TOOLS, |config| config.pushdown = false).await;
        for (arguments, ids, is_truncated) in [
            (r#"{"limit": 1}"#, &[4][..], false),
            (r#"{"limit": 2}"#, &[4, 1], false),
            (r#"{"limit": 3}"#, &[4, 1], true),
            (r#"{"limit": 1, "offset": 1}"#, &[1], false),
            (r#"{"limit": 5, "offset": 1}"#, &[1, 7], false),
            (r#"{"limit": 5, "offset": 2}"#, &[7], false),
            (r#"{"limit": 5, "offset": 3}"#, &[], false),
            (r#"{"limit": 0}"#, &[], false),
        ] {
            for (tool, harness, policy) in [
                ("paged", &pushed, DOCTOR_ONE),
                ("paged", &checked, DOCTOR_ONE),
                ("paged", &pushed, DOCTOR_ONE_BY_SET),
                ("unmarked", &pushed, DOCTOR_ONE),
            ] {
                let answer = call(harness, tool, arguments, policy).await;
                let at = format!("{}: {tool} {arguments} by {policy}", database.kind());
                assert_eq!(answer.column("id"), ids, "{at}");
                let truncated = answer.structured_content()["truncated"] == true;
                assert_eq!(truncated, is_truncated, "{at}");
            }
        }
        // SQLite reads a negative number as no limit. The other databases refuse it.
        let endless = call(&checked, "paged", r#"{"limit": -1}"#, DOCTOR_ONE).await;
        match database.kind() {
            "sqlite" => assert_eq!(endless.column("id"), [4, 1]),
            _ => assert_eq!(endless.facts().error_kind, "invalid_arguments"),
        }
        for tool in ["either", "union"] {
            let answer = call(&pushed, tool, "{}", DOCTOR_ONE).await;
            assert_eq!(answer.column("id"), [1, 4], "{tool}");
        }
        let distinct = call(&pushed, "distinct", "{}", DOCTOR_ONE).await;
        match database.kind() {
            "postgres" => {
                let rows = [("d1", "W1"), ("d1", "W2")]
                    .map(|(doctor, ward)| json!({ "doctor": doctor, "ward": ward }));
                assert_eq!(distinct.rows(), rows);
            }
            _ => assert_eq!(distinct.facts().error_kind, "row_rule_too_late"),
        }
    }
}

/// Tests that a statement which combines rows, or whose tool requires pushdown, is run only if its database applies the whole
/// rule.
#[tokio::test]
async fn p3_rows_are_not_combined_before_the_row_rule() {
    for database in database::each().await {
        let pushed = Harness::with(&database, TOOLS, |config| config.pushdown = true).await;
        let checked = Harness::with(&database, TOOLS, |config| config.pushdown = false).await;
        for (tool, harness, policy, is_refused) in [
            ("by_doctor", &pushed, DOCTOR_ONE, false),
            ("by_doctor", &checked, DOCTOR_ONE, true),
            ("by_doctor", &pushed, DOCTOR_ONE_BY_SET, true),
            ("total", &checked, DOCTOR_ONE, true),
            ("by_doctor", &pushed, DOCTOR_ONE_OR_FAILS, true),
            ("numbered", &pushed, DOCTOR_ONE, true),
            ("shares_pushed", &pushed, DOCTOR_ONE, false),
            ("shares_pushed", &checked, DOCTOR_ONE, true),
            ("shares_pushed", &pushed, DOCTOR_ONE_BY_SET, true),
        ] {
            let answer = call(harness, tool, "{}", policy).await;
            assert_eq!(answer.0.is_error, is_refused, "{tool} by {policy}");
            let kind = answer.facts().error_kind.as_str();
            let expected = if is_refused { "row_rule_too_late" } else { "" };
            assert_eq!(kind, expected, "{tool} by {policy}");
            if is_refused {
                assert!(
                    answer.text().contains("it was not run"),
                    "{}",
                    answer.text()
                );
            }
        }
        // A caller who may read every row gets the answer of the database.
        for tool in ["by_doctor", "numbered"] {
            let mut terms = checked.terms(tool).await;
            terms.row_rule = Some(RowRule {
                all: true,
                ..rule(&[])
            });
            let answer = checked.call_with(&terms, "{}").await.unwrap();
            assert!(answer.rows().len() > 3, "{tool}");
        }
    }
}

/// Tests that a tool with a `time_step` does not answer before its first step, whatever its answer is.
#[tokio::test]
async fn p3_a_tool_with_a_time_step_answers_at_a_step_or_at_its_time_limit() {
    for database in database::each().await {
        let harness = Harness::with(&database, TOOLS, |_| ()).await;
        for (tool, arguments, kind, earliest) in [
            ("stepped", r#"{"limit": 2}"#, "", 150),
            ("stepped", r#"{"limit": 0}"#, "", 150),
            ("stepped", r#"{"limit": "two"}"#, "invalid_arguments", 150),
            ("limited_step", "{}", "", 2_000),
        ] {
            for policy in [DOCTOR_ONE, DOCTOR_ONE_BY_SET] {
                let started = Instant::now();
                let answer = call(&harness, tool, arguments, policy).await;
                let time = started.elapsed();
                let at = format!("{}: {tool} {arguments}: {time:?}", database.kind());
                assert_eq!(answer.facts().error_kind, kind, "{at}");
                assert!(time >= Duration::from_millis(earliest), "{at}");
                assert!(time < Duration::from_mins(10), "{at}");
            }
        }
    }
}

#[tokio::test]
async fn the_log_names_the_tool_whose_rows_would_be_combined_and_the_remedy() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, TOOLS, |_| ()).await;
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.writer()).finish();
    let logging = tracing::subscriber::set_default(subscriber);
    call(&harness, "numbered", "{}", DOCTOR_ONE).await;
    drop(logging);
    let text = log.text();
    for part in ["WARN", "numbered", "write `:row_rule`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns, for each call whose rule can be pushed down as a whole, the number of rows that the database returned. Each of
/// them was checked once.
async fn checked_rows(harness: &Harness) -> Vec<u64> {
    let mut counts = Vec::new();
    for (tool, arguments) in pushed_calls() {
        let answer = call(harness, tool, arguments, DOCTOR_ONE).await;
        counts.push(answer.facts().rows + answer.facts().rows_withheld);
    }
    counts
}

fn pushed_calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    let calls = CALLS.iter().map(|(tool, arguments, _)| (*tool, *arguments));
    calls.filter(|(tool, _)| !["unmarked", "union", "distinct", "either"].contains(tool))
}

/// Tests the part of the time of an answer that does not depend on the machine. Without pushdown, the number of rows does
/// depend on withheld rows, as the documentation says, which shows that the test can fail.
#[tokio::test]
async fn p3_with_pushdown_no_withheld_row_is_fetched_or_checked() {
    let values: Vec<String> = (1_000..2_000)
        .map(|id| format!("({id}, 'NUGWI', 'd2', 'W1', FALSE, 5, 'more')"))
        .collect();
    let insert = format!("INSERT INTO records VALUES {}", values.join(", "));
    for database in database::each().await {
        let pushed = Harness::with(&database, TOOLS, |config| config.pushdown = true).await;
        let checked = Harness::with(&database, TOOLS, |config| config.pushdown = false).await;
        let (before_pushed, before_checked) =
            (checked_rows(&pushed).await, checked_rows(&checked).await);
        assert!(before_pushed.iter().any(|count| *count > 1));
        database.execute(&insert).await;
        let kind = database.kind();
        assert_eq!(checked_rows(&pushed).await, before_pushed, "{kind}");
        let position = pushed_calls()
            .position(|(tool, arguments)| tool == "of_patient" && arguments.contains("NUGWI"))
            .unwrap();
        let more = checked_rows(&checked).await[position] - before_checked[position];
        assert_eq!(more, 1_000, "{kind}");
    }
}

/// Tools whose rows are those that the argument contains, so that they can have any form.
const DOCUMENTS: &str = r#"
tools:
  - name: rows
    description: The rows of a document.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { text: { type: string } } }
    execute: { type: command, argv: [cat], stdin: "{text}", output: json }
    result: { entity: Record, key: id }
  - name: rows_or_error
    description: The rows of a document that must have some.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { text: { type: string } } }
    execute: { type: command, argv: [cat], stdin: "{text}", output: json }
    result: { entity: Record, key: id, empty: { error: "There are no rows." } }
"#;

/// Returns the answer to a call whose tool returns `rows`, and the numbers of its withheld and undecided rows.
async fn answer_from(harness: &Harness, tool: &str, rows: &[&Value]) -> (VisibleAnswer, [u64; 2]) {
    let arguments = json!({ "text": json!(rows).to_string() }).to_string();
    let answer = call(harness, tool, &arguments, DOCTOR_ONE).await;
    let facts = answer.facts();
    let undecided = facts.outline.as_ref().map_or(0, |it| it.rows_undecided);
    let counts = [facts.rows_withheld, undecided];
    (VisibleAnswer::new(tool.to_owned(), answer), counts)
}

#[tokio::test]
async fn p3_an_answer_tells_nothing_about_rows_that_cannot_be_checked() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, DOCUMENTS, |_| ()).await;
    let admitted = json!({ "id": 1, "doctor": "d1" });
    // Each row, and whether the rule can decide on it.
    let withheld = [
        (json!({ "id": 2, "doctor": "d2" }), true),
        (json!({ "id": 2, "doctor": null }), true),
        (json!({ "id": 2, "doctor": 1 }), false),
        (json!({ "id": 2, "doctor": ["d1"] }), false),
        (json!({ "id": 2 }), false),
        (json!({ "doctor": "d1" }), false),
        (json!({ "id": null, "doctor": "d1" }), false),
        (json!("d1"), false),
    ];
    for tool in ["rows", "rows_or_error"] {
        for released in [&[][..], &[&admitted]] {
            let (expected, _) = answer_from(&harness, tool, released).await;
            let is_error = tool == "rows_or_error" && released.is_empty();
            let kind = if is_error { "no_rows" } else { "" };
            assert_eq!(expected.error_kind, kind, "{tool}");
            assert_eq!(expected.rows, released.len() as u64, "{tool}");
            for (row, is_decided) in &withheld {
                let rows = [&[row][..], released].concat();
                let (answer, counts) = answer_from(&harness, tool, &rows).await;
                assert_eq!(answer, expected, "{row}");
                assert_eq!(counts, [1, u64::from(!is_decided)], "{row}");
            }
        }
    }
}

/// Tests that values without a JSON form in withheld rows change no answer, and that such a value in a row to be released
/// is an error.
#[tokio::test]
async fn p3_an_answer_tells_nothing_about_unreadable_values_of_withheld_rows() {
    let database = database::sqlite().await;
    let harness = Harness::with(&database, TOOLS, |config| config.pushdown = false).await;
    let ask = async || {
        call(
            &harness,
            "of_patient",
            r#"{"patient": "NUGWI"}"#,
            DOCTOR_ONE,
        )
        .await
    };
    // SQLite stores any bytes as a text.
    let spoil = async |column: &str, id: u64| {
        let set = format!("UPDATE records SET {column} = CAST(x'ff' AS TEXT) WHERE id = {id}");
        database.execute(&set).await;
    };
    let before = VisibleAnswer::new(String::new(), ask().await);
    assert_eq!((before.rows, before.error_kind.as_str()), (1, ""));
    for (column, expected_undecided) in [("note", 0), ("doctor", 1)] {
        spoil(column, 2).await;
        let answer = ask().await;
        let facts = answer.facts();
        let undecided = facts.outline.as_ref().unwrap().rows_undecided;
        assert_eq!(
            (facts.rows_withheld, undecided),
            (2, expected_undecided),
            "{column}"
        );
        let after = VisibleAnswer::new(String::new(), answer);
        assert_eq!(after, before, "{column}");
    }
    spoil("note", 1).await;
    let released = ask().await;
    assert_eq!(released.facts().error_kind, "bad_result");
    assert!(released.text().contains("`note`"), "{}", released.text());
}
