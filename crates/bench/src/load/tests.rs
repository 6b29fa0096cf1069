//! Tests with a server whose responses are controlled.

use std::sync::atomic::AtomicBool;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wardgate_mcp::Era;
use wardgate_testkit::serve;

use super::*;
use crate::client::Settings;

struct Server {
    /// Each response waits for a permit of this semaphore.
    gate: Semaphore,
    refuses: AtomicBool,
    called: AtomicU64,
}

async fn answer(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    let call: Value = serde_json::from_str(&body).unwrap();
    // Only the newer versions have this header.
    let is_modern = headers["mcp-protocol-version"] == "2026-07-28";
    let name = headers.get("mcp-name").map(|name| name.to_str().unwrap());
    assert_eq!(name, call["params"]["name"].as_str().filter(|_| is_modern));
    assert_eq!(headers["authorization"], "Bearer secret");
    server.called.fetch_add(1, Ordering::Relaxed);
    server.gate.acquire().await.unwrap().forget();
    if server.refuses.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "busy".to_owned());
    }
    let result = json!({ "content": [], "_meta": { "dev.wardgate/receipt": {} } });
    let answer = json!({ "jsonrpc": "2.0", "id": call["id"], "result": result });
    (StatusCode::OK, answer.to_string())
}

async fn start(places: usize) -> (Arc<Server>, McpClient) {
    start_for(Era::Modern, places).await
}

async fn start_for(era: Era, places: usize) -> (Arc<Server>, McpClient) {
    let server = Arc::new(Server {
        gate: Semaphore::new(places),
        refuses: AtomicBool::new(false),
        called: AtomicU64::new(0),
    });
    let router = Router::new()
        .route("/mcp", post(answer))
        .with_state(Arc::clone(&server));
    let url = format!("http://{}", serve(router).await);
    let client = McpClient::new(Settings {
        url: url.parse().unwrap(),
        token: "secret\n".to_owned(),
        era,
        limit: Duration::from_secs(20),
        requires_receipt: true,
    });
    (server, client.unwrap())
}

fn load(pace: Pace, millis: u64) -> Load {
    Load {
        tools: vec![
            CallToolParams::new("one", "{}").unwrap(),
            CallToolParams::new("two", r#"{"a":1}"#).unwrap(),
        ],
        pace,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(millis),
    }
}

#[tokio::test]
async fn every_call_is_made_once_and_counted_once() {
    let (server, client) = start(Semaphore::MAX_PERMITS).await;
    for pace in [
        Pace::Closed { callers: 3 },
        Pace::Open { per_second: 200.0 },
    ] {
        let before = server.called.load(Ordering::Relaxed);
        let report = run(&client, &load(pace, 300)).await.unwrap();
        let made = server.called.load(Ordering::Relaxed) - before;
        assert!(report.good > 0, "{pace:?}");
        assert_eq!((report.good, report.bad), (made, 0), "{pace:?}");
        assert!(report.latency_ms.p50 <= report.latency_ms.max);
    }
}

#[tokio::test]
async fn older_versions_are_called_without_the_headers_of_newer_ones() {
    let (_, client) = start_for(Era::Legacy, Semaphore::MAX_PERMITS).await;
    let load = load(Pace::Closed { callers: 2 }, 100);
    let report = run(&client, &load).await.unwrap();
    assert!(report.good > 0 && report.bad == 0, "{report}");
}

#[tokio::test]
async fn what_is_no_verified_answer_is_counted_by_its_kind() {
    let (server, client) = start(Semaphore::MAX_PERMITS).await;
    server.refuses.store(true, Ordering::Relaxed);
    let load = load(Pace::Closed { callers: 1 }, 100);
    let report = run(&client, &load).await.unwrap();
    assert_eq!(report.good, 0);
    assert_eq!(report.faults.keys().collect::<Vec<_>>(), ["http 503"]);
    assert!(report.to_string().contains("http 503"), "{report}");
}

#[tokio::test]
async fn an_open_loop_counts_what_waited_while_the_server_stood_still() {
    let (server, client) = start(0).await;
    let load = load(Pace::Open { per_second: 50.0 }, 400);
    let running = tokio::spawn(async move { run(&client, &load).await.unwrap() });
    // No call is answered before these have been sent, each when it was due.
    while server.called.load(Ordering::Relaxed) < 15 {
        tokio::task::yield_now().await;
    }
    server.gate.add_permits(1_000);
    let report = running.await.unwrap();
    assert!(report.good >= 15, "{report}");
    // The first call was due long before.
    assert!(report.latency_ms.max >= 200.0, "{report}");
}

#[tokio::test]
async fn a_rate_that_is_none_is_refused() {
    let (_, client) = start(0).await;
    for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = run(&client, &load(Pace::Open { per_second }, 10)).await;
        assert!(refused.is_err(), "{per_second}");
    }
}
