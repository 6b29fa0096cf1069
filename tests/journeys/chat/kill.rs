//! A test that a turn survives the death of any service at any moment.
//!
//! ```text
//!   events       token │ tool_call │ tool_result │ tool_call │ tool_result │ token │ token │ usage │ done
//!   boundaries 0       1           2             3           4             5       6       7       8
//! ```
//!
//! There is a turn for each service and each boundary: when the client has the events before the boundary, the service
//! is killed and restarted, and the client repeats its message until the answer is complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wardgate_testkit::{SeparateProcesses, System, WardgateProcess, until};

use super::super::extra_tools::{Counter, LOOK_OFTEN};
use super::super::people::{doctor, of_patient};
use super::provider::{Piece, Provider, ScriptPosition};
use super::talk::{PersonMessage, finish, of_type, send_message, text};
use super::{context, roles};
use crate::{REPOSITORY, WARDGATE};

const SERVICES: [&str; 6] = [
    "policy",
    "tool-runner",
    "audit",
    "memory",
    "gateway",
    "agent",
];

/// The positions at which the model waits while the service is down, so that exactly the events at the boundary are lost.
const BOUNDARIES: [Option<ScriptPosition>; 9] = [
    Some((0, 0)),
    Some((0, 1)),
    Some((1, 0)),
    Some((1, 0)),
    Some((2, 0)),
    Some((2, 0)),
    Some((2, 1)),
    Some((2, 2)),
    None,
];

/// The boundaries after which the tools run, first the one that writes.
const CALLS: [usize; 2] = [2, 4];

const ANSWER: &str = "I note it.\nIt is noted.\nShe has hypertension.";

/// A `wardgate agent` process beside the other services.
struct Agent {
    config: PathBuf,
    process: WardgateProcess,
}

impl Agent {
    fn start(system: &SeparateProcesses, provider: &Provider) -> Self {
        let data = system.data_dir();
        let assistants = json!({
            "providers": { "scripted": { "type": "openai", "base_url": provider.url } },
            "assistants": [{
                "name": "clinic",
                "provider": "scripted",
                "model": "scripted",
                "prompts": { "default": "en", "en": "Answer." },
            }],
        });
        std::fs::write(data.join("assistants.yaml"), assistants.to_string()).unwrap();
        let agent = json!({ "agent": {
            "listen": "127.0.0.1:0",
            "assistants": "assistants.yaml",
            "approval_key_file": "keys/approval.key",
            "auth": { "issuers": [{
                "issuer": "https://issuer.wardgate.internal",
                "audience": "wardgate",
                "jwks": { "file": "keys/jwks.json" },
            }]},
            "links": { "gateway": system.client().base() },
        }});
        let config = data.join("agent.yaml");
        std::fs::write(&config, agent.to_string()).unwrap();
        let process = Self::run(&config);
        Self { config, process }
    }

    fn run(config: &Path) -> WardgateProcess {
        let config = config.display().to_string();
        WardgateProcess::start(WARDGATE.as_ref(), &["agent", "--config", &config], &[])
    }

    fn restart(&mut self) {
        self.process.kill();
        self.process = Self::run(&self.config);
    }

    fn base(&self) -> &str {
        let url = self.process.ready_line().split_whitespace().nth(1);
        url.and_then(|url| url.strip_suffix("/api/chat/message/"))
            .unwrap()
    }
}

/// The whole system, with each service in its own process, and a client.
struct Ward {
    system: SeparateProcesses,
    agent: Agent,
    provider: Provider,
    counter: Counter,
    token: String,
    /// The results of calls that were refused before they ran, although no service died within them.
    refused: Vec<String>,
}

impl Ward {
    async fn start() -> Self {
        let system =
            SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &[LOOK_OFTEN]).await;
        let counter = Counter::add_to(&system).await;
        let provider = Provider::start().await;
        Self {
            agent: Agent::start(&system, &provider),
            token: doctor(&system),
            system,
            provider,
            counter,
            refused: Vec::new(),
        }
    }

    /// Kills the service with SIGKILL and starts a new process.
    async fn replace(&mut self, service: &str) {
        let system = &mut self.system;
        match service {
            "agent" => return tokio::task::block_in_place(|| self.agent.restart()),
            // The gateway must have noticed that the service is down, or it could mistake the end of the old process
            // for that of the new one.
            "policy" => system.policy.kill(),
            "tool-runner" => system.tool_runner.kill(),
            "audit" => system.audit.kill(),
            // The gateway responds before it knows the tools.
            _ => {
                tokio::task::block_in_place(|| system.restart(service));
                return system.until_ready(true).await;
            }
        }
        system.until_part_is_away(service).await;
        tokio::task::block_in_place(|| system.restart(service));
        system.until_ready(true).await;
    }

    /// Returns how often the tool wrote `note`.
    async fn count_notes(&mut self, note: &str) -> usize {
        let notes = self.counter.notes().await;
        notes.iter().filter(|written| *written == note).count()
    }

    /// Runs one turn, in which `service` is killed at `boundary`.
    async fn survives(&mut self, service: &str, boundary: usize) {
        let note = format!("{service}-{boundary}");
        let message = PersonMessage {
            conversation: format!("visit-{note}"),
            id: format!("question-{note}"),
            text: "Note that I was here, and tell me what she has.".to_owned(),
        };
        self.provider.plays(vec![
            vec![
                Piece::Text("I note it.\n"),
                Piece::Call("count_up", json!({ "note": note })),
            ],
            vec![Piece::Call("get_medical_records", of_patient("NUGWI"))],
            vec![
                Piece::Text("It is noted.\n"),
                Piece::Text("She has hypertension."),
            ],
        ]);
        self.provider.hold_responses(BOUNDARIES[boundary]);
        let asked = self.provider.requests().len();
        let mut acknowledged = BTreeMap::new();
        let first = send_message(self.agent.base(), &self.token, &message).await;
        let mut first = first.expect("everything runs");
        if boundary == 0 {
            self.provider.wait_for_request(asked).await;
        }
        while first.seen.len() < boundary {
            assert!(first.next().await.is_some(), "{note}: {:?}", first.seen);
        }
        self.replace(service).await;
        self.provider.hold_responses(None);
        let first = first.rest().await;
        acknowledge(&mut acknowledged, &first);

        // The message is sent again at least once, even if the answer had arrived.
        let events = until("the answer is whole", async || {
            let events = send_message(self.agent.base(), &self.token, &message)
                .await
                .ok()?;
            let events = events.rest().await;
            acknowledge(&mut acknowledged, &events);
            // While the memory service cannot reach the policy service, it withholds the results of tools.
            let is_whole = finish(&events) == "stop" && !text(&events).contains("[withheld");
            is_whole.then_some(events)
        })
        .await;
        assert_eq!(text(&events), ANSWER, "{note}");
        self.is_kept(&message, boundary, &note, &events, &acknowledged)
            .await;
    }

    /// Checks that the conversation contains the whole turn once, and that its tools ran once.
    async fn is_kept(
        &mut self,
        message: &PersonMessage,
        boundary: usize,
        note: &str,
        events: &[Value],
        acknowledged: &BTreeMap<String, Value>,
    ) {
        let kept = context(&self.system, &self.token, &message.conversation).await;
        let written = self.count_notes(note).await;
        let mut expected = vec!["user"];
        for (result, dies_with) in of_type(events, "tool_result").into_iter().zip(CALLS) {
            expected.push("assistant");
            let is_kept = kept
                .iter()
                .any(|it| it["tool_call_id"] == result["call_id"]);
            // A failed call may be stored as well, as a failure.
            if is_kept {
                expected.push("tool");
            }
            // A result can be lost only if a service dies within a call. A slow disk may refuse a call before it runs.
            let is_result = result["success"] == true;
            let is_refused = result["error"]
                .as_str()
                .is_some_and(|error| error.ends_with("nothing was run"));
            assert!(
                is_kept && (is_result || is_refused) || boundary == dies_with,
                "{note}: {result}"
            );
            if is_refused && boundary != dies_with {
                self.refused.push(result.to_string());
            }
            if dies_with == CALLS[0] {
                assert!(
                    written == 1 || !is_result && written == 0,
                    "{note}: {written}"
                );
            }
        }
        expected.push("assistant");
        assert_eq!(roles(&kept), expected, "{note}");
        assert!(kept.iter().all(|it| it["turn_id"] == message.id.as_str()));
        for (call, data) in acknowledged {
            let result = kept.iter().find(|it| it["tool_call_id"] == call.as_str());
            let result = result.unwrap_or_else(|| panic!("{note}: {call} is lost: {kept:?}"));
            let content = result["content"].as_str().unwrap();
            let content: Value = serde_json::from_str(content).unwrap();
            assert_eq!(&content["data"], data, "{note}: {call}");
        }
    }
}

/// Collects the results that the client received, and checks that they are the same each time.
fn acknowledge(results: &mut BTreeMap<String, Value>, events: &[Value]) {
    for result in of_type(events, "tool_result") {
        if result["success"] == true {
            let call = result["call_id"].as_str().unwrap().to_owned();
            let data = result["data"].clone();
            let before = results.insert(call, data.clone());
            assert!(before.is_none_or(|before| before == data), "{result}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_kill_9_of_every_service_between_any_two_events() {
    let mut ward = Ward::start().await;
    for service in SERVICES {
        for boundary in 0..BOUNDARIES.len() {
            ward.survives(service, boundary).await;
        }
    }
    // Of 108 calls.
    assert!(ward.refused.len() < 6, "{:#?}", ward.refused);
}
