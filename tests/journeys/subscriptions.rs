//! Tests of notifications: clients of both eras are notified of changes to their own conversations, whichever replica
//! made the change.

use std::time::Duration;

use serde_json::{Value, json};
use wardgate_testkit::{SeparateProcesses, System, TestApp};

use super::people::{doctor, nurse};
use super::postgres::Database;
use crate::{REPOSITORY, WARDGATE};

const CHAT: &str = "chat_123456";
const URI: &str = "memory://conversation/chat_123456";
const PATIENCE: Duration = Duration::from_mins(1);

const LIST: &str = "notifications/resources/list_changed";
const UPDATED: &str = "notifications/resources/updated";

/// One open stream.
pub(super) struct Ear {
    response: reqwest::Response,
    read: String,
}

impl Ear {
    /// Opens a `subscriptions/listen` stream for the list and for one conversation.
    async fn modern(system: &impl System, token: &str) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": { "resourcesListChanged": true, "resourceSubscriptions": [URI] },
        }});
        let request = reqwest::Client::new()
            .post(format!("{}/mcp", system.client().base()))
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "subscriptions/listen")
            .body(body.to_string());
        let mut ear = Self::on(request, token).await;
        let acknowledged = ear.hears().await;
        let accepted = json!({ "resourcesListChanged": true, "resourceSubscriptions": [URI] });
        assert_eq!(acknowledged["params"]["notifications"], accepted);
        ear
    }

    /// Opens the GET stream of an older version.
    async fn older(system: &impl System, token: &str) -> Self {
        let request = reqwest::Client::new()
            .get(format!("{}/mcp", system.client().base()))
            .header("mcp-protocol-version", "2025-11-25");
        Self::on(request, token).await
    }

    pub(super) async fn on(request: reqwest::RequestBuilder, token: &str) -> Self {
        let request = request
            .bearer_auth(token)
            .header("accept", "application/json, text/event-stream");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            response,
            read: String::new(),
        }
    }

    pub(super) async fn hears(&mut self) -> Value {
        let heard = tokio::time::timeout(PATIENCE, self.next_message());
        heard.await.unwrap()
    }

    async fn next_message(&mut self) -> Value {
        loop {
            let event = self.next_event().await;
            if let Some(data) = event.strip_prefix("event: message\ndata: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Returns the next event as it was sent.
    pub(super) async fn next_event(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let event = event.to_owned();
                self.read = String::from(rest);
                return event;
            }
            let chunk = self.response.chunk().await.unwrap().unwrap();
            self.read += std::str::from_utf8(&chunk).unwrap();
        }
    }

    /// Checks that the next message is this notification.
    async fn hears_that(&mut self, method: &str) {
        let message = self.hears().await;
        assert_eq!(message["method"], method, "{message}");
        if method == UPDATED {
            assert_eq!(message["params"]["uri"], URI, "{message}");
        }
    }
}

async fn ask(system: &impl System, token: &str, method: &str, params: Value) {
    let client = system.client();
    let reply = client.legacy(token, "2025-11-25", method, params).await;
    assert!(reply.json()["result"].is_object(), "{}", reply.body);
}

async fn create(system: &impl System, token: &str, id: &str) {
    let params = json!({ "conversation_id": id });
    ask(system, token, "memory/get_or_create", params).await;
}

async fn add(system: &impl System, token: &str) {
    let params = json!({ "conversation_id": CHAT, "role": "user", "content": "hello" });
    ask(system, token, "memory/add_message", params).await;
}

/// Checks that clients of `near` are notified of changes made on `far`, and not of other people's conversations.
async fn hear_of_it(near: &impl System, far: &impl System) {
    let token = doctor(near);
    let (doctor, nurse) = (doctor(far), nurse(far));
    let mut ears = [
        Ear::modern(near, &token).await,
        Ear::older(near, &token).await,
    ];
    let mut nurses = Ear::older(near, &self::nurse(near)).await;
    let uri = json!({ "uri": URI });
    ask(near, &token, "resources/subscribe", uri.clone()).await;
    ask(near, &self::nurse(near), "resources/subscribe", uri.clone()).await;
    create(far, &doctor, CHAT).await;
    for ear in &mut ears {
        ear.hears_that(LIST).await;
    }
    add(far, &doctor).await;
    for ear in &mut ears {
        ear.hears_that(UPDATED).await;
    }

    ask(far, &doctor, "resources/unsubscribe", uri).await;
    add(far, &doctor).await;
    create(far, &doctor, "another").await;
    let [modern, older] = &mut ears;
    older.hears_that(LIST).await;
    for _ in 0..2 {
        let heard = modern.hears().await;
        assert!(
            heard["method"] == UPDATED || heard["method"] == LIST,
            "{heard}"
        );
    }
    // The nurse received no notification of this.
    create(far, &nurse, CHAT).await;
    nurses.hears_that(LIST).await;
    add(far, &nurse).await;
    nurses.hears_that(UPDATED).await;
}

#[tokio::test]
async fn a_client_hears_of_its_own_conversations_and_of_nobody_elses() {
    let app = TestApp::start(WARDGATE);
    hear_of_it(&app, &app).await;
}

#[tokio::test]
async fn what_went_unheard_while_the_memory_was_away_counts_as_changed() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let token = doctor(&system);
    let mut ears = [
        Ear::modern(&system, &token).await,
        Ear::older(&system, &token).await,
    ];
    create(&system, &token, CHAT).await;
    for ear in &mut ears {
        ear.hears_that(LIST).await;
    }
    ask(
        &system,
        &token,
        "resources/subscribe",
        json!({ "uri": URI }),
    )
    .await;
    system.memory.kill();
    system.restart("memory");
    for ear in &mut ears {
        ear.hears_that(LIST).await;
        ear.hears_that(UPDATED).await;
    }
}

#[tokio::test]
async fn what_another_replica_changes_is_heard_of_too() {
    let Some(database) = Database::make().await else {
        return;
    };
    let store = ("WARDGATE_MEMORY__STORE", database.url.as_str());
    let near = TestApp::start_with(WARDGATE, &[store]);
    let far = near.replica();
    hear_of_it(&near, &far).await;
    drop((near, far));
    database.remove().await;
}
