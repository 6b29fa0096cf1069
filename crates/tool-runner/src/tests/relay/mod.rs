//! A server that says what a test tells it to, behind a running service.

mod governed;
mod personal;
mod real;
mod refused;
mod streams;
mod verbatim;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::{Status, Streaming};
use wardgate_domain::{
    CallId, ColumnTier, DecisionId, Digest, OfferKind, PermitId, PermitTerms, ToolFacts,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use crate::Config;
use crate::tests::harness::{Database, Harness, VALIDITY, eventually};

/// The `_meta` of a modern message.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p-1"}"#;

/// What the server's tools are, besides what a test relays.
const TOOLS: &str = r#"[{"name":"read","description":"Reads.","inputSchema":{"type":"object"}},{"name":"write","description":"Writes.","inputSchema":{"type":"object"}}]"#;

/// What a client sent, as the server saw it.
#[derive(Debug, Clone)]
struct Seen {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A server that answers what it is told to, in that order.
#[derive(Default)]
struct Server {
    /// Its tools, where they are others than [`TOOLS`].
    tools: Mutex<Option<&'static str>>,
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<VecDeque<Response>>,
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let client = &message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"];
    // On a client's session we ask with ids that clients do not use.
    let is_own = message["id"].as_u64().is_some_and(|id| id >= 1 << 52);
    if client == "wardgate" || is_own {
        let result = if message["method"] == "server/discover" {
            json!({ "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": { "tools": {} } })
        } else {
            let tools = server.tools.lock().unwrap().unwrap_or(TOOLS);
            json!({ "tools": serde_json::from_str::<Value>(tools).unwrap() })
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        return json_answer(200, &answer.to_string());
    }
    server.seen.lock().unwrap().push(Seen {
        method: parts.method,
        headers: parts.headers,
        body,
    });
    let next = server.answers.lock().unwrap().pop_front();
    next.unwrap_or_else(|| status(500))
}

fn status(code: u16) -> Response {
    typed(code, "text/html", Body::from("<p>for people</p>"))
}

fn typed(code: u16, content_type: &str, body: Body) -> Response {
    Response::builder()
        .status(code)
        .header("content-type", content_type)
        .body(body)
        .unwrap()
}

fn json_answer(code: u16, text: &str) -> Response {
    typed(code, "application/json", Body::from(text.to_owned()))
}

fn events(text: &str) -> Response {
    typed(200, "text/event-stream", Body::from(text.to_owned()))
}

/// A stream that goes on as the test says.
fn live_events() -> (mpsc::UnboundedSender<String>, Response) {
    let (sender, chunks) = mpsc::unbounded();
    let body = Body::from_stream(chunks.map(Ok::<String, std::io::Error>));
    (sender, typed(200, "text/event-stream", body))
}

/// The service and the server behind it.
struct World {
    harness: Harness,
    server: Arc<Server>,
    url: String,
}

impl World {
    async fn start() -> Self {
        Self::with("", |_| ()).await
    }

    /// `more` stands in the source's settings.
    async fn with(more: &str, configure: impl FnOnce(&mut Config)) -> Self {
        let server = Arc::new(Server::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&server));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let harness = start(&url, more, configure).await;
        Self {
            harness,
            server,
            url,
        }
    }

    /// What the server answers next.
    fn says(&self, answer: Response) {
        self.server.answers.lock().unwrap().push_back(answer);
    }

    fn seen(&self) -> Vec<Seen> {
        self.server.seen.lock().unwrap().clone()
    }

    /// The one thing that the server saw.
    fn saw(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    async fn relay(&self, request: pb::RelayRequest) -> Result<Relayed, Status> {
        relay(&self.harness, request).await
    }

    /// Everything that comes back.
    async fn all(&self, request: pb::RelayRequest) -> Vec<Part> {
        self.relay(request).await.unwrap().rest().await
    }
}

/// A service whose one source is the server at `url`, once its tools are known.
async fn start(url: &str, more: &str, configure: impl FnOnce(&mut Config)) -> Harness {
    let database = Database::sqlite().await;
    let yaml = format!(
        "sources:\n  up: {{ type: mcp, url: '{url}', private: [127.0.0.0/8], pins: first_use{more} }}\n"
    );
    let harness = Harness::with(&database, &yaml, configure).await;
    eventually("its tools are known", async || {
        !harness.tools().await.tools.is_empty()
    })
    .await;
    harness
}

async fn relay(harness: &Harness, request: pb::RelayRequest) -> Result<Relayed, Status> {
    let mut client = harness.client.clone();
    Ok(Relayed(client.relay(request).await?.into_inner()))
}

/// What comes back.
struct Relayed(Streaming<pb::RelayResponse>);

impl Relayed {
    async fn next(&mut self) -> Option<Part> {
        let next = tokio::time::timeout(std::time::Duration::from_mins(1), self.0.message());
        let part = next.await.expect("something comes in time").unwrap();
        part.map(|part| part.part.unwrap())
    }

    async fn rest(mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(part) = self.next().await {
            parts.push(part);
        }
        parts
    }
}

async fn facts(harness: &Harness, kind: OfferKind, tool: &str) -> ToolFacts {
    if kind == OfferKind::Tool {
        return harness.facts(tool).await;
    }
    let sources = harness.tools().await.sources;
    let facts = sources.into_iter().flat_map(|source| source.facts);
    let mut facts = facts.map(|facts| ToolFacts::try_from(facts).unwrap());
    facts.find(|facts| facts.kind == kind).unwrap()
}

/// Terms that let the harness's caller do that with these arguments and see everything.
async fn terms(harness: &Harness, kind: OfferKind, tool: &str, arguments: &str) -> PermitTerms {
    let facts = facts(harness, kind, tool).await;
    let now = harness.ambient.now();
    PermitTerms {
        id: PermitId::new(&harness.ambient),
        decision_id: DecisionId::new(&harness.ambient),
        caller_digest: harness.caller.digest(),
        tool: facts.name,
        definition_digest: facts.definition_digest,
        arguments_digest: Some(Digest::of(arguments.as_bytes())),
        policy_hash: Digest::of(b"policies"),
        not_before: now,
        expires_at: now.plus(VALIDITY),
        row_rule: None,
        column_tiers: facts
            .classes
            .into_iter()
            .map(|class| (class, ColumnTier::Clear))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// A request under `terms`, for a client of 2026-07-28.
fn request(
    harness: &Harness,
    kind: OfferKind,
    terms: &PermitTerms,
    arguments: &str,
    message: &str,
) -> pb::RelayRequest {
    pb::RelayRequest {
        call_id: CallId::new(&harness.ambient).to_string(),
        caller: Some((&harness.caller).into()),
        source: "up".to_owned(),
        permit: Some((&harness.signer.sign(terms)).into()),
        kind: wardgate_proto::common::v1::OfferKind::from(kind).into(),
        tool: match kind {
            OfferKind::Tool => terms.tool.to_string(),
            _ => String::new(),
        },
        arguments_json: match kind {
            OfferKind::Tool => Bytes::new(),
            _ => arguments.to_owned().into(),
        },
        method: pb::RelayMethod::Post.into(),
        message: message.to_owned().into(),
        protocol_version: "2026-07-28".to_owned(),
        ..pb::RelayRequest::default()
    }
}

/// A call of the tool `read` with `arguments` and `id` 7.
async fn call(harness: &Harness, arguments: &str) -> pb::RelayRequest {
    let terms = terms(harness, OfferKind::Tool, "up__read", arguments).await;
    request(
        harness,
        OfferKind::Tool,
        &terms,
        arguments,
        &call_message(arguments),
    )
}

fn call_message(arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"read","arguments":{arguments},{META}}}}}"#
    )
}

/// What needs the right to the server only, from a legacy client with a session.
async fn connect(harness: &Harness, message: &str) -> pb::RelayRequest {
    let terms = terms(harness, OfferKind::Connect, "", "{}").await;
    pb::RelayRequest {
        protocol_version: "2025-11-25".to_owned(),
        session: "s-1".to_owned(),
        ..request(harness, OfferKind::Connect, &terms, "{}", message)
    }
}

fn head(part: &Part) -> &pb::RelayHead {
    match part {
        Part::Head(head) => head,
        other => panic!("no head: {other:?}"),
    }
}

fn event(part: &Part) -> &pb::RelayEvent {
    match part {
        Part::Event(event) => event,
        other => panic!("no event: {other:?}"),
    }
}

fn body(part: &Part) -> &pb::RelayBody {
    match part {
        Part::Body(body) => body,
        other => panic!("no body: {other:?}"),
    }
}

fn failure(parts: &[Part]) -> (&str, &pb::ResultFacts) {
    match parts.last() {
        Some(Part::Failure(failure)) => (&failure.text, failure.facts.as_ref().unwrap()),
        other => panic!("no failure: {other:?}"),
    }
}
