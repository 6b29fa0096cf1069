//! Tests of HTTP+SSE, the transport of 2024-11-05: `GET /sse` and `POST /messages/`.

use serde_json::{Value, json};
use wardgate_testkit::{
    Client, EventStreamClient, Reply, SeparateProcesses, System, TestApp, WardgateProcess,
};

use super::people::{column, doctor, nurse, of_patient, tool_manager};
use super::subscriptions::open_stream;
use crate::{REPOSITORY, WARDGATE};

/// A client with its stream.
struct Stream {
    events: EventStreamClient,
    endpoint: String,
}

impl Stream {
    /// Opens a stream at `client`, and negotiates the version.
    async fn open(client: &Client, token: &str) -> Self {
        let request = reqwest::Client::new().get(format!("{}/sse", client.base()));
        let mut events = open_stream(request, token).await;
        let event = events.next_event().await.unwrap();
        let endpoint = event.strip_prefix("event: endpoint\ndata: ").unwrap();
        let endpoint = endpoint.to_owned();
        let mut stream = Self { events, endpoint };
        let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": {} });
        let answer = stream
            .send_request(client, token, "initialize", hello)
            .await;
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
        let capabilities = &answer["result"]["capabilities"];
        assert!(capabilities["prompts"].is_object());
        assert!(capabilities.get("completions").is_none());
        stream
    }

    async fn post(&self, client: &Client, token: &str, method: &str, params: Value) -> Reply {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = body.to_string();
        client.post(&self.endpoint, Some(token), &[], body).await
    }

    /// Posts a request, and returns the next message of the stream.
    async fn send_request(
        &mut self,
        client: &Client,
        token: &str,
        method: &str,
        params: Value,
    ) -> Value {
        let reply = self.post(client, token, method, params).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));
        self.events.next_message().await.unwrap()
    }
}

fn records() -> Value {
    json!({ "name": "get_medical_records", "arguments": of_patient("NUGWI") })
}

#[tokio::test]
async fn a_client_of_the_first_version_lists_calls_and_hears_of_changes() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    let mut stream = Stream::open(client, &token).await;
    let listed = stream
        .send_request(client, &token, "tools/list", json!({}))
        .await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    for later in ["annotations", "outputSchema", "title"] {
        assert!(
            tools.iter().all(|tool| tool.get(later).is_none()),
            "{later}"
        );
    }
    let called = stream
        .send_request(client, &token, "tools/call", records())
        .await;
    let text = called["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Hypertension"), "{text}");
    assert!(called["result"].get("structuredContent").is_none());

    // Only the caller who opened the stream may post to it.
    let stranger = nurse(&app);
    let reply = stream
        .post(client, &stranger, "tools/call", records())
        .await;
    assert_eq!(reply.status, 404);
    let dir = app.data_dir().display().to_string();
    let off = ["tools", "disable", "get_shifts", "--data-dir", &dir];
    let ada = tool_manager(&app);
    wardgate_testkit::run(app.binary(), &off, &[("WARDGATE_TOKEN", &ada)]).success();
    while stream.events.next_message().await.unwrap()["method"]
        != "notifications/tools/list_changed"
    {}
    let recorded = app.records_with(&["--tool", "get_medical_records"]);
    assert_eq!(column(&recorded, "protocol"), ["2024-11-05"]);
}

/// Starts another gateway of `system`, which the others reach at the address at which it listens.
fn gateway(system: &SeparateProcesses) -> (WardgateProcess, Client) {
    let address = format!("127.0.0.1:{}", wardgate_testkit::free_port());
    let url = format!("http://{address}");
    let config = system.config().display().to_string();
    let arguments = ["gateway", "--config", &config];
    let environment = [
        ("WARDGATE_GATEWAY__LISTEN", address.as_str()),
        ("WARDGATE_GATEWAY__ADVERTISE", url.as_str()),
    ];
    let process = WardgateProcess::start(system.binary(), &arguments, &environment);
    (process, Client::new(&url))
}

#[tokio::test]
async fn any_gateway_takes_the_messages_of_a_stream_that_another_has() {
    let system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let (mut one, near) = gateway(&system);
    let (_two, far) = gateway(&system);
    for client in [&near, &far] {
        wardgate_testkit::until("it is ready", async || {
            (client.get("/ready").await.status == 200).then_some(())
        })
        .await;
    }
    let token = doctor(&system);
    let mut stream = Stream::open(&near, &token).await;
    let called = stream
        .send_request(&far, &token, "tools/call", records())
        .await;
    assert_eq!(called["result"]["isError"], false, "{called}");
    let mut recorded = system.records_with(&["--tool", "get_medical_records"]);
    // Only the records of the gateways are kept. The tool-runner records the execution.
    recorded.retain(|record| record["event"] == "outcome");
    assert_eq!(column(&recorded, "protocol"), ["2024-11-05"]);
    assert_eq!(column(&recorded, "client_ip"), ["127.0.0.1"]);
    assert_eq!(
        stream
            .post(&far, &nurse(&system), "ping", json!({}))
            .await
            .status,
        404
    );
    // The gateway of the example does not advertise an address, but it finds the gateway of the stream from the stream's ID.
    let pong = stream
        .send_request(system.client(), &token, "ping", json!({}))
        .await;
    assert_eq!(pong["result"], json!({}));
    one.kill();
    assert_eq!(
        stream.post(&far, &token, "ping", json!({})).await.status,
        502
    );
}
