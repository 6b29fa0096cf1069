//! Tests of notifications: clients of both eras are notified of changes to their own conversations, whichever replica
//! made the change.

use serde_json::{Value, json};
use wardgate_testkit::{EventStreamClient, SeparateProcesses, System, TestApp};

use super::people::{doctor, nurse};
use super::postgres::Database;
use crate::{REPOSITORY, WARDGATE};

const CHAT: &str = "chat_123456";
const URI: &str = "memory://conversation/chat_123456";

const LIST: &str = "notifications/resources/list_changed";
const UPDATED: &str = "notifications/resources/updated";

/// Opens a `subscriptions/listen` stream for the list and for one conversation.
async fn listen_modern(system: &impl System, token: &str) -> EventStreamClient {
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
    let mut stream = open_stream(request, token).await;
    let acknowledged = stream.next_message().await.unwrap();
    let accepted = json!({ "resourcesListChanged": true, "resourceSubscriptions": [URI] });
    assert_eq!(acknowledged["params"]["notifications"], accepted);
    stream
}

/// Opens the GET stream of an older version.
async fn listen_legacy(system: &impl System, token: &str) -> EventStreamClient {
    let request = reqwest::Client::new()
        .get(format!("{}/mcp", system.client().base()))
        .header("mcp-protocol-version", "2025-11-25");
    open_stream(request, token).await
}

pub(super) async fn open_stream(
    request: reqwest::RequestBuilder,
    token: &str,
) -> EventStreamClient {
    let request = request
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream");
    EventStreamClient::open(request).await
}

/// Checks that the next message is this notification.
async fn check_next(stream: &mut EventStreamClient, method: &str) {
    let message = stream.next_message().await.unwrap();
    assert_eq!(message["method"], method, "{message}");
    if method == UPDATED {
        assert_eq!(message["params"]["uri"], URI, "{message}");
    }
}

async fn send_request(system: &impl System, token: &str, method: &str, params: Value) {
    let client = system.client();
    let reply = client.legacy(token, "2025-11-25", method, params).await;
    assert!(reply.json()["result"].is_object(), "{}", reply.body);
}

async fn create(system: &impl System, token: &str, id: &str) {
    let params = json!({ "conversation_id": id });
    send_request(system, token, "memory/get_or_create", params).await;
}

async fn add(system: &impl System, token: &str) {
    let params = json!({ "conversation_id": CHAT, "role": "user", "content": "hello" });
    send_request(system, token, "memory/add_message", params).await;
}

/// Checks that clients of `near` are notified of changes made on `far`, and not of other people's conversations.
async fn hear_of_it(near: &impl System, far: &impl System) {
    let token = doctor(near);
    let (doctor, nurse) = (doctor(far), nurse(far));
    let mut streams = [
        listen_modern(near, &token).await,
        listen_legacy(near, &token).await,
    ];
    let mut nurses = listen_legacy(near, &self::nurse(near)).await;
    let uri = json!({ "uri": URI });
    send_request(near, &token, "resources/subscribe", uri.clone()).await;
    send_request(near, &self::nurse(near), "resources/subscribe", uri.clone()).await;
    create(far, &doctor, CHAT).await;
    for stream in &mut streams {
        check_next(stream, LIST).await;
    }
    add(far, &doctor).await;
    for stream in &mut streams {
        check_next(stream, UPDATED).await;
    }

    send_request(far, &doctor, "resources/unsubscribe", uri).await;
    add(far, &doctor).await;
    create(far, &doctor, "another").await;
    let [modern, older] = &mut streams;
    check_next(older, LIST).await;
    for _ in 0..2 {
        let heard = modern.next_message().await.unwrap();
        assert!(
            heard["method"] == UPDATED || heard["method"] == LIST,
            "{heard}"
        );
    }
    // The nurse received no notification of this.
    create(far, &nurse, CHAT).await;
    check_next(&mut nurses, LIST).await;
    add(far, &nurse).await;
    check_next(&mut nurses, UPDATED).await;
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
    let mut streams = [
        listen_modern(&system, &token).await,
        listen_legacy(&system, &token).await,
    ];
    create(&system, &token, CHAT).await;
    for stream in &mut streams {
        check_next(stream, LIST).await;
    }
    send_request(
        &system,
        &token,
        "resources/subscribe",
        json!({ "uri": URI }),
    )
    .await;
    system.memory.kill();
    system.restart("memory");
    for stream in &mut streams {
        check_next(stream, LIST).await;
        check_next(stream, UPDATED).await;
    }
}

#[tokio::test]
async fn what_another_replica_changes_is_heard_of_too() {
    let Some(database) = Database::create().await else {
        return;
    };
    let store = ("WARDGATE_MEMORY__STORE", database.url.as_str());
    let near = TestApp::start_with(WARDGATE, &[store]);
    let far = near.replica();
    hear_of_it(&near, &far).await;
    drop((near, far));
    database.remove().await;
}
