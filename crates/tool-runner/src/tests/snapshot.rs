//! Tests that lists are answered from cached data, independent of the number of servers and tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::json;

use super::harness::Harness;
use crate::tests::database;
use wardgate_testkit::{mcp_discovery, mcp_message, mcp_result, serve, until_true};

const SERVERS: usize = 20;
const TOOLS_EACH: usize = 50;

/// The number of requests that all servers together received.
type ReceivedQuestion = Arc<AtomicUsize>;

/// Answers as a server with fifty tools, for any path.
async fn answer(State(asked): State<ReceivedQuestion>, request: Request) -> Response {
    asked.fetch_add(1, Ordering::Relaxed);
    let (_, message) = mcp_message(request).await;
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => mcp_discovery(&json!({ "tools": {} })),
        "tools/list" => {
            let tool = |number| json!({ "name": format!("t{number}"), "inputSchema": { "type": "object" } });
            json!({ "tools": (0..TOOLS_EACH).map(tool).collect::<Vec<_>>() })
        }
        other => panic!("nobody asks for {other}"),
    };
    mcp_result(&message, &result)
}

#[tokio::test]
async fn a_thousand_tools_of_twenty_servers_are_listed_without_asking_any() {
    let asked = ReceivedQuestion::default();
    let servers = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&asked));
    let base = format!("http://{}", serve(servers).await);
    let source = |number| {
        format!(
            "  s{number}: {{ type: mcp, url: '{base}/s{number}', private: [127.0.0.0/8], pins: first_use }}\n"
        )
    };
    let sources: String = (0..SERVERS).map(source).collect();
    let database = database::sqlite().await;
    let harness = Harness::with(&database, &format!("sources:\n{sources}"), |_| ()).await;
    until_true("every tool is listed", async || {
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
