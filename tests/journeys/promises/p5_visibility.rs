//! Tests of P5: tools that a caller may not call are not visible, and are indistinguishable from tools that do not exist.

use wardgate_testkit::{System, TestApp};

use super::super::people::{auditor, billing, doctor, nurse, of_patient, patient};
use crate::WARDGATE;

#[tokio::test]
async fn p5_what_you_may_not_call_you_do_not_see() {
    let app = TestApp::start(WARDGATE);
    let all = app.client().tool_names(&doctor(&app)).await;
    for (token, seen) in [
        (doctor(&app), 5),
        (nurse(&app), 5),
        (patient(&app), 4),
        (billing(&app), 1),
        (auditor(&app), 0),
    ] {
        let listed = app.client().tool_names(&token).await;
        assert_eq!(listed.len(), seen);
        for tool in &all {
            let reply = app
                .client()
                .call(&token, tool, of_patient("NUGWI"))
                .await
                .json();
            let is_unknown = reply["error"]["message"] == format!("Unknown tool: {tool}").as_str();
            assert_eq!(is_unknown, !listed.contains(tool), "{tool}: {reply}");
            let status = &app.records().pop().unwrap()["status"];
            assert_eq!(
                status == "denied",
                is_unknown,
                "the record tells the one from the other"
            );
        }
    }
}

#[tokio::test]
async fn p5_metrics_name_no_tool_that_was_hidden_from_whoever_called_it() {
    let app = TestApp::start(WARDGATE);
    let all = app.client().tool_names(&doctor(&app)).await;
    let token = auditor(&app);
    for tool in &all {
        app.client().call(&token, tool, of_patient("NUGWI")).await;
    }
    let metrics = app.metrics().await;
    let calls = metrics
        .lines()
        .filter(|line| line.starts_with("wardgate_tool_call"));
    let calls: Vec<&str> = calls.collect();
    let unknown = format!(
        r#"wardgate_tool_calls_total{{tool="unknown",status="denied"}} {}"#,
        all.len()
    );
    assert!(calls.contains(&unknown.as_str()), "{calls:?}");
    for tool in &all {
        let named = format!(r#""{tool}""#);
        assert!(!calls.iter().any(|line| line.contains(&named)), "{calls:?}");
    }
}
