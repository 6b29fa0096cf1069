//! Tests of the machine-readable output of commands.

use serde_json::Value;
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, System, TestApp, run, until};

use super::people::{doctor, of_patient};
use crate::WARDGATE;

/// The environment variable in which the hospital's catalogue expects its database.
const DATABASE: [(&str, &str); 1] = [("HOSPITAL_DB_URL", "sqlite:hospital.sqlite")];

fn print(words: &[&str]) -> ProcessExit {
    run(WARDGATE.as_ref(), words, &DATABASE)
}

fn of_record<'a>(words: &[&'a str], data_dir: &'a str) -> Vec<&'a str> {
    [&["audit"], words, &["--data-dir", data_dir]].concat()
}

#[tokio::test]
async fn what_commands_say_of_a_system_is_one_document_for_programs() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let call = app
        .client()
        .call(&token, "get_medical_records", of_patient("NUGWI"));
    call.await.rows();
    let dir = app.data_dir().display().to_string();
    let [checkpoint, key, proof] = [
        &["checkpoint", "--offline"][..],
        &["key"],
        &["proof", "0", "--offline"],
    ]
    .map(|words| of_record(words, &dir));
    until("there is a checkpoint", async || {
        (print(&proof).code == Some(0)).then_some(())
    })
    .await;
    let verifier = print(&key).success();
    let verifier = verifier.trim_end();
    let out = TempDir::new().unwrap();
    let [plain, counted] = ["plain", "counted"].map(|name| out.path().join(name));
    let [plain, counted] = [&plain, &counted].map(|path| path.to_str().unwrap());
    let export = ["export", "--offline", "--out"];
    let text = print(&of_record(&[&export[..], &[plain]].concat(), &dir)).success();
    assert!(
        text.ends_with(&format!(" were written to {plain}\n")),
        "{text}"
    );

    let files = app.example_dir();
    let [policies, tools] = ["policies", "tools.yaml"].map(|name| files.join(name));
    let cases = [
        (vec!["health", "--url", app.client().base()], "parts"),
        (checkpoint, "checkpoint"),
        (key, "key"),
        (proof, "proof"),
        (
            of_record(&[&export[..], &[counted]].concat(), &dir),
            "records",
        ),
        (vec!["audit", "verify", plain, "--key", verifier], "records"),
        (
            vec!["policy", "check", policies.to_str().unwrap()],
            "policy_hash",
        ),
        (vec!["tools", "check", tools.to_str().unwrap()], "tools"),
    ];
    for (words, member) in cases {
        let json = print(&[&words[..], &["-o", "json"]].concat()).success();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert!(!json[member].is_null(), "{words:?}: {json}");
        match member {
            "key" => assert_eq!(json["key"], verifier),
            "checkpoint" | "proof" => {
                let (origin, text) = (json["origin"].as_str(), json[member].as_str());
                assert!(text.unwrap().contains(origin.unwrap()), "{json}");
            }
            _ => {}
        }
        if !words.contains(&"export") {
            let yaml = print(&[&words[..], &["-o", "yaml"]].concat()).success();
            assert!(yaml.contains(&format!("{member}:")), "{words:?}: {yaml}");
        }
    }
}
