//! HTTP+SSE (2024-11-05): a stream for answers, and an address for messages.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wardgate_domain::Status;

use crate::world::{Reply, World, definition};
use wardgate_testkit::{EventStreamClient, PATIENCE, RunBehavior, listed_tool, until_true};

/// A client with its stream.
pub(crate) struct Client {
    pub(crate) ear: EventStreamClient,
    endpoint: String,
}

impl Client {
    /// Opens a stream, and negotiates `version`.
    pub(crate) async fn connect(world: &World, version: &str) -> Self {
        Self::able(world, version, json!({})).await
    }

    /// Opens a stream for a client with these capabilities, and negotiates `version`.
    pub(crate) async fn able(world: &World, version: &str, capabilities: Value) -> Self {
        let mut client = Self::silent(world).await;
        let hello = json!({ "protocolVersion": version, "capabilities": capabilities });
        let answer = client.send_request(world, "initialize", &hello).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        client
    }

    /// Opens a stream, and sends nothing yet.
    async fn silent(world: &World) -> Self {
        let mut ear =
            EventStreamClient::open(world.http.get(world.url("/sse")).bearer_auth(&world.token))
                .await;
        let event = ear.next_event().await.unwrap();
        let endpoint = event.strip_prefix("event: endpoint\ndata: ").unwrap();
        assert!(endpoint.starts_with("/messages/?session_id="), "{endpoint}");
        Self {
            endpoint: endpoint.to_owned(),
            ear,
        }
    }

    fn post(&self, world: &World, message: &Value) -> RequestBuilder {
        self.post_as(world, &world.token, message)
    }

    fn post_as(&self, world: &World, token: &str, message: &Value) -> RequestBuilder {
        let request = world.http.post(world.url(&self.endpoint));
        let request = request.header("content-type", "application/json");
        request.bearer_auth(token).body(message.to_string())
    }

    /// Sends a message to `world`, which accepts it.
    pub(crate) async fn send_message(&self, world: &World, message: &Value) {
        let reply = Reply::to(self.post(world, message)).await;
        assert_eq!((reply.status, reply.text.as_str()), (202, ""), "{message}");
    }

    /// Sends a request, and returns the next message.
    pub(crate) async fn send_request(
        &mut self,
        world: &World,
        method: &str,
        params: &Value,
    ) -> Value {
        self.send_message(world, &request(7, method, params)).await;
        self.ear.next_message().await.unwrap()
    }

    async fn call(&mut self, world: &World, name: &str) -> Value {
        self.send_request(world, "tools/call", &json!({ "name": name }))
            .await
    }
}

pub(crate) fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn ping() -> Value {
    request(1, "ping", &json!({}))
}

#[tokio::test]
async fn the_first_version_is_spoken_over_a_stream_and_an_address() {
    let world = World::start().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.send_message(&world, &ready).await;
    let pong = client.send_request(&world, "ping", &json!({})).await;
    assert_eq!(pong, json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
    let listed = client.send_request(&world, "tools/list", &json!({})).await;
    let tool = listed["result"]["tools"][0].as_object().unwrap().clone();
    let members: Vec<&str> = tool.keys().map(String::as_str).collect();
    assert_eq!(members, ["name", "description", "inputSchema"]);
    let called = client.call(&world, "reads").await;
    assert_eq!(called["result"]["isError"], false);
    assert!(called["result"]["content"][0]["text"].is_string());
    for later in ["structuredContent", "resultType"] {
        assert!(called["result"].get(later).is_none(), "{later}");
    }
    assert_eq!(world.audit.outcome().await.call.protocol, "2024-11-05");
    for unknown in ["server/discover", "subscriptions/listen", "no/such"] {
        let answer = client.send_request(&world, unknown, &json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{unknown}");
    }
}

#[tokio::test]
async fn a_later_version_with_a_handshake_is_spoken_there_too() {
    let world = World::start().await;
    for (asked, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let mut client = Client::silent(&world).await;
        let hello = json!({ "protocolVersion": asked, "capabilities": {} });
        let answer = client.send_request(&world, "initialize", &hello).await;
        assert_eq!(answer["result"]["protocolVersion"], agreed, "{asked}");
        let called = client.call(&world, "reads").await;
        let structured = called["result"].get("structuredContent").is_some();
        assert_eq!(structured, agreed > "2025-03-26", "{asked}");
    }
    // Streamable HTTP does not support 2024-11-05.
    let hello = r#""protocolVersion":"2024-11-05","capabilities":{}"#;
    let answer = Reply::to(world.message("2025-11-25", "initialize", hello)).await;
    assert_eq!(answer.at("/result/protocolVersion"), "2025-11-25");
}

#[tokio::test]
async fn changes_and_answers_share_the_stream() {
    let world = World::start().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    world
        .tool_runner
        .configure(vec![listed_tool("new", &definition())]);
    let heard = client.ear.next_message().await.unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    let called = client.call(&world, "new").await;
    assert_eq!(called["result"]["isError"], false);
}

#[tokio::test]
async fn a_cancelled_call_is_ended_recorded_and_not_answered() {
    let world = World::start().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    world.tool_runner.next([RunBehavior::Hang]);
    let call = request(3, "tools/call", &json!({ "name": "writes" }));
    client.send_message(&world, &call).await;
    world.tool_runner.asked.reaches(1).await;
    // Another session of the same caller has no call with this id.
    let other = Client::connect(&world, "2024-11-05").await;
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 },
    });
    other.send_message(&world, &cancel).await;
    assert_eq!(
        client.send_request(&world, "ping", &json!({})).await["id"],
        7
    );
    assert_eq!(world.audit.outcomes.count(), 0);
    client.send_message(&world, &cancel).await;
    assert_eq!(world.audit.outcome().await.status, Status::Cancelled);
    assert_eq!(
        client.send_request(&world, "ping", &json!({})).await["id"],
        7
    );
}

#[tokio::test]
async fn a_call_whose_stream_is_lost_goes_on_and_is_recorded() {
    let world = World::start().await;
    let client = Client::connect(&world, "2024-11-05").await;
    let (release, held) = oneshot::channel();
    world.tool_runner.next([RunBehavior::Hold(held)]);
    let call = request(3, "tools/call", &json!({ "name": "reads" }));
    client.send_message(&world, &call).await;
    world.tool_runner.asked.reaches(1).await;
    let endpoint = client.endpoint.clone();
    drop(client.ear);
    until_true("the stream is gone", async || {
        let request = world.http.post(world.url(&endpoint));
        let request = request.header("content-type", "application/json");
        let request = request.bearer_auth(&world.token).body(ping().to_string());
        Reply::to(request).await.status == 404
    })
    .await;
    release.send(()).unwrap();
    assert_eq!(world.audit.outcome().await.status, Status::Ok);
}

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let world = World::start().await;
    let client = Client::connect(&world, "2024-11-05").await;
    let other = world.issuer.token("dr.other", &["Doctor"]);
    let reply = Reply::to(client.post_as(&world, &other, &ping())).await;
    assert_eq!(reply.status, 404);
    let reply = Reply::to(client.post_as(&world, "garbage", &ping())).await;
    assert_eq!(reply.status, 401);
    // The holder of a renewed token is the same caller.
    let renewed = world.issuer.token("dr.lee", &["Doctor", "Chief"]);
    let reply = Reply::to(client.post_as(&world, &renewed, &ping())).await;
    assert_eq!(reply.status, 202);
    for bent in [
        "",
        "?session_id=",
        "?session_id=AAAA",
        "?sessionId=1",
        "?session_id=1&session_id=2",
    ] {
        let request = world.http.post(world.url(&format!("/messages/{bent}")));
        let request = request.header("content-type", "application/json");
        let request = request.bearer_auth(&world.token).body(ping().to_string());
        let reply = Reply::to(request).await;
        assert_eq!(reply.status, 404, "{bent}");
        assert!(reply.text.contains("gateway.advertise"), "{}", reply.text);
    }
    let reply = Reply::to(world.http.get(world.url("/sse"))).await;
    assert_eq!(reply.status, 401);
}

#[tokio::test]
async fn each_path_has_its_method() {
    let world = World::start().await;
    for (method, path, allowed) in [
        ("POST", "/sse", "GET"),
        ("DELETE", "/sse", "GET"),
        ("GET", "/messages/", "POST"),
        ("PUT", "/messages", "POST"),
    ] {
        let request = world.http.request(method.parse().unwrap(), world.url(path));
        let request = request.header("content-type", "application/json");
        let reply = Reply::to(request.bearer_auth(&world.token)).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, allowed),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn what_nobody_can_read_is_refused_at_once_and_what_has_an_id_on_the_stream() {
    let world = World::start().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    for bad in ["{", r#"{"a":1,"a":2}"#] {
        let request = world.http.post(world.url(&client.endpoint));
        let request = request.header("content-type", "application/json");
        let reply = Reply::to(request.bearer_auth(&world.token).body(bad)).await;
        assert_eq!((reply.status, reply.code()), (400, -32700), "{bad}");
    }
    let answer = client.send_request(&world, "tools/call", &json!({})).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32602))
    );
}

#[tokio::test]
async fn a_gateway_that_stops_answers_what_is_under_way_and_then_ends_the_stream() {
    let world = World::start().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    let (release, held) = oneshot::channel();
    world.tool_runner.next([RunBehavior::Hold(held)]);
    let call = request(3, "tools/call", &json!({ "name": "reads" }));
    client.send_message(&world, &call).await;
    world.tool_runner.asked.reaches(1).await;
    let mut stopped = world.stop();
    let early = tokio::time::timeout(Duration::from_millis(150), &mut stopped).await;
    assert!(early.is_err(), "the gateway left a running call behind");
    release.send(()).unwrap();
    assert_eq!(client.ear.next_message().await.unwrap()["id"], 3);
    assert_eq!(client.ear.next_message().await, None);
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn streams_take_their_places_among_all_others() {
    let world = World::start_with(json!({ "limits": { "streams": 1 } })).await;
    let client = Client::silent(&world).await;
    let second = world.http.get(world.url("/sse")).bearer_auth(&world.token);
    assert_eq!(Reply::to(second).await.status, 429);
    drop(client);
    until_true("there is room", async || {
        let again = world.http.get(world.url("/sse")).bearer_auth(&world.token);
        again.send().await.unwrap().status() == 200
    })
    .await;
}

#[tokio::test]
async fn a_message_at_another_replica_is_handed_to_the_one_with_the_stream() {
    let world = World::start().await;
    let twin = world.twin().await;
    let mut client = Client::connect(&world, "2024-11-05").await;
    // The client posts its messages to the twin, with the token that it has for the first gateway.
    let post = |message: &Value| client.post_as(&twin, &world.token, message);
    let reply = Reply::to(post(&request(5, "tools/call", &json!({ "name": "reads" })))).await;
    assert_eq!((reply.status, reply.text.as_str()), (202, ""));
    assert_eq!(Reply::to(post(&json!([]))).await.status, 202);
    let bad = world.http.post(twin.url(&client.endpoint)).body("{");
    let bad = bad.bearer_auth(&world.token);
    let bad = Reply::to(bad.header("content-type", "application/json")).await;
    assert_eq!((bad.status, bad.code()), (400, -32700));
    let mut ids = vec![client.ear.next_message().await.unwrap()["id"].clone()];
    ids.push(client.ear.next_message().await.unwrap()["id"].clone());
    assert!(ids.contains(&json!(5)), "{ids:?}");
    assert_eq!(world.audit.outcome().await.call.client_ip, "127.0.0.1");
    assert_eq!(twin.tool_runner.asked.count(), 0);

    // A message that was relayed once is not relayed again.
    let marked = client.post_as(&twin, &world.token, &ping());
    let reply = Reply::to(marked.header("wardgate-relayed", "x")).await;
    assert_eq!(reply.status, 404);

    // The streams of a replica end when it stops.
    let gone = client
        .post_as(&twin, &world.token, &ping())
        .build()
        .unwrap();
    let stopped = world.stop();
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .unwrap()
        .unwrap();
    let reply = twin.http.execute(gone).await.unwrap();
    assert_eq!(reply.status(), 502);
}

#[tokio::test]
async fn without_an_advertised_address_a_strange_stream_is_unknown_and_the_setting_named() {
    let world = World::start_with(json!({ "advertise": null })).await;
    let twin = world.twin().await;
    let client = Client::connect(&world, "2024-11-05").await;
    let reply = Reply::to(client.post_as(&twin, &world.token, &ping())).await;
    assert_eq!(reply.status, 404);
    assert!(reply.text.contains("gateway.advertise"), "{}", reply.text);
}

#[tokio::test]
async fn behind_a_path_the_address_is_below_it() {
    let settings = json!({ "public_url": "https://hospital.example/ai/" });
    let world = World::start_with(settings).await;
    let mut ear =
        EventStreamClient::open(world.http.get(world.url("/sse")).bearer_auth(&world.token)).await;
    let event = ear.next_event().await.unwrap();
    assert!(
        event.starts_with("event: endpoint\ndata: /ai/messages/?session_id="),
        "{event}"
    );
}
