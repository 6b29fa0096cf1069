//! A test of what the gateway keeps and drops of a request: ten thousand requests with random headers and `_meta`, to
//! servers that support only the versions that the client does not use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::HeaderMap;
use serde_json::{Value, json};
use wardgate_testkit::{System, serve};

use super::upstream::{doctor, gateway};

/// Number of requests of each era, and of concurrent requests.
const REQUESTS: u64 = 5_000;
const AT_ONCE: usize = 32;

/// One request in this many is forwarded to the server. The gateway answers the others itself.
const CALLS: u64 = 10;

/// A text in every value that must not arrive.
const MARK: &str = "smuggled";

/// The headers that a tool-runner sets itself.
const OF_THE_HOP: [&str; 13] = [
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

/// Headers that describe the client or its connection.
const NOT_PASSED: [&str; 24] = [
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

/// A pseudorandom number generator that is deterministic for a seed (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[index]
    }

    /// Returns JSON that a proxy that reformats JSON would change.
    fn value(&mut self, depth: u64) -> String {
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

    /// Returns some members with unknown names.
    fn members(&mut self, prefix: &str) -> Vec<String> {
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

    /// Shuffles members.
    fn mix(&mut self, members: &mut [String]) {
        for at in (1..members.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap();
            members.swap(at, other);
        }
    }
}

/// A server of one era, and the calls that it received.
struct Server {
    modern: bool,
    calls: Mutex<BTreeMap<u64, (HeaderMap, String)>>,
}

impl Server {
    async fn start(modern: bool) -> (Arc<Self>, String) {
        let server = Arc::new(Self {
            modern,
            calls: Mutex::default(),
        });
        let router = Router::new()
            .fallback(handle_request)
            .with_state(Arc::clone(&server));
        let url = format!("http://{}/mcp", serve(router).await);
        (server, url)
    }
}

async fn handle_request(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method != http::Method::POST {
        return http::StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let message: Value = serde_json::from_str(&text).unwrap();
    let Some(id) = message.get("id") else {
        return http::StatusCode::ACCEPTED.into_response();
    };
    let result = match (message["method"].as_str().unwrap(), server.modern) {
        ("server/discover", true) => {
            json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
        }
        ("initialize", false) => json!({ "protocolVersion": "2025-11-25", "capabilities": {} }),
        ("tools/list", _) => {
            json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] })
        }
        ("tools/call", _) => {
            let seed = message["params"]["arguments"]["seed"].as_u64().unwrap();
            let earlier = server
                .calls
                .lock()
                .unwrap()
                .insert(seed, (parts.headers, text));
            assert!(earlier.is_none(), "call {seed} came twice");
            json!({ "content": [], "isError": false, "_meta": { "x": MARK } })
        }
        (other, _) => {
            let error = json!({ "code": -32601, "message": format!("no {other}") });
            let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            let json = [("content-type", "application/json")];
            return (http::StatusCode::NOT_FOUND, json, answer.to_string()).into_response();
        }
    };
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("mcp-session-id", "the-servers-session"),
        ("set-cookie", "smuggled=1"),
        ("x-powered-by", "smuggled"),
    ];
    // Servers of 2026-07-28 have no sessions.
    let headers = headers
        .into_iter()
        .filter(|(name, _)| *name != "mcp-session-id" || !server.modern);
    let mut response = answer.into_response();
    for (name, value) in headers {
        let value = http::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// A generated request of a client that is `modern` or not.
struct GeneratedRequest {
    method: &'static str,
    headers: Vec<(String, String)>,
    /// The arguments as they are written.
    arguments: String,
    /// The members of `_meta` that are to be forwarded.
    meta: String,
    body: String,
}

impl GeneratedRequest {
    fn generate(seed: u64, modern: bool) -> Self {
        let mut numbers = Numbers(seed);
        let method = match seed % CALLS {
            0 => "tools/call",
            1 => "tools/list",
            _ if modern => "server/discover",
            _ => "ping",
        };
        let mut meta = numbers.members(&format!("{MARK}.example"));
        let own = format!("{{{}}}", meta.join(","));
        if modern {
            meta.push(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#.to_owned());
            meta.push(r#""io.modelcontextprotocol/clientCapabilities":{"later":1.10}"#.to_owned());
            meta.push(format!(
                r#""io.modelcontextprotocol/clientInfo":{{"name":"{MARK}","version":"1"}}"#
            ));
        }
        let mut params = numbers.members(MARK);
        params.push(format!(r#""_meta":{{{}}}"#, meta.join(",")));
        let arguments = format!(r#"{{ "n": {}, "seed":{seed} }}"#, numbers.value(1));
        if method == "tools/call" {
            params.push(format!(r#""name":"read","arguments":{arguments}"#));
        }
        numbers.mix(&mut params);
        let mut headers = Vec::new();
        for _ in 0..numbers.below(8) {
            let name = match numbers.below(3) {
                0 => format!("X-{}", numbers.below(100_000)),
                1 => format!("Mcp-Param-{}", numbers.below(9)),
                _ => numbers.one_of(&NOT_PASSED).to_owned(),
            };
            headers.push((name, format!("{MARK}-{seed}")));
        }
        let params = params.join(", ");
        Self {
            method,
            headers,
            arguments,
            meta: own,
            body: format!(
                r#" {{"{MARK}":1, "jsonrpc":"2.0","id":"{MARK}-{seed}","method":"{method}","params":{{{params}}}}}"#
            ),
        }
    }
}

async fn send(
    http: &reqwest::Client,
    url: &str,
    token: &str,
    modern: bool,
    made: &GeneratedRequest,
) {
    let version = if modern { "2026-07-28" } else { "2025-11-25" };
    let mut request = http
        .post(url)
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", version)
        .body(made.body.clone());
    if modern {
        request = request.header("mcp-method", made.method);
        request = request.header("mcp-session-id", format!("{MARK}-session"));
    }
    if modern && made.method == "tools/call" {
        request = request.header("mcp-name", "read");
    }
    for (name, value) in &made.headers {
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
    let id = answer["id"].as_str().unwrap();
    assert!(made.body.contains(id), "{answer}");
    // The results must be in the form of the client's era (§3.2 and §3.3).
    assert_eq!(
        answer["result"]["resultType"].is_string(),
        modern,
        "{answer}"
    );
    let is_list = modern && matches!(made.method, "tools/list" | "server/discover");
    assert_eq!(answer["result"]["ttlMs"].is_u64(), is_list, "{answer}");
    assert_eq!(
        answer["result"]["cacheScope"].is_string(),
        is_list,
        "{answer}"
    );
}

/// Returns whether two values are equal, with numbers compared as doubles.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && (one.iter()).all(|(key, one)| other.get(key).is_some_and(|it| same(one, it)))
        }
        (one, other) => one == other,
    }
}

/// Checks that a received call has the hop's own headers, and the client's arguments and members of `_meta`.
fn check(
    made: &GeneratedRequest,
    to_modern: bool,
    headers: &HeaderMap,
    body: &str,
    secrets: &[&str],
) {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    for (name, value) in headers {
        let value = value.to_str().unwrap();
        assert!(OF_THE_HOP.contains(&name.as_str()), "{name}: {value}");
        assert!(!value.contains(MARK), "{name}: {value}");
        assert!(
            secrets.iter().all(|secret| !value.contains(secret)),
            "{name}"
        );
    }
    assert!(secrets.iter().all(|secret| !body.contains(secret)));
    let version = if to_modern {
        "2026-07-28"
    } else {
        "2025-11-25"
    };
    assert_eq!(text("mcp-protocol-version"), Some(version));
    assert_eq!(text("mcp-method"), to_modern.then_some("tools/call"));
    assert_eq!(text("mcp-name"), to_modern.then_some("read"));
    let session = (!to_modern).then_some("the-servers-session");
    assert_eq!(text("mcp-session-id"), session);
    let mut message: Value = serde_json::from_str(body).unwrap();
    let others: Value = serde_json::from_str(&made.meta).unwrap();
    for (name, value) in others.as_object().unwrap() {
        let meta = message["params"]["_meta"].as_object_mut().unwrap();
        let arrived = meta.remove(name);
        assert!(arrived.is_some_and(|it| same(&it, value)), "{name}: {body}");
    }
    assert!(!message.to_string().contains(MARK), "{body}");
    assert_eq!(message["params"]["name"], "read");
    let sent = serde_json::from_str(&made.arguments).unwrap();
    assert!(
        same(&message["params"]["arguments"], &sent),
        "{body}: {}",
        made.arguments
    );
    let meta = &message["params"]["_meta"];
    let said = &meta["io.modelcontextprotocol/protocolVersion"];
    assert_eq!(said.as_str(), to_modern.then_some("2026-07-28"));
    let client = &meta["io.modelcontextprotocol/clientInfo"]["name"];
    assert_eq!(client.as_str(), to_modern.then_some("wardgate"));
}

async fn hop(to_modern: bool) {
    let (server, url) = Server::start(to_modern).await;
    let app = gateway(&url).await;
    let token = doctor(&app);
    let url = format!("{}/mcp/upstream/clinic", app.client().base());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = futures::stream::iter(1..=REQUESTS).map(async |seed| {
        let made = GeneratedRequest::generate(seed, !to_modern);
        send(&http, &url, &token, !to_modern, &made).await;
        (seed, made)
    });
    let sent: Vec<_> = sent.buffer_unordered(AT_ONCE).collect().await;
    let calls = server.calls.lock().unwrap();
    let carried = |made: &GeneratedRequest| made.method == "tools/call";
    assert_eq!(
        calls.len(),
        sent.iter().filter(|(_, made)| carried(made)).count()
    );
    let (_, _, signature) = {
        let mut parts = token.splitn(3, '.');
        (parts.next(), parts.next(), parts.next().unwrap())
    };
    for (seed, made) in sent.iter().filter(|(_, made)| carried(made)) {
        let (headers, body) = &calls[seed];
        check(made, to_modern, headers, body, &[&token, signature]);
    }
}

#[tokio::test]
async fn an_older_server_gets_of_a_newer_client_its_arguments_and_the_rest_of_its_meta() {
    hop(false).await;
}

#[tokio::test]
async fn a_newer_server_gets_of_an_older_client_its_arguments_and_the_rest_of_its_meta() {
    hop(true).await;
}
