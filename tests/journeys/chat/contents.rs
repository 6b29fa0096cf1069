//! A test that the contents of a chat are in traces only if the configuration says so, and never in logs.

use serde_json::json;
use wardgate_testkit::TestApp;

use super::super::collector::collector;
use super::super::people::{doctor, of_patient};
use super::{Piece, Provider, collect_events, finish, person_message};
use crate::WARDGATE;

/// Texts from the message, the arguments, the tool result and the answer.
const CONTENTS: [&str; 4] = ["kiwiquestion", "NUGWI", "Hypertension", "kiwianswer"];

// Two threads are needed because the collector must respond while this test waits for the process to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_are_in_traces_only_of_who_asks_for_them_and_in_no_log() {
    let call = Piece::Call("get_patient_records", of_patient("NUGWI"));
    let asked_for = ("WARDGATE_AGENT__TELEMETRY__CONTENTS", "true");
    for setting in [None, Some(asked_for)] {
        let provider = Provider::start().await;
        provider.plays(vec![vec![call.clone()], vec![Piece::Text("kiwianswer")]]);
        let (url, traces) = collector().await;
        let mut environment = vec![
            ("LLM_BASE_URL", provider.url.as_str()),
            ("WARDGATE_TELEMETRY__LOG", "debug"),
            ("WARDGATE_TELEMETRY__OTLP_ENDPOINT", url.as_str()),
        ];
        environment.extend(setting);
        let mut app = TestApp::start_with(WARDGATE, &environment);
        let token = doctor(&app);
        let events = collect_events(&app, &token, &person_message("kiwiquestion")).await;
        assert_eq!(finish(&events), "stop");
        assert_eq!(app.process.terminate().code(), Some(0));

        let traces = traces.lock().unwrap().clone();
        let (traces, log) = (String::from_utf8_lossy(&traces), app.process.log());
        assert!(traces.contains("gen_ai.request.model") && log.contains("DEBUG"));
        for text in CONTENTS {
            assert_eq!(traces.contains(text), setting.is_some(), "{text} in traces");
            assert!(!log.contains(text), "{text} in the log");
        }
        let form = json!({ "type": "text", "content": "kiwiquestion" }).to_string();
        assert_eq!(traces.contains(&form), setting.is_some());
        let signature = token.rsplit('.').next().unwrap();
        assert!(!traces.contains(signature));
    }
}
