//! Clients that are notified of changed conversations.

use std::time::Duration;

use serde_json::{Value, json};
use wardgate_proto::common::v1::ErrorReason;

use crate::listen::{SUBSCRIPTION, get, subscribe};
use crate::memory::{add, create, create_request, create_request_as, modern};
use crate::sessions::begin;
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World, definition};
use wardgate_testkit::{EventStreamClient, listed_tool};

const METHODS: [&str; 2] = ["resources/subscribe", "resources/unsubscribe"];

fn uri(id: &str) -> String {
    format!("memory://conversation/{id}")
}

fn list_changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/resources/list_changed" })
}

pub(crate) fn updated_notification(uri: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri },
    })
}

pub(crate) fn of_subscription(mut message: Value) -> Value {
    message["params"]["_meta"] = json!({ SUBSCRIPTION: 7 });
    message
}

async fn listens(world: &World, notifications: Value) -> (EventStreamClient, Value) {
    let params = format!(r#""notifications":{notifications}"#);
    let mut ear = EventStreamClient::open(subscribe(world, &params)).await;
    let acknowledged = ear.next_message().await.unwrap();
    (ear, acknowledged["params"]["notifications"].clone())
}

/// Sends an older client's request about `id`, in `session` unless that is empty.
async fn older(world: &World, method: &str, session: &str, id: &str) {
    let mut request = create_request(world, LEGACY, method, &json!({ "uri": uri(id) }));
    if !session.is_empty() {
        request = request.header("mcp-session-id", session);
    }
    let reply = Reply::to(request).await;
    assert_eq!(
        (reply.status, reply.at("/result")),
        (200, json!({})),
        "{reply:?}"
    );
}

#[tokio::test]
async fn a_modern_client_hears_of_its_list_and_of_the_conversations_it_named() {
    let world = World::start().await;
    let wanted = json!({
        "resourcesListChanged": true,
        "promptsListChanged": true,
        "resourceSubscriptions": [
            uri("a%2fb"), uri("nobody's"), "file:///etc/passwd", uri("a%2Fb?after=3"), uri(""),
        ],
    });
    let (mut ear, accepted) = listens(&world, wanted).await;
    assert_eq!(
        accepted,
        json!({
            "resourcesListChanged": true,
            "resourceSubscriptions": [uri("a%2fb"), uri("nobody's")],
        })
    );
    create(&world, "a/b").await;
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(list_changed()))
    );
    add(&world, "a/b", "user", "hello").await;
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(&uri("a%2fb"))))
    );
    let erased = modern(&world, "memory/delete", json!({ "conversation_id": "a/b" })).await;
    assert_eq!(erased.at("/result/status"), "success");
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(list_changed()))
    );
}

#[tokio::test]
async fn nobody_hears_of_what_is_somebody_elses_or_was_not_asked_for() {
    let world = World::start().await;
    let wanted = json!({ "resourceSubscriptions": [uri("a")] });
    let (mut ear, accepted) = listens(&world, wanted.clone()).await;
    assert_eq!(accepted, wanted);
    let mut older_ear = EventStreamClient::open(get(&world, "/mcp", Some(LEGACY))).await;
    older(&world, METHODS[0], "", "a").await;
    let mallory = world.issuer.token("mallory", &["Doctor"]);
    for (method, params) in [
        ("memory/get_or_create", json!({ "conversation_id": "a" })),
        (
            "memory/add_message",
            json!({ "conversation_id": "a", "role": "user", "content": "x" }),
        ),
    ] {
        let reply = Reply::to(create_request_as(&world, &mallory, MODERN, method, &params)).await;
        assert_eq!(reply.code(), 0, "{reply:?}");
    }
    create(&world, "other").await;
    add(&world, "other", "user", "hello").await;
    assert_eq!(older_ear.next_message().await, Some(list_changed()));
    create(&world, "a").await;
    assert_eq!(older_ear.next_message().await, Some(list_changed()));
    add(&world, "a", "user", "hello").await;
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(&uri("a"))))
    );
    assert_eq!(
        older_ear.next_message().await,
        Some(updated_notification(&uri("a")))
    );
}

#[tokio::test]
async fn an_older_client_subscribes_by_requests_of_their_own() {
    let world = World::start().await;
    create(&world, "a b").await;
    for version in [LEGACY, OLDEST] {
        let mut ear = EventStreamClient::open(get(&world, "/mcp", Some(version))).await;
        older(&world, METHODS[0], "", "a%20b").await;
        add(&world, "a b", "user", "hello").await;
        assert_eq!(
            ear.next_message().await,
            Some(updated_notification(&uri("a%20b"))),
            "{version}"
        );
        // Another stream of the same caller, perhaps at another replica, has the same subscriptions.
        let mut later = EventStreamClient::open(get(&world, "/mcp", Some(version))).await;
        add(&world, "a b", "user", "hello again").await;
        assert_eq!(
            later.next_message().await,
            Some(updated_notification(&uri("a%20b")))
        );
        assert_eq!(
            ear.next_message().await,
            Some(updated_notification(&uri("a%20b")))
        );

        older(&world, METHODS[1], "", "a%20b").await;
        add(&world, "a b", "user", "unheard").await;
        create(&world, version).await;
        assert_eq!(ear.next_message().await, Some(list_changed()));
    }
}

#[tokio::test]
async fn each_session_has_its_own_subscriptions() {
    let world = World::start().await;
    for id in ["a", "b"] {
        create(&world, id).await;
    }
    let in_session = |id: &str| get(&world, "/mcp", Some(LEGACY)).header("mcp-session-id", id);
    let (first, second) = (begin(&world, LEGACY).await, begin(&world, LEGACY).await);
    let mut one = EventStreamClient::open(in_session(&first)).await;
    let mut two = EventStreamClient::open(in_session(&second)).await;
    older(&world, METHODS[0], &first, "a").await;
    older(&world, METHODS[0], &second, "b").await;
    add(&world, "a", "user", "hello").await;
    assert_eq!(
        one.next_message().await,
        Some(updated_notification(&uri("a")))
    );
    add(&world, "b", "user", "hello").await;
    assert_eq!(
        two.next_message().await,
        Some(updated_notification(&uri("b")))
    );
}

#[tokio::test]
async fn what_went_unheard_while_the_memory_was_away_counts_as_changed() {
    let world = World::start().await;
    let wanted = json!({ "resourceSubscriptions": [uri("a")], "toolsListChanged": true });
    let (mut ear, _) = listens(&world, wanted).await;
    older(&world, METHODS[0], "", "a").await;
    // The stream cannot read its subscriptions, and tries again.
    world.memory.fails([ErrorReason::Unavailable]);
    let mut older_ear = EventStreamClient::open(get(&world, "/mcp", Some(LEGACY))).await;
    world
        .memory
        .asked
        .until(|asked| asked.ends_with(&["list_subscriptions"; 2]))
        .await;

    world.memory.hangs_up();
    world.memory.watches.reaches(2).await;
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(&uri("a"))))
    );
    assert_eq!(older_ear.next_message().await, Some(list_changed()));
    assert_eq!(
        older_ear.next_message().await,
        Some(updated_notification(&uri("a")))
    );
    // Changes of tools are reported during all of this.
    world
        .tool_runner
        .configure(vec![listed_tool("new", &definition())]);
    let tools = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(ear.next_message().await, Some(of_subscription(tools)));
}

#[tokio::test]
async fn to_subscribe_releases_nothing_and_is_on_no_record() {
    let world = World::start().await;
    let before = world.audit.attempts.count();
    for method in METHODS {
        older(&world, method, "", "no such").await;
    }
    let wanted = json!({ "resourceSubscriptions": [uri("no such")] });
    listens(&world, wanted).await;
    assert_eq!(world.audit.attempts.count(), before);
}

#[tokio::test]
async fn what_cannot_be_subscribed_to_is_refused_by_name() {
    let world = World::start().await;
    for method in METHODS {
        for params in [
            json!({}),
            json!({ "uri": 7 }),
            json!({ "uri": "file:///etc/passwd" }),
            json!({ "uri": uri("a?after=3") }),
        ] {
            let reply = Reply::to(create_request(&world, LEGACY, method, &params)).await;
            assert_eq!((reply.status, reply.code()), (200, -32602), "{reply:?}");
            assert!(reply.text.contains("`params.uri`"), "{reply:?}");
        }
        // The modern version has streams instead of these requests, and the plain endpoint has no streams.
        let reply = modern(&world, method, json!({ "uri": uri("a") })).await;
        assert_eq!((reply.status, reply.code()), (404, -32601), "{reply:?}");
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "uri": uri("a") } });
        let plain = world
            .http
            .post(world.url("/message"))
            .bearer_auth(&world.token);
        let plain = plain
            .header("content-type", "application/json")
            .body(body.to_string());
        assert_eq!(Reply::to(plain).await.code(), -32601);

        world
            .memory
            .fails([ErrorReason::Conflict, ErrorReason::Unavailable]);
        for code in [-32602, -32603] {
            let params = json!({ "uri": uri("a") });
            let reply = Reply::to(create_request(&world, LEGACY, method, &params)).await;
            assert_eq!((reply.status, reply.code()), (200, code), "{reply:?}");
        }
    }
    let uris = vec![uri("a"); 1_001];
    let wanted = json!({ "resourceSubscriptions": uris });
    let params = format!(r#""notifications":{wanted}"#);
    let reply = Reply::to(subscribe(&world, &params)).await;
    assert_eq!(reply.code(), -32602);
    assert!(reply.text.contains("resourceSubscriptions"), "{reply:?}");
}

#[tokio::test]
async fn without_a_memory_service_nothing_is_promised() {
    let world = World::start_without_memory(json!({})).await;
    let wanted = json!({ "resourcesListChanged": true, "resourceSubscriptions": [uri("a")] });
    let (_, accepted) = listens(&world, wanted).await;
    assert_eq!(accepted, json!({}));
    for method in METHODS {
        let reply = Reply::to(create_request(
            &world,
            LEGACY,
            method,
            &json!({ "uri": uri("a") }),
        ))
        .await;
        assert_eq!((reply.status, reply.code()), (200, -32601), "{method}");
    }
    let mut ear = EventStreamClient::open(get(&world, "/mcp", Some(LEGACY))).await;
    let early = tokio::time::timeout(Duration::from_millis(100), ear.next_message()).await;
    assert!(early.is_err(), "{early:?}");
}
