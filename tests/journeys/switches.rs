//! Tools switched on and off in a running system, from the command line.

use serde_json::json;
use wardgate_testkit::{ProcessExit, SeparateProcesses, System, TestApp, run, until};

use super::people::{doctor, nurse};
use crate::{REPOSITORY, WARDGATE};

const SHIFTS: &str = "get_shifts";

/// `wardgate tools …` for the system that `how` names.
fn tools(arguments: &[&str], how: &[&str]) -> ProcessExit {
    run(
        WARDGATE.as_ref(),
        &[&["tools"], arguments, how].concat(),
        &[],
    )
}

/// What a command that failed said.
fn refusal(ended: &ProcessExit) -> &str {
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    &ended.stderr
}

/// Waits until the tool is, or is not, among those that the token's caller is offered.
async fn is_offered(system: &impl System, token: &str, offered: bool) {
    until("the list follows the switch", async || {
        let names = system.client().tool_names(token).await;
        (names.iter().any(|name| name == SHIFTS) == offered).then_some(())
    })
    .await;
}

/// Off for nurses, on for one of them, and none of it for doctors; each step on record.
async fn switch_off_and_on(system: &impl System, how: &[&str]) {
    let (nurse, doctor) = (nurse(system), doctor(system));
    is_offered(system, &nurse, true).await;
    tools(&["disable", SHIFTS, "--role", "Nurse", "--by", "ada"], how).success();
    is_offered(system, &nurse, false).await;
    is_offered(system, &doctor, true).await;
    let reply = system.client().call(&nurse, SHIFTS, json!({})).await;
    assert_eq!(reply.error(), (-32602, format!("Unknown tool: {SHIFTS}")));
    let denied = system.records().pop().unwrap();
    assert_eq!(
        [&denied["status"], &denied["reason"]],
        ["denied", "disabled"]
    );

    let joy = ["enable", SHIFTS, "--user", "nurse.joy", "--by", "ada"];
    tools(&joy, how).success();
    is_offered(system, &nurse, true).await;
    system.client().call(&nurse, SHIFTS, json!({})).await.rows();

    let listed = tools(&["switches", "-o", "jsonl"], how).success();
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
    let seen: Vec<_> = changes
        .iter()
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

    tools(
        &["disable", SHIFTS, "--user", "nurse.joy", "--by", "ada"],
        &how,
    )
    .success();
    app.process.kill();
    refusal(&tools(&["switches"], &how));
    // The socket of the killed process is in the way, and replaced.
    app.restart();
    let nurse = nurse(&app);
    is_offered(&app, &nurse, false).await;
    tools(
        &["reset", SHIFTS, "--user", "nurse.joy", "--by", "ada"],
        &how,
    )
    .success();
    tools(&["reset", SHIFTS, "--role", "Nurse", "--by", "ada"], &how).success();
    is_offered(&app, &nurse, true).await;

    assert!(app.process.terminate().success());
    assert!(!app.data_dir().join("operator.sock").exists());
    let refused = tools(&["switches"], &how);
    let told = "operator.sock is not there: start `wardgate up`";
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
    for (name, flag, told) in [
        ("get_shfts", "--by=ada", "there is no tool `get_shfts`"),
        (SHIFTS, "--toolset", "there is no toolset `get_shifts`"),
        (SHIFTS, "--upstream", "there is no upstream `get_shifts`"),
    ] {
        let arguments = ["disable", name, flag];
        let environment = [("USER", "ada")];
        let all = [&["tools"], &arguments[..], &["--data-dir", &dir]].concat();
        let refused = run(WARDGATE.as_ref(), &all, &environment);
        assert!(refusal(&refused).contains(told), "{}", refused.stderr);
    }
    assert!(
        tools(&["switches"], &["--data-dir", &dir])
            .success()
            .is_empty()
    );
    assert!(app.records_with(&["--user", "ada"]).is_empty());
}
