//! Lists are answered from what is known, however many servers and tools there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::harness::{Database, Harness, eventually};

const SERVERS: usize = 20;
const TOOLS_EACH: usize = 50;

/// How often all servers together were asked for anything.
type ReceivedQuestion = Arc<AtomicUsize>;

/// Every path is a server with fifty tools.
async fn answer(State(asked): State<ReceivedQuestion>, request: Request) -> Response {
    asked.fetch_add(1, Ordering::Relaxed);
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await;
    let message: Value = serde_json::from_slice(&body.unwrap()).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => {
            json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
        }
        "tools/list" => {
            let tool = |number| json!({ "name": format!("t{number}"), "inputSchema": { "type": "object" } });
            json!({ "tools": (0..TOOLS_EACH).map(tool).collect::<Vec<_>>() })
        }
        other => panic!("nobody asks for {other}"),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

#[tokio::test]
async fn a_thousand_tools_of_twenty_servers_are_listed_without_asking_any() {
    let asked = ReceivedQuestion::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let servers = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&asked));
    tokio::spawn(async move { axum::serve(listener, servers).await });
    let source = |number| {
        format!(
            "  s{number}: {{ type: mcp, url: '{base}/s{number}', private: [127.0.0.0/8], pins: first_use }}\n"
        )
    };
    let sources: String = (0..SERVERS).map(source).collect();
    let database = Database::sqlite().await;
    let harness = Harness::with(&database, &format!("sources:\n{sources}"), |_| ()).await;
    eventually("every tool is listed", async || {
        harness.tools().await.tools.len() == SERVERS * TOOLS_EACH
    })
    .await;
    let once = asked.load(Ordering::Relaxed);
    assert_eq!(
        once,
        SERVERS * 3,
        "each was asked who it is, what it has and what of that is for every client"
    );
    for _ in 0..100 {
        let list = harness.tools().await;
        assert_eq!(list.tools.len(), SERVERS * TOOLS_EACH);
        assert!(list.missing_upstreams.is_empty());
    }
    assert_eq!(asked.load(Ordering::Relaxed), once);
}
