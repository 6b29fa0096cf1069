//! Tests of the cost of an upstream route: a call is parsed once, memory is bounded by the calls in progress, and the
//! time of a call is measured.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use futures::{StreamExt, stream};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::watch;
use wardgate_testkit::{System, TestApp, mcp_discovery, mcp_message, mcp_result, serve};

use super::upstream::{doctor, gateway, gateway_with};

const MIB: u64 = 1 << 20;

/// Number of concurrent calls, which is the limit of two subjects.
const AT_ONCE: u64 = 64;

/// Length of the text of a long response, which with its envelope is as large as a server's response may be by default.
const LONG: usize = 1_048_000;

/// Maximum time for which long responses wait for each other, because on a busy machine the gateway admits fewer calls
/// at a time.
const TOGETHER: Duration = Duration::from_secs(5);

/// Starts a server whose tool returns a text of the requested length, and waits with long responses until all have been
/// requested.
async fn server() -> String {
    let wanted = watch::Sender::new(0_u64);
    let router = Router::new().fallback(answer).with_state(wanted);
    format!("http://{}/mcp", serve(router).await)
}

async fn answer(State(wanted): State<watch::Sender<u64>>, request: Request) -> Response {
    let (_, message) = mcp_message(request).await;
    if message.get("id").is_none() {
        return http::StatusCode::ACCEPTED.into_response();
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => mcp_discovery(&json!({ "tools": {} })),
        "tools/list" => {
            json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] })
        }
        _ => {
            let length = message["params"]["arguments"]["length"].as_u64().unwrap();
            let length = length.try_into().unwrap();
            if length == LONG {
                wanted.send_modify(|wanted| *wanted += 1);
                let mut all = wanted.subscribe();
                let all = all.wait_for(|wanted| *wanted >= AT_ONCE);
                let _ = tokio::time::timeout(TOGETHER, all).await;
            }
            let text = "x".repeat(length);
            json!({ "content": [{ "type": "text", "text": text }], "isError": false })
        }
    };
    mcp_result(&message, &result)
}

/// Returns the peak memory of the process, in bytes.
fn peak(app: &TestApp) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", app.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    kib * 1_024
}

/// The URL at which the tool is called, and the name of the tool there.
#[derive(Clone)]
struct ToolEndpoint {
    url: String,
    tool: &'static str,
    /// Whether responses have a receipt.
    is_governed: bool,
}

/// Calls the tool, and returns the length of the text. A call that a busy machine could not decide on or record in time
/// is repeated.
async fn call(
    http: &reqwest::Client,
    endpoint: &ToolEndpoint,
    token: &str,
    length: usize,
) -> usize {
    loop {
        if let Some(length) = call_once(http, endpoint, token, length).await {
            return length;
        }
    }
}

/// Returns a request of a client of 2026-07-28, which is forwarded to the server unchanged.
fn request(
    http: &reqwest::Client,
    endpoint: &ToolEndpoint,
    token: &str,
    arguments: &Value,
) -> RequestBuilder {
    http.post(&endpoint.url)
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", endpoint.tool)
        .body(message(endpoint, arguments))
}

fn message(endpoint: &ToolEndpoint, arguments: &Value) -> String {
    let params = json!({
        "name": endpoint.tool,
        "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

fn http_client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        // The server closes idle connections after ten seconds, and a request must not be sent on a connection that it is
        // closing.
        .pool_idle_timeout(Duration::from_secs(3))
        .build()
        .unwrap()
}

async fn call_once(
    http: &reqwest::Client,
    endpoint: &ToolEndpoint,
    token: &str,
    length: usize,
) -> Option<usize> {
    let request = request(http, endpoint, token, &json!({ "length": length }));
    let text = request.send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    if answer["error"]["code"] == -32603 {
        return None;
    }
    let receipt = &answer["result"]["_meta"]["dev.wardgate/receipt"];
    let has_receipt = receipt.is_object();
    let begins = &text[..text.len().min(400)];
    assert_eq!(has_receipt, endpoint.is_governed, "{begins}");
    let text = answer["result"]["content"][0]["text"].as_str();
    Some(text.unwrap().len())
}

fn route(app: &TestApp) -> ToolEndpoint {
    ToolEndpoint {
        url: format!("{}/mcp/upstream/clinic", app.client().base()),
        tool: "read",
        is_governed: true,
    }
}

fn mcp(app: &TestApp) -> ToolEndpoint {
    ToolEndpoint {
        url: format!("{}/mcp", app.client().base()),
        tool: "clinic__read",
        is_governed: true,
    }
}

#[tokio::test]
async fn long_answers_at_once_are_held_once_and_not_copied() {
    for endpoint in [route, mcp] {
        let app = gateway(&server().await).await;
        let endpoint = endpoint(&app);
        // A subject may have 32 concurrent calls.
        let tokens = [doctor(&app), app.token("dr.minh", "Doctor", &[])];
        let http = http_client();
        let all_at_once = async |length: usize| {
            let calls = (0..AT_ONCE).zip(tokens.iter().cycle());
            let calls = calls.map(|(_, token)| call(&http, &endpoint, token, length));
            let all = tokio::time::timeout(Duration::from_secs(120), join_all(calls));
            assert!(all.await.unwrap().iter().all(|told| *told == length));
        };
        // This opens connections, fills caches and starts threads.
        all_at_once(1).await;
        let before = peak(&app);
        all_at_once(LONG).await;
        let grown = (peak(&app) - before) / MIB;
        println!(
            "{AT_ONCE} answers of 1 MiB by {}: {grown} MiB more",
            endpoint.url
        );
        // A copy of each response would need as much memory again.
        assert!(grown < 2 * AT_ONCE, "{grown} MiB by {}", endpoint.url);
    }
}

/// Lengths of a request and a response, by which they can be recognized.
const ASKED: usize = 60_000;
const TOLD: usize = 90_000;

/// The crates that parse the messages of a call as JSON, each of which logs the length of what it parsed.
const READERS: [&str; 3] = [
    "wardgate_gateway",
    "wardgate_mcp_server",
    "wardgate_tool_runner",
];

#[tokio::test]
async fn a_call_is_read_once_and_its_answer_by_nobody_who_only_passes_it_on() {
    let levels = READERS.map(|reader| format!("{reader}=trace"));
    let environment = [
        ("WARDGATE_TELEMETRY__LOG", &*levels.join(",")),
        ("WARDGATE_TELEMETRY__LOG_FORMAT", "json"),
    ];
    let mut app = gateway_with(&server().await, &environment).await;
    let route = route(&app);
    let http = http_client();
    let arguments = json!({ "length": TOLD, "notes": vec!["n"; ASKED / 4] });
    let asked = message(&route, &arguments).len();
    let request = request(&http, &route, &doctor(&app), &arguments);
    let answer = request.send().await.unwrap().text().await.unwrap();
    let told = {
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        let result = answer["result"].as_object_mut().unwrap();
        assert!(result.remove("_meta").is_some(), "with its receipt");
        answer.to_string().len()
    };
    assert!(app.process.terminate().success());

    let log = app.process.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let read: Vec<(String, usize)> = lines
        .filter_map(|line| {
            let length = line.pointer("/fields/wardgate.json.read")?.as_u64()?;
            let target = line["target"].as_str()?;
            let crate_name = target.split("::").next()?.to_owned();
            Some((crate_name, length.try_into().ok()?))
        })
        // IDs, names and `_meta` are parsed separately.
        .filter(|(_, length)| *length > ASKED / 2)
        .collect();
    assert_eq!(
        read,
        [("wardgate_mcp_server".to_owned(), asked)],
        "of {told} bytes"
    );
}

/// Number of sequential calls, and of rounds. Each round measures every path.
const IN_A_ROW: usize = 200;
const ROUNDS: usize = 5;
/// Number of calls in a round with 16 concurrent calls.
const CROWD: usize = 1_000;

#[tokio::test]
#[ignore = "it measures, and holds nothing: `make bench`"]
async fn what_a_small_call_costs_directly_by_the_route_and_on_mcp() {
    let server = server().await;
    let app = gateway(&server).await;
    let token = doctor(&app);
    let http = http_client();
    let direct = ToolEndpoint {
        url: server,
        tool: "read",
        is_governed: false,
    };
    let endpoints = [
        ("direct", direct),
        ("route", route(&app)),
        ("/mcp", mcp(&app)),
    ];
    let mut alone = [const { Vec::new() }; 3];
    let mut crowds = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for (at, (_, endpoint)) in endpoints.iter().enumerate() {
            let mut took = Vec::with_capacity(IN_A_ROW);
            for _ in 0..IN_A_ROW {
                let began = Instant::now();
                assert_eq!(call(&http, endpoint, &token, 10).await, 10);
                took.push(began.elapsed());
            }
            let began = Instant::now();
            let calls = stream::iter(0..CROWD).map(|_| call(&http, endpoint, &token, 10));
            let calls = calls.buffer_unordered(16).collect::<Vec<_>>();
            assert!(calls.await.iter().all(|told| *told == 10));
            // The first round is not counted, because it opens connections and loads code.
            if round > 0 {
                alone[at].extend(took);
                crowds[at].push(began.elapsed());
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    };
    let alone = alone.each_mut().map(median);
    let crowds = crowds.each_mut().map(median);
    println!("one call      alone, p50 µs   ratio   16 at a time, calls/s   ratio");
    for (at, (name, _)) in endpoints.iter().enumerate() {
        let (micros, ratio) = (alone[at] * 1e6, alone[at] / alone[0]);
        let (rate, slower) = (1_000.0 / crowds[at], crowds[at] / crowds[0]);
        println!("{name:<10} {micros:>16.0} {ratio:>7.2} {rate:>23.0} {slower:>7.2}");
    }
}
