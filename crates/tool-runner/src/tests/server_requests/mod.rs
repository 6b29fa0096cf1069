//! Tests of servers that send messages and requests while they work, behind a running service.

mod both_eras;
mod content;
mod legacy;
mod modern;
mod once;
mod own_stream;
mod passthrough_meta;
mod replicas;
mod server_tasks;
mod tasks;
mod unchanged;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use futures::channel::{mpsc, oneshot};
use http::Method;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use wardgate_domain::{ColumnTier, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;
use wardgate_testkit::{mcp_discovery, mcp_message, serve, until_true};

use super::harness::{Answer, Harness};
use crate::Config;
use crate::tests::database;

/// Capabilities of a client that can be asked for everything.
const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},"x-new":1.10}"#;

const FORM: &str = r#"{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.10}}}}"#;

/// The way in which a server answers the next request that is not part of a handshake.
enum Says {
    Result(Value),
    /// A result as JSON text.
    Text(String),
    Error(Value),
    Status(u16),
    /// A stream of events that the test sends.
    Events(mpsc::UnboundedReceiver<String>),
    /// A single response that the test sends later.
    Later(oneshot::Receiver<Value>),
}

/// A server that answers as the test specifies.
struct Server {
    is_modern: bool,
    /// Whether the server accepts `initialize` too, without announcing it.
    takes_initialize: bool,
    /// Every message received, and `DELETE` for the end of a session.
    seen: Mutex<Vec<Value>>,
    next: Mutex<VecDeque<Says>>,
    /// The messages outside of answers, for the next client that listens.
    own: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

impl Server {
    fn received_messages(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        let of_method = seen.iter().filter(|message| message["method"] == method);
        of_method.cloned().collect()
    }

    /// Returns the answers to the server's own requests.
    fn answers(&self) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        let answers = seen
            .iter()
            .filter(|message| message.is_object() && message["method"].is_null());
        answers.cloned().collect()
    }

    fn says(&self, says: Says) {
        self.next.lock().unwrap().push_back(says);
    }

    fn says_text(&self, text: &str) {
        self.says(Says::Result(result(text)));
    }

    /// Answers the next request with a stream that the test writes to.
    fn says_events(&self) -> ServerStream {
        let (sender, events) = mpsc::unbounded();
        self.says(Says::Events(events));
        ServerStream(sender)
    }

    fn says_later(&self) -> oneshot::Sender<Value> {
        let (sender, answer) = oneshot::channel();
        self.says(Says::Later(answer));
        sender
    }

    /// Returns the server's own stream, for the next session that listens.
    fn says_outside(&self) -> ServerStream {
        let (sender, events) = mpsc::unbounded();
        *self.own.lock().unwrap() = Some(events);
        ServerStream(sender)
    }
}

fn result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// The server's end of a stream.
struct ServerStream(mpsc::UnboundedSender<String>);

impl ServerStream {
    fn message(&self, message: &Value) {
        self.0
            .unbounded_send(format!("data: {message}\n\n"))
            .unwrap();
    }

    fn notify(&self, method: &str, params: &Value) {
        self.message(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn send_request(&self, id: &str, method: &str, params: &str) {
        let params: Value = serde_json::from_str(params).unwrap();
        self.message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn end(self, id: &Value, text: &str) {
        self.message(&json!({ "jsonrpc": "2.0", "id": id, "result": result(text) }));
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, message) = mcp_message(request).await;
    if parts.method == Method::GET {
        return match server.own.lock().unwrap().take() {
            Some(events) => event_stream_response(events),
            None => respond(405, "text/plain", Body::empty()),
        };
    }
    if parts.method == Method::DELETE {
        server.seen.lock().unwrap().push("DELETE".into());
        return respond(200, "text/plain", Body::empty());
    }
    server.seen.lock().unwrap().push(message.clone());
    let (id, method) = (
        &message["id"],
        message["method"].as_str().unwrap_or_default(),
    );
    if id.is_null() || method.is_empty() {
        return respond(202, "text/plain", Body::empty());
    }
    let says = match method {
        "server/discover" if server.is_modern => {
            Says::Result(mcp_discovery(&json!({ "tools": {} })))
        }
        "server/discover" => Says::Error(json!({ "code": -32601, "message": "no" })),
        "initialize" if server.is_modern && !server.takes_initialize => {
            Says::Error(json!({ "code": -32601, "message": "no" }))
        }
        "initialize" => Says::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {}, "logging": {}, "tasks": { "requests": { "tools": { "call": {} } } },
            },
            "serverInfo": { "name": "server", "version": "0" },
        })),
        "logging/setLevel" | "tasks/cancel" => Says::Result(json!({})),
        "tools/list" => Says::Result(json!({ "tools": [{
            "name": "look", "inputSchema": { "type": "object" },
            "execution": { "taskSupport": "required" },
        }] })),
        "prompts/list" => Says::Result(json!({ "prompts": [] })),
        "resources/list" => Says::Result(json!({ "resources": [] })),
        "resources/templates/list" => Says::Result(json!({ "resourceTemplates": [] })),
        _ => server.next.lock().unwrap().pop_front().expect("an answer"),
    };
    let whole = |member: &str, value: Value| {
        let answer = json!({ "jsonrpc": "2.0", "id": id, member: value });
        respond(200, "application/json", Body::from(answer.to_string()))
    };
    match says {
        Says::Result(value) => whole("result", value),
        Says::Text(result) => {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            respond(200, "application/json", Body::from(answer))
        }
        Says::Error(value) => whole("error", value),
        Says::Status(status) => respond(status, "text/plain", Body::empty()),
        Says::Events(events) => event_stream_response(events),
        Says::Later(answer) => match answer.await {
            Ok(value) => whole("result", value),
            Err(_) => respond(500, "text/plain", Body::empty()),
        },
    }
}

fn event_stream_response(events: mpsc::UnboundedReceiver<String>) -> Response {
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    respond(200, "text/event-stream", body)
}

fn respond(status: u16, content_type: &str, body: Body) -> Response {
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .header("mcp-session-id", "s-1")
        .body(body)
        .unwrap()
}

/// The service, and the server behind it.
struct World {
    harness: Harness,
    server: Arc<Server>,
}

impl World {
    async fn start(is_modern: bool) -> Self {
        Self::with(is_modern, |_| ()).await
    }

    async fn with(is_modern: bool, configure: impl FnOnce(&mut Config)) -> Self {
        Self::start_server(is_modern, !is_modern, configure).await
    }

    /// Starts a server that supports both eras and announces only the newer one.
    async fn of_both_eras() -> Self {
        Self::start_server(true, true, |_| ()).await
    }

    async fn start_server(
        is_modern: bool,
        takes_initialize: bool,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let server = Arc::new(Server {
            is_modern,
            takes_initialize,
            seen: Mutex::default(),
            next: Mutex::default(),
            own: Mutex::default(),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&server));
        let url = format!("http://{}/mcp", serve(router).await);
        let yaml = format!(
            "sources:
  up: {{ type: mcp, url: '{url}', private: [127.0.0.0/8], tools: none, prompts: all, resources: all }}
tools:
  - name: ask
    description: Asks.
    input_schema: {{ type: object, properties: {{ a: {{ type: integer }} }} }}
    execute: {{ type: mcp, source: up, tool: ask }}
    result: {{ classes: {{ content: note.text, structuredContent: note.text }} }}
  - name: look
    description: Looks.
    annotations: {{ readOnlyHint: true }}
    input_schema: {{ type: object }}
    cache: 1m
    execute: {{ type: mcp, source: up, tool: look }}
  - name: keep
    description: Writes.
    input_schema: {{ type: object }}
    execute: {{ type: mcp, source: up, tool: look }}
"
        );
        let harness = Harness::with(&database::sqlite().await, &yaml, configure).await;
        Self { harness, server }
    }

    async fn request(&self, tool: &str, interaction: pb::Interaction) -> pb::CallToolRequest {
        let terms = self.harness.terms(tool).await;
        self.request_under(&terms, interaction)
    }

    fn request_under(
        &self,
        terms: &PermitTerms,
        interaction: pb::Interaction,
    ) -> pb::CallToolRequest {
        let permit = self.harness.signer.sign(terms);
        let tool = terms.tool.to_string();
        pb::CallToolRequest {
            interaction: Some(interaction),
            ..self.harness.request(&tool, br#"{"a":1}"#, Some(&permit))
        }
    }

    /// Returns terms that restrict what may be seen.
    async fn restricted_terms(&self, tool: &str) -> PermitTerms {
        let mut terms = self.harness.terms(tool).await;
        for tier in terms.column_tiers.values_mut() {
            *tier = ColumnTier::Partial;
        }
        terms
    }

    async fn send(&self, request: pb::CallToolRequest) -> Result<Round, Status> {
        let mut client = self.harness.client.clone();
        let mut events = client.call_tool(request).await?.into_inner();
        let (sender, heard) = mpsc::unbounded();
        // The call runs only while its events are received.
        let taking = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                sender.unbounded_send(event.unwrap()).unwrap();
            }
        });
        Ok(Round {
            heard,
            _taking: AbortOnDropHandle::new(taking),
        })
    }

    /// Starts a call of `ask` by a client that can be asked for everything.
    async fn begin(&self) -> Round {
        let request = self.request("ask", interaction_offering(ALL)).await;
        self.send(request).await.unwrap()
    }

    /// Resumes the call with the client's answers.
    async fn resume(&self, waits: &pb::InputRequired, answers: &Value) -> Round {
        let request = self
            .request("ask", interaction_resuming(waits, answers))
            .await;
        self.send(request).await.unwrap()
    }

    /// Waits until the server has received `number` messages of this method, and returns the last one.
    async fn saw(&self, method: &str, number: usize) -> Value {
        until_true(method, async || {
            self.server.received_messages(method).len() >= number
        })
        .await;
        let seen = self.server.received_messages(method);
        assert_eq!(seen.len(), number, "{seen:?}");
        seen[number - 1].clone()
    }

    /// Waits until the server has received `number` answers to its own requests, and returns the last one.
    async fn was_answered(&self, number: usize) -> Value {
        until_true("an answer", async || self.server.answers().len() >= number).await;
        let answers = self.server.answers();
        assert_eq!(answers.len(), number, "{answers:?}");
        answers[number - 1].clone()
    }
}

fn interaction_offering(capabilities: &str) -> pb::Interaction {
    pb::Interaction {
        client_capabilities_json: capabilities.to_owned().into(),
        ..pb::Interaction::default()
    }
}

fn interaction_with_log_level(level: &str) -> pb::Interaction {
    pb::Interaction {
        log_level: level.to_owned(),
        ..interaction_offering(ALL)
    }
}

fn interaction_resuming(waits: &pb::InputRequired, answers: &Value) -> pb::Interaction {
    pb::Interaction {
        resumption: Some(pb::Resumption {
            state: waits.state.clone(),
            input_responses_json: answers.to_string().into(),
            ..pb::Resumption::default()
        }),
        ..interaction_offering(ALL)
    }
}

/// The events of one round.
struct Round {
    heard: mpsc::UnboundedReceiver<pb::CallToolResponse>,
    _taking: AbortOnDropHandle<()>,
}

impl Round {
    async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(std::time::Duration::from_mins(1), self.heard.next());
        let event = next.await.expect("something comes in time");
        event.expect("an end comes").event.unwrap()
    }

    /// Returns the request for input and its parsed requests.
    async fn waits(mut self) -> (pb::InputRequired, Value) {
        match self.next().await {
            Event::InputRequired(waits) => {
                let facts = waits.facts.as_ref().unwrap();
                assert_eq!(facts.status(), pb::OutcomeStatus::Ok);
                let requests = serde_json::from_slice(&waits.input_requests_json).unwrap();
                (waits, requests)
            }
            other => panic!("it does not wait: {other:?}"),
        }
    }

    /// Returns the task that the call became or asked about.
    async fn task(mut self) -> pb::Task {
        match self.next().await {
            Event::Task(task) => task,
            other => panic!("no task: {other:?}"),
        }
    }

    async fn ends(mut self) -> Answer {
        match self.next().await {
            Event::Result(result) => Answer(result),
            other => panic!("no result: {other:?}"),
        }
    }

    async fn text(self) -> String {
        self.ends().await.text()
    }

    /// Returns the error kind of the result.
    async fn fails(self) -> String {
        let answer = self.ends().await;
        assert!(answer.0.is_error, "{}", answer.text());
        answer.facts().error_kind.clone()
    }
}
