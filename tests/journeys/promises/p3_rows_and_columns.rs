//! Tests of P3: no row or column beyond the rule is released, whichever way the rule is applied.
//!
//! The rule is implemented a second time here, from the demo's README and on the database itself, and the results of
//! Wardgate are compared with it, row by row and cell by cell.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use wardgate_testkit::{Reply, System, TestApp};

use super::super::extra_tools;
use super::super::postgres::{self, Database};
use crate::{REPOSITORY, WARDGATE};

/// A caller: the subject, the role, and the claim that the role requires.
#[derive(Debug, Clone, Copy)]
struct Who {
    subject: &'static str,
    role: &'static str,
    claim: Option<(&'static str, &'static str)>,
}

const fn who(
    subject: &'static str,
    role: &'static str,
    claim: Option<(&'static str, &'static str)>,
) -> Who {
    Who {
        subject,
        role,
        claim,
    }
}

const EVERYONE: [Who; 11] = [
    who("dr.yenji", "Doctor", None),
    who("dr.okafor", "Doctor", None),
    who("dr.andersen", "Doctor", None),
    who("nurse.joy", "Nurse", Some(("ward", "W2"))),
    who("nurse.adeyemi", "Nurse", Some(("ward", "W4"))),
    who("nurse.hill", "Nurse", None),
    who("billing.ruiz", "Billing", None),
    who("patient.nugwi", "Patient", Some(("patient_id", "NUGWI"))),
    who("patient.dosro", "Patient", Some(("patient_id", "DOSRO"))),
    who("patient.nobody", "Patient", None),
    who("auditor.lee", "Auditor", None),
];

/// Patients with sealed records, with other doctors, and of several wards. The last one does not exist.
const PATIENTS: [&str; 9] = [
    "NUGWI", "DOSRO", "NIDMI", "GUNKO", "LEWPA", "HAJKU", "BASRE", "ZUVRO", "NOGWI",
];

/// A tool, the table from which its rows come, and the columns whose names differ there.
struct Question {
    tool: &'static str,
    from: &'static str,
    order: &'static str,
    renamed: &'static [(&'static str, &'static str)],
}

const OF_A_PATIENT: [Question; 4] = [
    Question {
        tool: "get_patient_overview",
        from: "patients",
        order: "patient_id",
        renamed: &[],
    },
    Question {
        tool: "get_admissions",
        from: "admissions",
        order: "admitted_at DESC, t.id",
        renamed: &[("admitted_to", "ward")],
    },
    Question {
        tool: "get_appointments",
        from: "appointments",
        order: "scheduled_for DESC, t.id",
        renamed: &[],
    },
    Question {
        tool: "get_medical_records",
        from: "medical_records",
        order: "created_at DESC, t.id",
        renamed: &[],
    },
];

/// The part of a `tools.yaml` with the classes of columns.
#[derive(Deserialize)]
struct Catalogue {
    tools: Vec<CatalogueTool>,
}

#[derive(Deserialize)]
struct CatalogueTool {
    name: String,
    result: ResultShape,
}

#[derive(Deserialize)]
struct ResultShape {
    classes: BTreeMap<String, String>,
}

fn classes_of(tool: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("{REPOSITORY}/deploy/examples/hospital/tools.yaml"))
        .unwrap();
    let catalogue: Catalogue = serde_saphyr::from_str(&text).unwrap();
    catalogue
        .tools
        .into_iter()
        .find(|entry| entry.name == tool)
        .unwrap()
        .result
        .classes
}

/// Returns whether `who` may call the tool at all.
fn may_call(who: Who, tool: &str, patient: Option<&str>) -> bool {
    match who.role {
        "Doctor" | "Nurse" => true,
        "Billing" => tool == "get_patient_overview",
        "Patient" => patient.is_some_and(|code| who.claim == Some(("patient_id", code))),
        _ => false,
    }
}

/// Returns whether `who` may read this row. Columns whose names begin with `_` are used only for this decision.
fn may_read(who: Who, row: &Value) -> bool {
    if row["_sealed"] == 1 && row["assigned_doctor"] != who.subject {
        return false;
    }
    match who.role {
        "Doctor" => ["_attending_doctor", "doctor", "assigned_doctor", "staff"]
            .iter()
            .any(|&it| row[it] == who.subject),
        "Nurse" if row.get("staff").is_some() => row["staff"] == who.subject,
        "Nurse" => who.claim.is_some_and(|(_, ward)| row["_ward"] == ward),
        "Billing" => true,
        "Patient" => who.claim.is_some_and(|(_, code)| row["patient_id"] == code),
        _ => false,
    }
}

/// The form in which a column is released.
#[derive(Debug, PartialEq)]
enum ColumnForm {
    Clear,
    Masked,
    Dropped,
}

fn column_form(role: &str, class: &str) -> ColumnForm {
    // A class, or a prefix that stands for a family of classes.
    let (clear, masked): (&[&str], &[&str]) = match role {
        "Doctor" => (&["none", "id", "phi", "contact", "finance"], &[]),
        "Nurse" => (
            &["none", "phi.date", "phi.text", "phi.code"],
            &["id", "phi.name"],
        ),
        "Billing" => (
            &[
                "none",
                "id.patient",
                "phi.name",
                "contact.address",
                "finance",
            ],
            &["phi.date"],
        ),
        "Patient" => (
            &["none", "id.patient", "phi", "contact", "finance"],
            &["id.staff"],
        ),
        _ => (&[], &[]),
    };
    let family = class.split('.').next().unwrap();
    let holds = |classes: &[&str]| classes.iter().any(|it| [class, family].contains(it));
    match (holds(clear), holds(masked)) {
        (true, _) => ColumnForm::Clear,
        (_, true) => ColumnForm::Masked,
        _ => ColumnForm::Dropped,
    }
}

/// Returns the rows of the database that match a question, regardless of the caller.
async fn rows_of(
    database: &mut SqliteConnection,
    question: &Question,
    patient: &str,
) -> Vec<Value> {
    let columns: Vec<String> = classes_of(question.tool)
        .into_keys()
        .map(|name| {
            let renamed = question.renamed.iter().find(|(shown, _)| *shown == name);
            format!(
                "'{name}', t.{}",
                renamed.map_or(name.as_str(), |(_, stored)| stored)
            )
        })
        .collect();
    let sealed = if question.from == "medical_records" {
        "t.sealed"
    } else {
        "0"
    };
    let sql = format!(
        "SELECT json_object({}, '_attending_doctor', p.attending_doctor, '_ward', p.ward, '_sealed', {sealed})
         FROM {} t JOIN patients p ON p.patient_id = t.patient_id
         WHERE t.patient_id = ? ORDER BY t.{}",
        columns.join(", "),
        question.from,
        question.order,
    );
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(patient)
        .fetch_all(database)
        .await
        .unwrap();
    rows.iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

/// Compares a result with the expected rows.
fn compare(who: Who, tool: &str, expected: &[&Value], got: &[Value]) {
    let context = format!("{who:?} {tool}");
    assert_eq!(got.len(), expected.len(), "{context}");
    let classes = classes_of(tool);
    for (got, stored) in got.iter().zip(expected) {
        let got = got.as_object().unwrap();
        assert!(
            got.keys().all(|column| classes.contains_key(column)),
            "{context}: {got:?}"
        );
        for (column, class) in &classes {
            let (cell, stored) = (got.get(column), &stored[column]);
            match column_form(who.role, class) {
                ColumnForm::Clear => assert_eq!(cell, Some(stored), "{context} {column}"),
                ColumnForm::Dropped => assert_eq!(cell, None, "{context} {column}"),
                ColumnForm::Masked if stored.is_null() => {
                    assert_eq!(cell, Some(&Value::Null), "{context} {column}");
                }
                ColumnForm::Masked => {
                    let (cell, stored) =
                        (cell.unwrap().as_str().unwrap(), stored.as_str().unwrap());
                    assert!(!cell.contains(stored), "{context} {column}: {cell}");
                }
            }
        }
    }
}

fn answer(reply: &Reply) -> Option<Vec<Value>> {
    let body = reply.json();
    body["result"]["structuredContent"]["data"]
        .as_array()
        .cloned()
}

/// Asks every question as every person, and compares each result with the rows of a database.
async fn ask_everything(app: &TestApp, oracle: &str) {
    let mut database = SqliteConnection::connect(oracle).await.unwrap();
    let mut withheld = 0;
    for who in EVERYONE {
        let token = app.token(who.subject, who.role, who.claim.as_slice());
        for question in &OF_A_PATIENT {
            for patient in PATIENTS {
                let stored = rows_of(&mut database, question, patient).await;
                let may_call = may_call(who, question.tool, Some(patient));
                let expected: Vec<&Value> = stored
                    .iter()
                    .filter(|row| may_call && may_read(who, row))
                    .collect();
                withheld += stored.len() - expected.len();
                let arguments = match question.tool {
                    "get_patient_overview" => json!({ "patient_id": patient }),
                    _ => json!({ "patient_id": patient, "limit": 500 }),
                };
                let answer = answer(&app.client().call(&token, question.tool, arguments).await);
                compare(
                    who,
                    question.tool,
                    &expected,
                    answer.as_deref().unwrap_or_default(),
                );
            }
        }
        // These days have fewer shifts than the limit.
        let days = json!({ "from": "2026-11-16", "to": "2026-11-22", "limit": 500 });
        let shifts = answer(&app.client().call(&token, "get_shifts", days).await);
        let sql = "SELECT json_object('id', id, 'staff', staff, 'ward', ward, 'kind', kind, 'starts_at', starts_at, 'ends_at', ends_at) FROM shifts WHERE staff = ? AND substr(starts_at, 1, 10) BETWEEN '2026-11-16' AND '2026-11-22' ORDER BY starts_at DESC, id";
        let own: Vec<String> = sqlx::query_scalar(sql)
            .bind(who.subject)
            .fetch_all(&mut database)
            .await
            .unwrap();
        let own: Vec<Value> = own
            .iter()
            .map(|row| serde_json::from_str(row).unwrap())
            .collect();
        let expected: Vec<&Value> = own
            .iter()
            .filter(|row| may_call(who, "get_shifts", None) && may_read(who, row))
            .collect();
        compare(
            who,
            "get_shifts",
            &expected,
            shifts.as_deref().unwrap_or_default(),
        );
    }
    assert!(
        withheld > 1_000,
        "the questions reach far beyond the rules: {withheld}"
    );
}

/// Returns the URL of the database that `wardgate up` created for `app`.
fn oracle(app: &TestApp) -> String {
    let path = app.data_dir().join("hospital.sqlite");
    format!("sqlite:{}?mode=ro", path.display())
}

/// Returns the number of rows that reached the tool-runner and were withheld.
fn count_withheld(app: &TestApp) -> u64 {
    let records = app.records();
    let counts = records.iter().filter_map(|it| it["rows_withheld"].as_u64());
    counts.sum()
}

const NO_PUSHDOWN: (&str, &str) = ("WARDGATE_TOOL_RUNNER__PUSHDOWN", "false");

#[tokio::test]
async fn p3_no_row_no_column_beyond_the_rule() {
    let pushed = TestApp::start(WARDGATE);
    let checked = TestApp::start_with(WARDGATE, &[NO_PUSHDOWN]);
    let oracle = oracle(&pushed);
    tokio::join!(
        ask_everything(&pushed, &oracle),
        ask_everything(&checked, &oracle)
    );
    // This shows that both ways were used.
    assert!(
        count_withheld(&checked) > 500,
        "{}",
        count_withheld(&checked)
    );
    assert!(count_withheld(&pushed) < count_withheld(&checked));
}

#[tokio::test]
async fn p3_no_row_no_column_beyond_the_rule_on_postgresql() {
    let Some(hospital) = Database::hospital().await else {
        return;
    };
    // The scripts create the same rows on both kinds of database.
    let lite = TestApp::start(WARDGATE);
    let oracle = oracle(&lite);
    let [kind, url] = postgres::on(&hospital);
    let pushed = TestApp::start_with(WARDGATE, &[kind, url]);
    let checked = TestApp::start_with(WARDGATE, &[kind, url, NO_PUSHDOWN]);
    tokio::join!(
        ask_everything(&pushed, &oracle),
        ask_everything(&checked, &oracle)
    );
    assert!(count_withheld(&pushed) < count_withheld(&checked));
    drop((pushed, checked));
    hospital.remove().await;
}

/// Statements that change only rows which the rules withhold from the doctor `dr.yenji`.
const CHANGES: [&str; 4] = [
    "UPDATE medical_records SET content = 'CANARY', note = NULL, created_at = '2000-01-01T00:00:00Z'
     WHERE assigned_doctor <> 'dr.yenji'
       AND (sealed OR patient_id NOT IN (SELECT patient_id FROM patients WHERE attending_doctor = 'dr.yenji'))",
    "DELETE FROM appointments WHERE doctor <> 'dr.yenji'
       AND patient_id NOT IN (SELECT patient_id FROM patients WHERE attending_doctor = 'dr.yenji')",
    "DELETE FROM shifts WHERE staff <> 'dr.yenji'",
    "UPDATE patients SET full_name = 'CANARY' WHERE attending_doctor <> 'dr.yenji'",
];

/// Returns the answers to many calls of the doctor.
async fn answers_to_doctor(app: &TestApp) -> Vec<String> {
    let mut calls = vec![("get_shifts", json!({ "limit": 3 }))];
    for patient in PATIENTS {
        calls.push(("get_patient_overview", json!({ "patient_id": patient })));
        for question in &OF_A_PATIENT[1..] {
            for limit in [1, 3, 500] {
                let arguments = json!({ "patient_id": patient, "limit": limit });
                calls.push((question.tool, arguments));
            }
        }
    }
    doctors_answers(app, &calls).await
}

/// Returns the answers to these calls of the doctor, without the ids of the calls and of their records.
async fn doctors_answers(app: &TestApp, calls: &[(&str, Value)]) -> Vec<String> {
    let token = app.token("dr.yenji", "Doctor", &[]);
    let mut answers = Vec::new();
    for (tool, arguments) in calls {
        let answer = app.client().call(&token, tool, arguments.clone()).await;
        let mut answer = answer.json();
        if let Some(meta) = answer["result"]["_meta"].as_object_mut() {
            meta.retain(|name, _| {
                !["dev.wardgate/callId", "dev.wardgate/receipt"].contains(&name.as_str())
            });
        }
        answers.push(answer.to_string());
    }
    answers
}

/// Tests that a change of withheld rows changes no byte of any answer, including errors and limited pages. How long an
/// answer takes is not compared, because the database still reads the rows that it leaves out.
#[tokio::test]
async fn p3_withheld_rows_change_no_byte_of_an_answer() {
    let app = TestApp::start(WARDGATE);
    let before = answers_to_doctor(&app).await;
    let path = app.data_dir().join("hospital.sqlite");
    let mut database = SqliteConnection::connect(&format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    for change in CHANGES {
        let changed = sqlx::query(change).execute(&mut database).await.unwrap();
        assert!(changed.rows_affected() > 0, "{change}");
        let after = answers_to_doctor(&app).await;
        assert_eq!(after, before, "{change}");
    }
    let released = before.concat();
    assert!(released.contains("Invalid patient_id") && released.contains(r#""isError":false"#));
}

/// A tool that counts the rows of each doctor. `CONDITION` is the condition of its statement.
const FIGURES: &str = "
  - name: NAME
    description: Number of patients of each doctor.
    tags: [clinical]
    annotations: { readOnlyHint: true }
    input_schema: { type: object }
    execute:
      type: sql
      source: hospital
      statement: >
        SELECT p.attending_doctor, count(*) AS patients FROM patients p WHERE CONDITION GROUP BY p.attending_doctor
    result:
      entity: Patient
      key: attending_doctor
      ROW_RULE
      classes: { attending_doctor: none, patients: none }
";

/// Tests that a statement which counts rows counts those that the caller may read, or is refused without being run.
#[tokio::test]
async fn p3_figures_count_only_rows_of_the_caller() {
    let app = TestApp::start(WARDGATE);
    let tool = |name: &str, condition: &str, row_rule: &str| {
        let text = FIGURES.replace("NAME", name);
        text.replace("CONDITION", condition)
            .replace("ROW_RULE", row_rule)
    };
    let row_rule = "row_rule: { attending_doctor: p.attending_doctor }";
    extra_tools::add(&app, &tool("own_figures", ":row_rule", row_rule)).await;
    extra_tools::add(
        &app,
        &tool("late_figures", "1 = 1", "# The rule is not pushed down."),
    )
    .await;
    let doctor = app.token("dr.yenji", "Doctor", &[]);
    let own = app.client().call(&doctor, "own_figures", json!({})).await;
    let mut database = SqliteConnection::connect(&oracle(&app)).await.unwrap();
    let sql = "SELECT count(*) FROM patients WHERE attending_doctor = 'dr.yenji'";
    let patients: i64 = sqlx::query_scalar(sql)
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(
        own.rows(),
        [json!({ "attending_doctor": "dr.yenji", "patients": patients })]
    );
    let late = app.client().call(&doctor, "late_figures", json!({})).await;
    let result = late.result();
    assert_eq!(result["isError"], true, "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("it was not run"), "{text}");
    assert!(!result.to_string().contains("dr.okafor"), "{result}");
    let records = app.records();
    let record = records.iter().find(|it| it["tool"] == "late_figures");
    assert_eq!(record.unwrap()["reason"], "row_rule_too_late", "{record:?}");
}

/// Gives records which the rules withhold from the doctor `dr.yenji` a value that is no boolean, so that Wardgate cannot
/// check them.
const SPOIL_RECORDS: &str =
    "UPDATE medical_records SET sealed = 2 WHERE assigned_doctor <> 'dr.yenji'
     AND patient_id NOT IN (SELECT patient_id FROM patients WHERE attending_doctor = 'dr.yenji')";

/// Tests that withheld rows that cannot be checked change no byte of any answer, and that the record counts those that
/// reached the tool-runner.
#[tokio::test]
async fn p3_rows_that_cannot_be_checked_change_no_byte_of_an_answer() {
    for (settings, reach_the_tool_runner) in [(&[][..], false), (&[NO_PUSHDOWN], true)] {
        let app = TestApp::start_with(WARDGATE, settings);
        let calls: Vec<_> = PATIENTS
            .iter()
            .map(|patient| {
                let arguments = json!({ "patient_id": patient, "limit": 500 });
                ("get_medical_records", arguments)
            })
            .collect();
        let before = doctors_answers(&app, &calls).await;
        let path = app.data_dir().join("hospital.sqlite");
        let mut database = SqliteConnection::connect(&format!("sqlite:{}", path.display()))
            .await
            .unwrap();
        let spoilt = sqlx::query(SPOIL_RECORDS).execute(&mut database).await;
        assert!(spoilt.unwrap().rows_affected() > 0);
        assert_eq!(doctors_answers(&app, &calls).await, before);
        let records = app.records_with(&["--details"]);
        let undecided = records
            .iter()
            .any(|record| record["details"]["rows_undecided"].as_u64() > Some(0));
        assert_eq!(undecided, reach_the_tool_runner);
    }
}
