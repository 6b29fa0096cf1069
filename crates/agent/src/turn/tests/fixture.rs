//! A test fixture: an assistant with fake services.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use wardgate_testkit::TestClock;

use crate::agent::{Agent, EventStream};
use crate::clients::{GatewayClient, ModelClient};
use crate::request::{ApprovalDecision, BearerToken, ChatRequest};
use crate::testing::{FakeGateway, ScriptedModel, caller};
use crate::{ApprovalKey, Config};

pub(super) struct Fixture {
    pub(super) agent: Agent,
    pub(super) model: Arc<ScriptedModel>,
    pub(super) gateway: Arc<FakeGateway>,
    pub(super) clock: TestClock,
    _files: tempfile::TempDir,
}

/// The additional YAML of an assistant without special settings.
pub(super) const PLAIN: &str = "";

impl Fixture {
    /// Creates the fixture. `more` is appended to the assistant's YAML.
    pub(super) async fn new(model: ScriptedModel, gateway: FakeGateway, more: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("assistants.yaml");
        let yaml = format!(
            "providers:\n  scripted: {{}}\nassistants:\n  - name: helper\n    provider: scripted\n    model: m\n    prompts: {{ en: \"You help {{{{ user.subject }}}}.\" }}\n{more}"
        );
        std::fs::write(&path, yaml).unwrap();
        let config = Config {
            assistants: Some(path),
            ..Config::default()
        };
        let (model, gateway) = (Arc::new(model), Arc::new(gateway));
        let clock = TestClock::at(1_762_869_000);
        let (client, fake) = (Arc::clone(&model), Arc::clone(&gateway));
        let agent = Agent::with(
            &config,
            Arc::new(move |_, _| Ok(Arc::clone(&client) as Arc<dyn ModelClient>)),
            Arc::new(move |_| Arc::clone(&fake) as Arc<dyn GatewayClient>),
            ApprovalKey::from_bytes(&[7; 32]),
            clock.ambient(),
        )
        .await
        .unwrap();
        Self {
            agent,
            model,
            gateway,
            clock,
            _files: files,
        }
    }

    pub(super) fn stream(&self, request: ChatRequest) -> EventStream {
        let caller = caller("dr.yenji", &["Doctor"]);
        self.agent.chat(caller, BearerToken::new("t"), request)
    }

    /// Sends a message as `m` in conversation `c` and returns all events.
    pub(super) async fn says(&self, message: &str) -> Events {
        self.hears(request_with_id(message)).await
    }

    pub(super) async fn hears(&self, request: ChatRequest) -> Events {
        Events::from_stream(self.stream(request)).await
    }

    pub(super) async fn decides(&self, id: &str, decision: ApprovalDecision) -> Events {
        self.decides_as("dr.yenji", id, decision).await
    }

    pub(super) async fn decides_as(
        &self,
        subject: &str,
        id: &str,
        decision: ApprovalDecision,
    ) -> Events {
        let (caller, token) = (caller(subject, &["Doctor"]), BearerToken::new("t"));
        Events::from_stream(self.agent.decide_approval(caller, token, id, decision)).await
    }
}

/// Returns a request with a message id, which can be sent again.
pub(super) fn request_with_id(message: &str) -> ChatRequest {
    ChatRequest {
        message: message.to_owned(),
        conversation_id: Some("c".to_owned()),
        message_id: Some("m".to_owned()),
        ..ChatRequest::default()
    }
}

/// All events of one stream as a client reads them.
#[derive(Debug)]
pub(super) struct Events(pub(super) Vec<Value>);

impl Events {
    pub(super) async fn from_stream(stream: EventStream) -> Self {
        let events: Vec<Value> = stream
            .map(|event| serde_json::to_value(event).unwrap())
            .collect()
            .await;
        let events = Self(events);
        assert_eq!(events.last()["type"], "done", "{events:?}");
        let done = events.kinds().iter().filter(|kind| *kind == "done").count();
        assert_eq!(done, 1, "{events:?}");
        let ids: Vec<u64> = events
            .0
            .iter()
            .map(|it| it["id"].as_u64().unwrap())
            .collect();
        assert!(ids.is_sorted(), "{ids:?}");
        events
    }

    pub(super) fn last(&self) -> &Value {
        self.0.last().unwrap()
    }

    pub(super) fn kinds(&self) -> Vec<String> {
        let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
        self.0.iter().map(kind).collect()
    }

    pub(super) fn events_of_kind(&self, kind: &str) -> Vec<&Value> {
        self.0
            .iter()
            .filter(|event| event["type"] == kind)
            .collect()
    }

    pub(super) fn only_event(&self, kind: &str) -> &Value {
        let all = self.events_of_kind(kind);
        assert_eq!(all.len(), 1, "{kind} in {self:?}");
        all[0]
    }

    /// Returns the text that the user reads.
    pub(super) fn text(&self) -> String {
        let tokens = self.events_of_kind("token");
        tokens
            .iter()
            .map(|event| event["text"].as_str().unwrap())
            .collect()
    }

    /// Returns the events without the parts that differ between streams of the same turn.
    pub(super) fn timeless(&self) -> Vec<Value> {
        let timeless = |event: &Value| {
            let mut event = event.clone();
            event["timestamp"] = json!(null);
            event
        };
        let kept = |event: &&Value| event["type"] != "usage" && event["type"] != "token";
        self.0.iter().filter(kept).map(timeless).collect()
    }
}
