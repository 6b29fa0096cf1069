//! Tests of the command that shows operators how callers have used their limits.

use std::collections::BTreeMap;

use serde_json::Value;
use wardgate_testkit::{ProcessExit, System, TestApp, run, until_true};

use super::people::{auditor, doctor, nurse, of_patient};
use super::postgres::Database;
use crate::WARDGATE;

/// The periods are days, so that no units are refilled during the test. With so few units, each lease has exactly the
/// cost of one call.
const QUOTAS: (&str, &str) = (
    "WARDGATE_GATEWAY__LIMITS__QUOTAS",
    r#"[{name="calls", rate="100/d", per=["caller"], costs={get_medical_records=2}}, {name="tools", rate="50/d", per=["tool"]}]"#,
);

fn limits(app: &TestApp, token: &str, format: &str) -> ProcessExit {
    let url = app.client().base();
    let words = ["limits", "--url", url, "-o", format];
    run(app.binary(), &words, &[("WARDGATE_TOKEN", token)])
}

/// Returns the used and remaining units of one limit, for each caller or tool.
fn uses(app: &TestApp, operator: &str, limit: &str) -> BTreeMap<String, (u64, u64)> {
    let text = limits(app, operator, "jsonl").success();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = rows.filter(|row| row["limit"] == limit);
    let row = |row: Value| {
        let whose = row["subject"].as_str().or(row["tool"].as_str());
        let number = |key: &str| row[key].as_u64().unwrap();
        (
            whose.unwrap_or_default().to_owned(),
            (number("used"), number("left")),
        )
    };
    rows.map(row).collect()
}

async fn call(app: &TestApp, token: &str, times: usize) {
    for _ in 0..times {
        let call = app
            .client()
            .call(token, "get_medical_records", of_patient("NUGWI"));
        call.await.rows();
    }
}

fn expected_uses(expected: &[(&str, (u64, u64))]) -> BTreeMap<String, (u64, u64)> {
    let each = expected.iter();
    each.map(|(whose, used)| ((*whose).to_owned(), *used))
        .collect()
}

#[tokio::test]
async fn an_operator_sees_what_three_callers_used_and_what_is_left_and_nobody_else_does() {
    let app = TestApp::start_with(WARDGATE, &[QUOTAS]);
    let other = app.token("nurse.chansey", "Nurse", &[("ward", "W2")]);
    call(&app, &doctor(&app), 3).await;
    call(&app, &nurse(&app), 2).await;
    call(&app, &other, 1).await;

    let operator = auditor(&app);
    let everybody = [
        ("dr.yenji", (6, 94)),
        ("nurse.chansey", (2, 98)),
        ("nurse.joy", (4, 96)),
    ];
    assert_eq!(uses(&app, &operator, "calls"), expected_uses(&everybody));
    let tools = uses(&app, &operator, "tools");
    assert_eq!(tools, expected_uses(&[("get_medical_records", (6, 44))]));
    let table = limits(&app, &operator, "table").success();
    assert!(
        table.starts_with("LIMIT") && table.contains("dr.yenji"),
        "{table}"
    );
    let json: Vec<Value> =
        serde_json::from_str(&limits(&app, &operator, "json").success()).unwrap();
    assert!(
        json.iter().any(|row| row["limit"] == "requests_per_minute"),
        "{json:?}"
    );

    let refused = limits(&app, &doctor(&app), "table");
    assert!(
        refused.stderr.contains("`read_record`"),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.code, Some(1));
    let records = app.records().into_iter();
    let looks = records.filter(|record| record["action"] == "limits.read");
    let looks: Vec<_> = looks
        .map(|record| (record["actor"].clone(), record["status"] == "denied"))
        .collect();
    assert_eq!(looks.len(), 5, "{looks:?}");
    assert_eq!(looks[4], ("dr.yenji".into(), true));
    assert!(looks[..4].iter().all(|(_, failed)| !failed), "{looks:?}");
}

#[tokio::test]
async fn either_of_two_gateways_shows_what_was_used_at_both() {
    let Some(database) = Database::create().await else {
        return;
    };
    let store = ("WARDGATE_GATEWAY__STORE", database.url.as_str());
    let near = TestApp::start_with(WARDGATE, &[QUOTAS, store]);
    let far = near.replica();
    let (doctor, nurse, operator) = (doctor(&near), nurse(&near), auditor(&near));
    call(&near, &doctor, 2).await;
    call(&far, &doctor, 3).await;
    call(&far, &nurse, 1).await;
    let expected = expected_uses(&[("dr.yenji", (10, 90)), ("nurse.joy", (2, 98))]);
    for gateway in [&near, &far] {
        until_true("both callers are shown with what they used", async || {
            uses(gateway, &operator, "calls") == expected
        })
        .await;
    }
    drop((near, far));
    database.remove().await;
}
