//! Tests of disabling and enabling tools in a running system from the command line.

use serde_json::json;
use wardgate_testkit::{ProcessExit, SeparateProcesses, System, TestApp, run, until};

use super::people::{doctor, nurse, tool_manager};
use crate::{REPOSITORY, WARDGATE};

const SHIFTS: &str = "get_shifts";

/// Runs `wardgate tools …` for the system that the options `how` identify, as the operator of `token`.
fn tools(arguments: &[&str], how: &[&str], token: &str) -> ProcessExit {
    run(
        WARDGATE.as_ref(),
        &[&["tools"], arguments, how].concat(),
        &[("WARDGATE_TOKEN", token)],
    )
}

/// Returns the error output of a command that failed.
fn refusal(ended: &ProcessExit) -> &str {
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    &ended.stderr
}

/// Waits until the tool is, or is not, offered to the caller of the token.
async fn is_offered(system: &impl System, token: &str, offered: bool) {
    until("the list follows the switch", async || {
        let names = system.client().tool_names(token).await;
        (names.iter().any(|name| name == SHIFTS) == offered).then_some(())
    })
    .await;
}

/// Disables a tool for nurses and enables it for one of them, without an effect on doctors, and checks that each step
/// is on record.
async fn switch_off_and_on(system: &impl System, how: &[&str]) {
    let (nurse, doctor, ada) = (nurse(system), doctor(system), tool_manager(system));
    is_offered(system, &nurse, true).await;
    tools(&["disable", SHIFTS, "--role", "Nurse"], how, &ada).success();
    is_offered(system, &nurse, false).await;
    is_offered(system, &doctor, true).await;
    let reply = system.client().call(&nurse, SHIFTS, json!({})).await;
    assert_eq!(reply.error(), (-32602, format!("Unknown tool: {SHIFTS}")));
    let denied = system.records().pop().unwrap();
    assert_eq!(
        [&denied["status"], &denied["reason"]],
        ["denied", "disabled"]
    );

    let joy = ["enable", SHIFTS, "--user", "nurse.joy"];
    tools(&joy, how, &ada).success();
    is_offered(system, &nurse, true).await;
    system.client().call(&nurse, SHIFTS, json!({})).await.rows();

    let listed = tools(&["switches", "-o", "jsonl"], how, &ada).success();
    let listed: Vec<serde_json::Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(listed.len(), 2);
    assert_eq!(
        [&listed[0]["role"], &listed[0]["position"]],
        ["Nurse", "off"]
    );
    assert_eq!(
        [&listed[1]["user"], &listed[1]["position"]],
        ["nurse.joy", "on"]
    );

    let changes = system.records_with(&["--user", "ada"]);
    let lists = changes.iter().filter(|it| it["action"] == "switch.list");
    assert_eq!(lists.count(), 1);
    let seen: Vec<_> = changes
        .iter()
        .filter(|change| change["action"] != "switch.list")
        .map(|change| [&change["action"], &change["record_id"], &change["scope"]])
        .collect();
    assert_eq!(
        seen,
        [
            ["tool.disable", SHIFTS, "role:Nurse"],
            ["tool.enable", SHIFTS, "user:nurse.joy"],
        ]
    );
}

#[tokio::test]
async fn a_tool_is_switched_off_and_on_in_a_running_system_and_stays_so() {
    let mut app = TestApp::start(WARDGATE);
    let dir = app.data_dir().display().to_string();
    let how = ["--data-dir", &dir];
    switch_off_and_on(&app, &how).await;

    let ada = tool_manager(&app);
    let user = ["disable", SHIFTS, "--user", "nurse.joy"];
    tools(&user, &how, &ada).success();
    app.process.kill();
    refusal(&tools(&["switches"], &how, &ada));
    // The socket file of the killed process still exists, and is replaced.
    app.restart();
    let nurse = nurse(&app);
    is_offered(&app, &nurse, false).await;
    let user = ["reset", SHIFTS, "--user", "nurse.joy"];
    tools(&user, &how, &ada).success();
    tools(&["reset", SHIFTS, "--role", "Nurse"], &how, &ada).success();
    is_offered(&app, &nurse, true).await;

    assert!(app.process.terminate().success());
    assert!(!app.data_dir().join("operator.sock").exists());
    let refused = tools(&["switches"], &how, &ada);
    let told = "operator.sock does not exist: start `wardgate up`";
    assert!(refusal(&refused).contains(told), "{}", refused.stderr);
}

#[tokio::test]
async fn a_tool_is_switched_off_and_on_between_four_processes() {
    let system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let config = system.config().display().to_string();
    switch_off_and_on(&system, &["--config", &config]).await;
}

#[tokio::test]
async fn a_slip_of_the_hand_is_told_and_changes_nothing() {
    let app = TestApp::start(WARDGATE);
    let dir = app.data_dir().display().to_string();
    let (ada, doctor) = (tool_manager(&app), doctor(&app));
    let how = ["--data-dir", &dir];
    for (words, told) in [
        (vec!["get_shfts"], "the tool `get_shfts` does not exist"),
        (
            vec![SHIFTS, "--toolset"],
            "the toolset `get_shifts` does not exist",
        ),
        (
            vec![SHIFTS, "--upstream"],
            "the upstream `get_shifts` does not exist",
        ),
    ] {
        let refused = tools(&[&["disable"], &words[..]].concat(), &how, &ada);
        assert!(refusal(&refused).contains(told), "{}", refused.stderr);
    }
    assert!(tools(&["switches"], &how, &ada).success().is_empty());
    let changes = app.records_with(&["--user", "ada"]);
    let actions: Vec<_> = changes.iter().map(|change| &change["action"]).collect();
    assert_eq!(actions, ["switch.list"]);

    // A certificate or the data directory does not identify the operator. The token does, and the policy decides what
    // they may do.
    let refused = tools(&["disable", SHIFTS], &how, &doctor);
    let told = "no policy permits `dr.yenji` to manage tools (Action::\"manage_tools\")";
    assert!(refusal(&refused).contains(told), "{}", refused.stderr);
    let tried = app.records_with(&["--user", "dr.yenji"]).pop().unwrap();
    assert_eq!(tried["action"], "tool.disable", "{tried}");
    assert_eq!(tried["status"], "denied", "{tried}");
    let words = ["tools", "disable", SHIFTS, "--data-dir", &dir];
    let refused = run(WARDGATE.as_ref(), &words, &[("HOME", &dir)]);
    let told = "a token is required: sign in with wardgate login";
    assert!(refusal(&refused).contains(told), "{}", refused.stderr);
}
