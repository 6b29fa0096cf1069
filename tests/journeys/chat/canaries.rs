//! A test of P4 with everything at once: no log, metric, trace or record contains anything that people, models, tools,
//! servers and tokens say.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp};

use super::super::collector::collector;
use super::super::extra_tools::{LOOK_OFTEN, add_with_source};
use super::super::people::doctor;
use super::{PersonMessage, Piece, Provider, collect_events, finish};
use crate::WARDGATE;

/// A text in everything that is planted, and in nothing else.
const CANARY: &str = "kanarie";

/// A service and an MCP server, which send canaries in all their responses.
const SOURCES: &str = r#"
  birds:
    type: http
    base_url: "URL"
    private: ["127.0.0.0/8"]
    headers: { X-Key: kanarie-key }
  cage:
    type: mcp
    url: "URL/mcp"
    auth: { type: bearer, token: kanarie-token-of-the-server }
    private: ["127.0.0.0/8"]
    pins: first_use
    tags: [staff]
    classes: { content: none, structuredContent: none, error: none }
"#;

const TOOLS: &str = r#"
  - name: look
    description: Looks at the birds.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { at: { type: string } }, required: [at] }
    execute: { type: http, source: birds, method: GET, path: "/{at}", query: { q: "{at}" } }
    result: { rows: /rows, classes: { note: none } }
"#;

/// Everything that the server received.
type ReceivedText = Arc<Mutex<String>>;

async fn server() -> (String, ReceivedText) {
    let heard = ReceivedText::default();
    let router = Router::new()
        .route("/mcp", post(mcp))
        .route("/{at}", get(birds))
        .with_state(Arc::clone(&heard));
    let url = format!("http://{}", wardgate_testkit::serve(router).await);
    (url, heard)
}

/// The headers of every response.
const JSON: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("x-bird", "kanarie-header-of-the-server"),
];

async fn birds(State(heard): State<ReceivedText>, request: axum::extract::Request) -> Response {
    *heard.lock().unwrap() += &format!("{} {:?}\n", request.uri(), request.headers());
    if request.uri().path().ends_with("dead") {
        let body = r#"{"error":"kanarie-error-of-the-service"}"#;
        return (StatusCode::INTERNAL_SERVER_ERROR, JSON, body).into_response();
    }
    if request.uri().path().ends_with("garbled") {
        return (JSON, "kanarie, and no JSON").into_response();
    }
    let rows = json!({ "rows": [{ "note": "kanarie-row" }] });
    (JSON, rows.to_string()).into_response()
}

async fn mcp(State(heard): State<ReceivedText>, body: Bytes) -> Response {
    *heard.lock().unwrap() += std::str::from_utf8(&body).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let tool = |name: &str| {
        json!({
            "name": name, "description": "Sings.", "annotations": { "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": { "words": { "type": "string" } } },
        })
    };
    let result = |result: Value| json!({ "result": result });
    let error =
        |words: &str| json!({ "error": { "code": -32603, "message": words, "data": words } });
    let mut answer = match (
        request["method"].as_str(),
        request["params"]["name"].as_str(),
    ) {
        (Some("initialize"), _) => result(json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "cage", "version": "1" }, "instructions": "kanarie-instructions",
        })),
        (Some("tools/list"), _) => result(json!({ "tools": [tool("sing"), tool("croak")] })),
        (Some("tools/call"), Some("sing")) => {
            result(json!({ "content": [{ "type": "text", "text": "kanarie-song" }] }))
        }
        (Some("tools/call"), _) => error("kanarie-error-of-the-server"),
        (Some(_), _) if request.get("id").is_some() => {
            json!({ "error": { "code": -32601, "message": "kanarie-unknown" } })
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    answer["jsonrpc"] = "2.0".into();
    answer["id"] = request["id"].clone();
    (JSON, answer.to_string()).into_response()
}

/// Makes a call with canaries in every place that a client controls.
async fn call(app: &TestApp, token: &str, tool: &str, arguments: Value) -> Reply {
    let body = json!({
        "jsonrpc": "2.0", "id": "kanarie-id", "method": "tools/call",
        "params": {
            "name": tool, "arguments": arguments, "kanarie-member": 1,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": { "experimental": { "kanarie": {} } },
                "io.modelcontextprotocol/clientInfo": { "name": "kanarie-client", "version": "1" },
                "progressToken": "kanarie-progress", "kanarie-key": "kanarie-value",
            },
        },
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
        ("cookie", "kanarie=kanarie"),
        ("x-kanarie", "kanarie"),
        ("baggage", "who=kanarie"),
        ("user-agent", "kanarie/1"),
        ("x-request-id", "kanarie"),
    ];
    let client = app.client();
    client
        .post("/mcp", Some(token), &headers, body.to_string())
        .await
}

/// Runs a session with canaries from people, models and servers, and checks that those that should come through do.
async fn session(app: &TestApp, provider: &Provider, heard: &ReceivedText) {
    let token = app.token("dr.yenji", "Doctor", &[("nickname", "kanarie-claim")]);
    let names = app.client().tool_names(&token).await;
    let named = |word: &str| {
        names
            .iter()
            .find(|name| name.ends_with(word))
            .unwrap()
            .as_str()
    };
    for (tool, arguments, expected) in [
        ("look", json!({ "at": "kanarie-path" }), "kanarie-row"),
        ("look", json!({ "at": "kanarie-dead" }), ""),
        ("look", json!({ "at": "kanarie-garbled" }), ""),
        (
            "look",
            json!({ "at": 7, "kanarie-argument": "kanarie" }),
            "",
        ),
        (
            named("sing"),
            json!({ "words": "kanarie-words" }),
            "kanarie-song",
        ),
        (named("croak"), json!({ "words": "kanarie-words" }), ""),
        ("no tool but kanarie", json!({}), ""),
    ] {
        let reply = call(app, &token, tool, arguments).await;
        assert!(reply.body.contains(expected), "{tool}: {reply:?}");
    }
    for sent in ["kanarie-path", "kanarie-key", "kanarie-words"] {
        assert!(heard.lock().unwrap().contains(sent), "{sent} was alive");
    }
    // The trace context is passed on: to a service in a header, to a server in its message.
    for carrier in [r#""traceparent": "00-"#, r#""traceparent":"00-"#] {
        assert!(heard.lock().unwrap().contains(carrier), "{heard:?}");
    }

    let client = app.client();
    let uri = json!({ "uri": "kanarie://kanarie", "name": "kanarie name" });
    for method in [
        "resources/read",
        "prompts/get",
        "completion/complete",
        "kanarie/kanarie",
    ] {
        client.modern(&token, method, uri.clone()).await;
    }
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "kanarie-client", "version": "kanarie" },
    });
    client
        .legacy(&token, "2025-11-25", "initialize", hello)
        .await;
    client
        .post("/mcp", Some("kanarie.kanarie.kanarie"), &[], "{}")
        .await;
    client
        .post("/mcp?kanarie=1", Some(&token), &[], "kanarie")
        .await;

    // A model says the canary, calls tools with it, and breaks off within it.
    let look = Piece::Call("look", json!({ "at": "kanarie-of-the-model" }));
    let made_up = Piece::Call("kanarie-tool", json!({ "kanarie": "kanarie" }));
    let answered = vec![vec![look, made_up], vec![Piece::Text("kanarie-answer")]];
    let broken = vec![vec![Piece::Text("kanarie-half"), Piece::Cut]];
    for (script, conversation, end) in [(answered, "visit-1", "stop"), (broken, "visit-2", "error")]
    {
        provider.plays(script);
        let message = PersonMessage {
            conversation: conversation.to_owned(),
            id: "question-1".to_owned(),
            text: "kanarie-question".to_owned(),
        };
        let events = collect_events(app, &token, &message).await;
        assert_eq!(finish(&events), end, "{events:?}");
    }
    let asked = serde_json::to_string(&provider.requests()).unwrap();
    assert!(asked.contains("kanarie-question"));
    assert!(
        asked.contains("kanarie-row"),
        "the model's call was answered"
    );
}

/// Returns the content of every file of the record.
fn record(app: &TestApp) -> String {
    let files = std::fs::read_dir(app.data_dir()).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let of_record = files.filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("audit")
    });
    let read = of_record.map(|path| std::fs::read(path).unwrap());
    String::from_utf8_lossy(&read.collect::<Vec<_>>().concat()).into_owned()
}

// Two threads are needed because the collector must respond while this test waits for the process to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_no_canary_is_in_any_log_metric_trace_or_record() {
    let provider = Provider::start().await;
    let (server, heard) = server().await;
    let (collector, traces) = collector().await;
    let environment = [
        ("LLM_BASE_URL", provider.url.as_str()),
        ("WARDGATE_TELEMETRY__LOG", "trace"),
        ("WARDGATE_TELEMETRY__LOG_FORMAT", "json"),
        ("WARDGATE_TELEMETRY__OTLP_ENDPOINT", collector.as_str()),
        LOOK_OFTEN,
    ];
    let mut app = TestApp::start_with(WARDGATE, &environment);
    add_with_source(&app, &SOURCES.replace("URL", &server), TOOLS).await;
    // The tools of the server are listed only after the server was asked for them.
    let doctor = doctor(&app);
    wardgate_testkit::until("the server's tools are listed", async || {
        let names = app.client().tool_names(&doctor).await;
        names
            .iter()
            .any(|name| name.ends_with("croak"))
            .then_some(())
    })
    .await;
    session(&app, &provider, &heard).await;

    let probes = app.probes();
    let text = app.metrics().await;
    let accept = [("accept", "application/openmetrics-text")];
    let open = probes.send("GET", "/metrics", &accept, "").await.body;
    let open_record = record(&app);
    assert_eq!(app.process.terminate().code(), Some(0));
    let traces = String::from_utf8_lossy(&traces.lock().unwrap()).into_owned();
    let log = app.process.log();
    for (place, text, expected) in [
        ("the record", open_record, "dr.yenji"),
        ("the record, closed", record(&app), "dr.yenji"),
        ("the log", log.clone(), "call ended"),
        (
            "the metrics",
            text,
            "wardgate_source_request_duration_seconds",
        ),
        ("the metrics with exemplars", open, " # {trace_id="),
        ("the traces", traces, "tools/call"),
    ] {
        assert!(text.contains(expected), "{place} held something");
        let line = text.lines().find(|line| line.contains(CANARY));
        assert_eq!(line, None, "in {place}");
    }
    // Log lines of calls contain the IDs of their trace.
    let mut ends = log.lines().filter(|line| line.contains("call ended"));
    assert!(ends.all(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["trace_id"].is_string() && line["span_id"].is_string()
    }));
}
