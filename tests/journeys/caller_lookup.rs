//! Tests of callers whose tokens have no roles, which are looked up in a table or a database of the organisation.

use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp, TestDatabase, run, until};

use super::people::{column, of_patient};
use super::refusals::refusal;
use crate::WARDGATE;

/// The prefix of the environment variables that configure a lookup.
const LOOKUP: &str = "WARDGATE_POLICY__CALLER_LOOKUP__";

/// An environment variable that the demo's catalogue requires in commands that read it.
const HOSPITAL: (&str, &str) = ("HOSPITAL_DB_URL", "sqlite::memory:");

/// Returns environment variables with these settings of a lookup whose results are cached for a second.
fn environment<'a>(settings: &[(&str, &'a str)]) -> Vec<(String, &'a str)> {
    let settings = settings.iter().chain(&[("TTL", "1")]);
    settings
        .map(|(name, value)| (format!("{LOOKUP}{name}"), *value))
        .collect()
}

fn borrow_variables<'a>(variables: &'a [(String, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let variables = variables.iter();
    variables
        .map(|(name, value)| (name.as_str(), *value))
        .collect()
}

/// Starts `wardgate up` with these settings of the lookup.
fn start(settings: &[(&str, &str)]) -> TestApp {
    TestApp::start_with(WARDGATE, &borrow_variables(&environment(settings)))
}

/// Returns the output of `wardgate doctor` with these settings of the lookup.
fn doctor(app: &TestApp, settings: &[(&str, &str)]) -> String {
    let config = app.example_dir().join("wardgate.yaml");
    let config = config.display().to_string();
    let dir = app.data_dir().display().to_string();
    let words = ["doctor", "--config", &config, "--data-dir", &dir];
    let variables = environment(settings);
    let variables = [&borrow_variables(&variables)[..], &[HOSPITAL]].concat();
    run(app.binary(), &words, &variables).stdout
}

/// Returns a token of the nurse with a role that has no rights.
fn token(app: &TestApp) -> String {
    app.token("nurse.joy", "Staff", &[])
}

async fn records(app: &TestApp, token: &str) -> Reply {
    let arguments = of_patient("NUGWI");
    app.client()
        .call(token, "get_medical_records", arguments)
        .await
}

/// Returns the record of the last call. Summaries of refused requests are recorded at most a second later, so they can follow it.
fn last_outcome(app: &TestApp) -> Value {
    let mut outcomes = app.records();
    outcomes.retain(|record| record["event"] == "outcome");
    outcomes.pop().unwrap()
}

/// Checks that the caller reads the records of the ward's patients with masked columns, as a nurse may, and that the
/// record and its explanation name the roles that were looked up.
async fn is_nurse_of_the_ward(app: &TestApp, token: &str) {
    let reply = records(app, token).await;
    let rows = reply.rows();
    assert_eq!(column(&rows, "patient_id"), ["•••WI", "•••WI"]);
    let outcome = last_outcome(app);
    assert_eq!(outcome["caller"]["roles"], json!(["Nurse", "Staff"]));
    let directory = app.example_dir().join("policies").display().to_string();
    let data_dir = app.data_dir().display().to_string();
    let call = outcome["call_id"].as_str().unwrap();
    let explain = ["policy", "explain", &directory, "--call", call];
    let explain = [&explain[..], &["--offline", "--data-dir", &data_dir]].concat();
    let explained = run(WARDGATE.as_ref(), &explain, &[]).success();
    assert!(explained.contains("Nurse"), "{explained}");
}

/// Waits until the caller may no longer call the tool, which is then hidden.
async fn until_nobody(app: &TestApp, token: &str) {
    until("the role is taken away", async || {
        let reply = records(app, token).await;
        reply.body.contains("Unknown tool").then_some(())
    })
    .await;
    let listed = app.client().modern(token, "tools/list", json!({})).await;
    assert!(!listed.body.contains("get_medical_records"));
}

#[tokio::test]
async fn a_nurse_has_the_roles_of_the_table_until_they_are_taken_away_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("people.yaml");
    let listed = "people: [{ subject: nurse.joy, roles: [Nurse], attributes: { ward: W2 } }]";
    std::fs::write(&file, listed).unwrap();
    let app = start(&[("TABLE_FILE", file.to_str().unwrap())]);
    let token = token(&app);
    is_nurse_of_the_ward(&app, &token).await;

    std::fs::write(&file, "people: []").unwrap();
    until_nobody(&app, &token).await;

    std::fs::write(&file, "people: [").unwrap();
    let refused = until("the table cannot be used", async || {
        let reply = records(&app, &token).await;
        (reply.status == 503).then_some(reply)
    })
    .await;
    assert_eq!(refusal(&refused).0, "rights_unavailable");
    assert!(
        app.process
            .log()
            .contains("the table of callers cannot be used")
    );
}

#[tokio::test]
async fn a_nurse_has_the_roles_of_a_query_and_is_refused_while_the_database_is_away() {
    let mut databases = vec![TestDatabase::sqlite("")];
    databases.extend(TestDatabase::postgres().await);
    databases.extend(TestDatabase::mysql().await);
    for database in databases {
        database
            .execute(
                "CREATE TABLE staff (subject VARCHAR(40), role VARCHAR(40), ward VARCHAR(40));
                 INSERT INTO staff VALUES ('nurse.joy', 'Nurse', 'W2');",
            )
            .await;
        let url = database.url();
        let statement = "SELECT role, ward FROM staff WHERE subject = :subject";
        let settings = [
            ("QUERY__URL", url.as_str()),
            ("QUERY__STATEMENT", statement),
        ];
        let app = start(&settings);
        let token = token(&app);
        is_nurse_of_the_ward(&app, &token).await;

        let found = doctor(&app, &settings);
        assert!(found.contains("policy.caller_lookup: answers"), "{found}");

        database.execute("ALTER TABLE staff RENAME TO gone").await;
        let refused = until("the database is asked again", async || {
            let reply = records(&app, &token).await;
            (reply.status == 503).then_some(reply)
        })
        .await;
        assert_eq!(refusal(&refused).0, "rights_unavailable");
        let found = doctor(&app, &settings);
        assert!(
            found.contains("policy.caller_lookup: does not answer"),
            "{found}"
        );

        database.execute("ALTER TABLE gone RENAME TO staff").await;
        is_nurse_of_the_ward(&app, &token).await;
        database.execute("DELETE FROM staff").await;
        until_nobody(&app, &token).await;
        let metrics = app.metrics().await;
        for outcome in ["found", "unlisted", "failed"] {
            let series = format!("wardgate_caller_lookups_total{{outcome=\"{outcome}\"}}");
            assert!(metrics.contains(&series), "{metrics}");
        }
    }
}

#[tokio::test]
async fn whom_the_table_does_not_list_is_refused_where_it_says_who_may_come_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("people.yaml");
    std::fs::write(&file, "people: [{ subject: nurse.joy, roles: [Nurse] }]").unwrap();
    let app = start(&[
        ("TABLE_FILE", file.to_str().unwrap()),
        ("UNLISTED", "refuse"),
        ("ONLY_SOURCE", "true"),
    ]);
    let stranger = app.token("mallory", "Doctor", &[]);
    let reply = records(&app, &stranger).await;
    assert_eq!(reply.status, 403);
    assert_eq!(refusal(&reply).0, "caller_unlisted");
    // A role in the token is ignored.
    let claimed = app.token("nurse.joy", "Auditor", &[]);
    records(&app, &claimed).await;
    let outcome = last_outcome(&app);
    assert_eq!(outcome["caller"]["roles"], json!(["Nurse"]));
    assert_eq!(outcome["user"], "nurse.joy");
}
