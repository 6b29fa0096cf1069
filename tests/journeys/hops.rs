//! What a hop keeps and what it drops: ten thousand requests whose headers and `_meta` are made up.
//!
//! ```text
//!  a request, made up by a seed ──▶ gateway, tool-runner ──▶ a server that remembers what arrived
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wardgate_testkit::{System, TestApp};

use super::upstream::{doctor, gateway_with};

const REQUESTS: u64 = 10_000;
const AT_ONCE: usize = 32;

/// In every value that must not arrive.
pub(super) const MARK: &str = "smuggled";

/// What a tool-runner says by itself.
pub(super) const OF_THE_HOP: [&str; 13] = [
    "host",
    "accept",
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// Headers that say something of the client, or only of its connection.
pub(super) const NOT_PASSED: [&str; 24] = [
    "accept-language",
    "baggage",
    "cookie",
    "forwarded",
    "from",
    "if-none-match",
    "keep-alive",
    "last-event-id",
    "max-forwards",
    "mcp-parameter",
    "pragma",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "te",
    "user-agent",
    "via",
    "www-authenticate",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-real-ip",
    "x-wardgate-caller",
];

/// The same numbers for the same seed (`SplitMix64`).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[index]
    }

    /// JSON that a careful hop would like to write otherwise.
    pub(super) fn value(&mut self, depth: u64) -> String {
        let scalars = [
            "1.10",
            "1e2",
            "-0",
            "0.1E-7",
            "12345678901234567890123",
            "null",
            "true",
            "\"\"",
            r#""\u00e9é\/\n""#,
            r#""\ud83d\ude00""#,
            "[]",
            "{}",
            r#"{ "a" :[ 1.0 ] }"#,
        ];
        if depth > 0 && self.below(3) == 0 {
            let inner = self.value(depth - 1);
            return format!("{{ \"k{}\":[{inner} , {inner}]}}", self.below(9));
        }
        self.one_of(&scalars).to_owned()
    }

    /// Some members whose names nobody knows.
    pub(super) fn members(&mut self, prefix: &str) -> Vec<String> {
        let count = self.below(4);
        let member = |number| {
            let (space, value) = (self.one_of(&["", " ", "\t"]), self.value(2));
            format!(
                r#""{prefix}/{number}\u002d{}":{space}{value}"#,
                self.below(1_000)
            )
        };
        (0..count).map(member).collect()
    }

    /// A message with members that nobody knows, wherever there can be some.
    fn body(&mut self, id: u64, modern: bool, method: &str, name: Option<&str>) -> String {
        let mut meta = self.members("com.example");
        if modern {
            meta.push(r#""io.modelcontextprotocol/protocolVersion": "2026-07-28""#.to_owned());
            meta.push(
                r#""io.modelcontextprotocol/clientCapabilities":{ "later":1.10 }"#.to_owned(),
            );
        }
        let mut params = self.members("later");
        if !meta.is_empty() {
            self.mix(&mut meta);
            params.push(format!(r#""_meta": {{{}}}"#, meta.join(" ,")));
        }
        match (method, name) {
            ("resources/read", Some(uri)) => params.push(format!(r#""uri":"{uri}""#)),
            ("tools/call", Some(name)) => {
                let arguments = format!(r#"{{ "n": {} }}"#, self.value(1));
                params.push(format!(r#""name":"{name}","arguments":{arguments}"#));
            }
            (_, Some(name)) => params.push(format!(r#""name":"{name}""#)),
            (_, None) => {}
        }
        self.mix(&mut params);
        let mut members = self.members("x");
        members.push(r#""jsonrpc": "2.0""#.to_owned());
        members.push(format!(r#""id":{id}"#));
        members.push(format!(r#""method":"{}""#, method.replace('/', "\\/")));
        members.push(format!(r#""params":{{{}}}"#, params.join(", ")));
        self.mix(&mut members);
        format!(" {{{}}}", members.join(" , "))
    }

    /// In another order.
    pub(super) fn mix(&mut self, members: &mut [String]) {
        for at in (1..members.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap();
            members.swap(at, other);
        }
    }
}

/// A request, and what must arrive of it.
struct Made {
    id: u64,
    modern: bool,
    version: &'static str,
    method: &'static str,
    name: Option<String>,
    params: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: String,
}

impl Made {
    fn by(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let modern = numbers.below(2) == 0;
        let older = ["2025-11-25", "2025-06-18", "2025-03-26"];
        let version = if modern {
            "2026-07-28"
        } else {
            numbers.one_of(&older)
        };
        // Most need no record, so that this takes seconds.
        let method = match numbers.below(40) {
            0 => "tools/call",
            1 => "resources/read",
            2 => "prompts/get",
            _ => numbers.one_of(&[
                "ping",
                "logging/setLevel",
                "vendor/some thing",
                "server/discover",
            ]),
        };
        let name = match method {
            "tools/call" => Some("read".to_owned()),
            "resources/read" => Some(format!("memo://Zürich/{seed}")),
            "prompts/get" => Some(format!("greet {seed}")),
            _ => None,
        };
        let body = numbers.body(seed, modern, method, name.as_deref());
        let mut params = Vec::new();
        for number in 0..numbers.below(4) {
            let name = format!(
                "Mcp-Param-{}{number}",
                numbers.one_of(&["a", "Region", "X-b"])
            );
            params.push((name, format!("v {};=?{seed}", numbers.below(1_000))));
        }
        let mut headers = Vec::new();
        for _ in 0..numbers.below(8) {
            let name = match numbers.below(3) {
                0 => format!("X-{}", numbers.below(100_000)),
                _ => numbers.one_of(&NOT_PASSED).to_owned(),
            };
            headers.push((name, format!("{MARK}-{seed}")));
        }
        if numbers.below(4) == 0 {
            headers.push(("connection".to_owned(), "keep-alive, x-hop".to_owned()));
            headers.push(("x-hop".to_owned(), MARK.to_owned()));
        }
        Self {
            id: seed,
            modern,
            version,
            method,
            name,
            params,
            headers,
            body,
        }
    }
}

/// What arrived, by the id of the request.
#[derive(Default)]
struct Server(Mutex<HashMap<u64, (HeaderMap, String)>>);

impl Server {
    async fn start() -> (Arc<Self>, String) {
        let server = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(arrived)
            .with_state(Arc::clone(&server));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, url)
    }
}

async fn arrived(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let message: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(id) = message.get("id") else {
        return http::StatusCode::ACCEPTED.into_response();
    };
    let client = &message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"];
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" if client == "wardgate" => {
            json!({ "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": { "tools": {} } })
        }
        "tools/list" => {
            json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] })
        }
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
        "tools/call" => json!({ "content": [], "isError": false }),
        _ => json!({}),
    };
    // On a client's session the gateway itself lists the tools, with ids that clients do not use.
    let clients_id = id.as_u64().filter(|id| *id < 1 << 52);
    if let (Some(id), true) = (clients_id, client != "wardgate") {
        server.0.lock().unwrap().insert(id, (parts.headers, text));
    }
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("mcp-session-id", "the-servers-session"),
        // What it says of itself, or to a browser.
        ("access-control-allow-origin", "https://smuggled.example"),
        ("alt-svc", "smuggled"),
        ("link", "<https://smuggled.example>; rel=preload"),
        ("location", "https://smuggled.example"),
        ("server", "smuggled"),
        ("set-cookie", "smuggled=1"),
        ("www-authenticate", "Bearer realm=\"smuggled\""),
        ("x-powered-by", "smuggled"),
    ];
    (headers, answer).into_response()
}

/// Sends what was made up; gives the answer's id.
async fn send(http: &reqwest::Client, url: &str, token: &str, session: &str, made: &Made) -> Value {
    let mut request = http
        .post(url)
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", made.version)
        .body(made.body.clone());
    if made.modern {
        request = request.header("mcp-method", made.method);
        // Of an older version, and no session.
        request = request.header("mcp-session-id", format!("{MARK}-session"));
    } else {
        request = request.header("mcp-session-id", session);
    }
    if let Some(name) = made.name.as_ref().filter(|_| made.modern) {
        let name = format!("=?base64?{}?=", STANDARD.encode(name));
        request = request.header("mcp-name", name);
    }
    for (name, value) in made.params.iter().chain(&made.headers) {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    for (name, value) in response.headers() {
        let value = value.to_str().unwrap();
        assert!(!value.contains(MARK), "{name}: {value} came back");
    }
    let text = response.text().await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert!(answer["result"].is_object(), "{} {answer}", made.body);
    answer["id"].clone()
}

/// Nothing arrived but what must, and all of that.
fn check(made: &Made, headers: &HeaderMap, body: &str, secrets: &[&str]) {
    assert_eq!(body, made.body);
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let decoded = text("mcp-name").map(|value| {
        let encoded = value.strip_prefix("=?base64?");
        let encoded = encoded.and_then(|value| value.strip_suffix("?="));
        encoded.map_or_else(
            || value.to_owned(),
            |encoded| String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap(),
        )
    });
    let repeats = made.modern.then_some(made.method);
    assert_eq!(text("mcp-method"), repeats, "{}", made.body);
    assert_eq!(decoded, made.name.clone().filter(|_| made.modern));
    // 2025-03-26 does not know the header.
    let version = (made.version != "2025-03-26").then_some(made.version);
    assert_eq!(text("mcp-protocol-version"), version);
    let session = (!made.modern).then_some("the-servers-session");
    assert_eq!(text("mcp-session-id"), session);
    let mut params: Vec<_> = made
        .params
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    params.sort();
    let mut arrived = Vec::new();
    for (name, value) in headers {
        let value = value.to_str().unwrap();
        assert!(!value.contains(MARK), "{name}: {value}");
        assert!(
            secrets.iter().all(|secret| !value.contains(secret)),
            "{name}"
        );
        if name.as_str().starts_with("mcp-param-") {
            arrived.push((name.to_string(), value.to_owned()));
        } else {
            assert!(OF_THE_HOP.contains(&name.as_str()), "{name}: {value}");
        }
    }
    arrived.sort();
    assert_eq!(arrived, params);
}

async fn session(app: &TestApp, url: &str, token: &str) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let path = url.strip_prefix(app.client().base()).unwrap();
    let reply = app.client().post(path, Some(token), &[], hello).await;
    reply.headers["mcp-session-id"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn of_what_a_client_sends_its_message_arrives_byte_for_byte_and_nothing_else() {
    let (server, url) = Server::start().await;
    // All of them are one caller's.
    let unbounded = [("WARDGATE_GATEWAY__LIMITS__REQUESTS_PER_MINUTE", "1000000")];
    let app = gateway_with(&url, &unbounded).await;
    let token = doctor(&app);
    let url = format!("{}/mcp/upstream/clinic", app.client().base());
    let session = session(&app, &url, &token).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = futures::stream::iter(1..=REQUESTS).map(async |seed| {
        let made = Made::by(seed);
        assert_eq!(send(&http, &url, &token, &session, &made).await, seed);
        made
    });
    let all: Vec<Made> = sent.buffer_unordered(AT_ONCE).collect().await;
    let arrived = server.0.lock().unwrap();
    assert_eq!(arrived.len(), all.len());
    for made in &all {
        let (headers, body) = &arrived[&made.id];
        check(made, headers, body, &[&token, &session]);
    }
}
