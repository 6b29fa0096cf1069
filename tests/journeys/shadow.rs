//! Tests of a candidate policy beside the one in force: the differences are reported, and decisions do not change.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use wardgate_testkit::{System, TestApp, run, until};

use super::people::{auditor, billing, doctor, nurse, of_patient};
use crate::{REPOSITORY, WARDGATE};

const GIVEN: &str = r#"@id("billing-calls-medical-records")
permit (principal in Role::"Billing", action == Action::"call_tool", resource == Tool::"get_medical_records");
"#;

/// Writes a copy of the hospital's policies in which nurses lose their tools and billing gains one.
fn write_candidate(directory: &Path) {
    for entry in fs::read_dir(format!("{REPOSITORY}/deploy/examples/hospital/policies")).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            fs::copy(&file, directory.join(file.file_name().unwrap())).unwrap();
        }
    }
    let nurses = directory.join("nurse.cedar");
    let written = fs::read_to_string(&nurses).unwrap();
    let call = "principal in Role::\"Nurse\",\n  action == Action::\"call_tool\"";
    assert!(written.contains(call));
    let taken = written.replace(call, &call.replace("Nurse", "NightNurse"));
    fs::write(nurses, taken).unwrap();
    fs::write(directory.join("given.cedar"), GIVEN).unwrap();
}

/// An operator who runs `wardgate policy shadow` with a token.
struct ShadowOperator<'a> {
    app: &'a TestApp,
    token: String,
}

impl ShadowOperator<'_> {
    fn run_shadow(&self, options: &[&str]) -> wardgate_testkit::ProcessExit {
        let (data, file) = (self.app.data_dir(), self.app.data_dir().join("shadow.jwt"));
        fs::write(&file, &self.token).unwrap();
        let words = ["policy", "shadow", "--data-dir", data.to_str().unwrap()];
        let token = ["--token-file", file.to_str().unwrap()];
        run(
            self.app.binary(),
            &[&words[..], &token, options].concat(),
            &[],
        )
    }

    fn report(&self) -> Value {
        serde_json::from_str(&self.run_shadow(&["--json"]).success()).unwrap()
    }

    async fn report_when(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, async || Some(self.report()).filter(|it| is_so(it))).await
    }
}

/// Returns each difference in a report as user, tool and change.
fn flips(report: &Value) -> Vec<[&str; 3]> {
    let mut flips: Vec<_> = report["flips"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flip| ["user", "tool", "change"].map(|name| flip[name].as_str().unwrap()))
        .collect();
    flips.sort_unstable();
    flips
}

async fn call_as_everyone(app: &TestApp) -> [usize; 2] {
    let records = async |token: String| {
        let call = app
            .client()
            .call(&token, "get_medical_records", of_patient("NUGWI"));
        call.await
    };
    let (doctor, nurse) = (records(doctor(app)).await, records(nurse(app)).await);
    assert_eq!(records(billing(app)).await.error().0, -32602);
    [doctor.rows().len(), nurse.rows().len()]
}

#[tokio::test]
async fn a_candidate_decides_beside_the_policies_in_force_and_changes_no_answer() {
    let candidate = tempfile::tempdir().unwrap();
    write_candidate(candidate.path());
    let directory = candidate.path().to_str().unwrap();
    let environment = [("WARDGATE_POLICY__SHADOW__POLICIES", directory)];
    let app = TestApp::start_with(WARDGATE, &environment);
    let operator = ShadowOperator {
        app: &app,
        token: auditor(&app),
    };
    let report = operator.report_when("the candidate decides", |it| {
        it["candidate_hash"].is_string()
    });
    let first = report.await["candidate_hash"].clone();

    let [doctors, nurses] = call_as_everyone(&app).await;
    assert!(doctors > 0 && nurses > 0);
    let compared = operator
        .report_when("three calls are compared", |it| {
            it["flips"].as_array().unwrap().len() >= 2 && it["equal"].as_u64() >= Some(1)
        })
        .await;
    let tool = "get_medical_records";
    let expected = [
        ["billing.ruiz", tool, "denied_to_allowed"],
        ["nurse.joy", tool, "allowed_to_denied"],
    ];
    assert_eq!(flips(&compared), expected, "{compared}");
    assert_ne!(compared["policy_hash"], compared["candidate_hash"]);
    assert!(!compared.to_string().contains("NUGWI"));
    let given = &compared["flips"].as_array().unwrap();
    let given = given
        .iter()
        .find(|it| it["user"] == "billing.ruiz")
        .unwrap();
    assert_eq!(
        given["candidate"]["policies"],
        json!(["billing-calls-medical-records"])
    );
    let metrics = app.metrics().await;
    for outcome in ["allowed_to_denied", "denied_to_allowed", "equal"] {
        let line = format!("wardgate_policy_shadow_decisions_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("wardgate_policy_shadow_in_force 1"));
    let table = operator.run_shadow(&[]).success();
    assert!(
        table.contains("nurse.joy") && table.contains("2 differences"),
        "{table}"
    );

    let refused = ShadowOperator {
        app: &app,
        token: nurse(&app),
    };
    let refused = refused.run_shadow(&[]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("no policy permits `nurse.joy`"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stdout.contains("billing"), "{}", refused.stdout);

    fs::write(candidate.path().join("given.cedar"), "// Nothing more.").unwrap();
    let anew = operator
        .report_when("the edited candidate decides", |it| {
            it["candidate_hash"] != first
        })
        .await;
    assert_eq!(flips(&anew), Vec::<[&str; 3]>::new(), "{anew}");

    fs::write(candidate.path().join("given.cedar"), "permit (").unwrap();
    let broken = operator
        .report_when("the fault is told", |it| it["fault"] != "")
        .await;
    assert!(
        broken["fault"].as_str().unwrap().contains("given.cedar:1:"),
        "{broken}"
    );
    assert_eq!(broken["candidate_hash"], Value::Null);
    let file = app.example_dir().join("wardgate.yaml");
    let words = ["config", "check", "--config", file.to_str().unwrap()];
    let database = ("HOSPITAL_DB_URL", "sqlite:hospital.sqlite");
    let checked = run(app.binary(), &words, &[environment[0], database]);
    assert!(
        checked.stderr.contains("given.cedar:1:"),
        "{}",
        checked.stderr
    );
    assert_eq!(checked.success(), "ok\n");
    assert!(
        app.metrics()
            .await
            .contains("wardgate_policy_shadow_in_force 0")
    );
    assert_eq!(call_as_everyone(&app).await, [doctors, nurses]);
}
