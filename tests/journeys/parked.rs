//! A call that a server of the versions before holds open while a person thinks, and whose gateway is killed meanwhile.
//!
//! ```text
//!  client ──▶ gateway ──▶ tool-runner ──▶ server: asks on the stream of the call, and waits
//!     │         ✗ killed       └ parked
//!     └─────▶ the next gateway: the rest by Last-Event-ID, the answer by POST ──▶ the parked call
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wardgate_testkit::{Separate, System, until};

use crate::{REPOSITORY, WARDGATE};

/// Longer than it takes until another gateway believes the killed one to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

const SOURCE: &str = r#"
  desk:
    type: mcp
    url: "${DESK_URL}"
    private: [127.0.0.0/8]
    tools: []
"#;

const TOOL: &str = r"
  - name: ask_at_the_desk
    description: Asks for a name.
    tags: [clinical]
    input_schema: { type: object, properties: {} }
    execute: { type: mcp, source: desk, tool: ask }
    result: { classes: { content: public, structuredContent: public, error: public } }
";

/// A server of 2025-11-25 with one tool: it asks for a name, on the stream of the call or on its own, and says it.
#[derive(Default)]
struct Desk {
    /// The client of each session hears there what is no answer.
    own: Mutex<Option<mpsc::UnboundedSender<String>>>,
    /// The call that waits for its answer.
    open: Mutex<Option<(Value, mpsc::UnboundedSender<String>)>>,
    asks_on_its_own: bool,
    calls: Mutex<u32>,
}

impl Desk {
    async fn start(asks_on_its_own: bool) -> (Arc<Self>, String) {
        let desk = Arc::new(Self {
            asks_on_its_own,
            ..Self::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(Arc::clone(&desk));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (desk, url)
    }

    fn call(&self, id: &Value) -> Response {
        *self.calls.lock().unwrap() += 1;
        let (stream, said) = stream();
        let form = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let ask = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {
            "message": "Who?", "requestedSchema": form,
        } });
        let own = self.own.lock().unwrap().clone();
        let asked = own
            .filter(|_| self.asks_on_its_own)
            .unwrap_or_else(|| stream.clone());
        asked.send(format!("data: {ask}\n\n")).unwrap();
        *self.open.lock().unwrap() = Some((id.clone(), stream));
        said
    }

    /// The client's answer is the end of the call.
    fn answered(&self, answer: &Value) {
        let Some((id, stream)) = self.open.lock().unwrap().take() else {
            return;
        };
        let name = &answer["result"]["content"]["name"];
        let content = json!([{ "type": "text", "text": format!("Hello, {name}") }]);
        let end = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } });
        stream.send(format!("data: {end}\n\n")).unwrap();
    }
}

fn stream() -> (mpsc::UnboundedSender<String>, Response) {
    let (sender, mut said) = mpsc::unbounded_channel();
    let said = futures::stream::poll_fn(move |context| said.poll_recv(context));
    let said = futures::StreamExt::map(said, Ok::<_, std::convert::Infallible>);
    let head = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s"),
    ];
    (sender, (head, Body::from_stream(said)).into_response())
}

async fn take(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    if request.method() == Method::GET {
        let (sender, said) = stream();
        *desk.own.lock().unwrap() = Some(sender);
        return said;
    }
    let body = axum::body::to_bytes(request.into_body(), 1 << 20)
        .await
        .unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let id = &message["id"];
    let result = match message["method"].as_str() {
        _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
        None => {
            desk.answered(&message);
            return StatusCode::ACCEPTED.into_response();
        }
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "desk", "version": "1" },
        }),
        Some("tools/list") => {
            json!({ "tools": [{ "name": "ask", "inputSchema": { "type": "object" } }] })
        }
        Some("tools/call") => return desk.call(id),
        Some(_) => {
            let error = json!({ "code": -32601, "message": "no" });
            let error = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            return ([("content-type", "application/json")], error.to_string()).into_response();
        }
    };
    let head = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s"),
    ];
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    (head, answer.to_string()).into_response()
}

/// The demo, with a tool of the desk's beside its own.
async fn system(url: &str) -> Separate {
    let mut system =
        Separate::start_with(WARDGATE, Path::new(REPOSITORY), &[("DESK_URL", url)]).await;
    let catalogue: PathBuf = system.example_dir().join("tools.yaml");
    let text = std::fs::read_to_string(&catalogue).unwrap();
    let text = text.replacen("\nsources:\n", &format!("\nsources:{SOURCE}"), 1);
    let text = text.replacen("\ntools:\n", &format!("\ntools:{TOOL}"), 1);
    assert!(text.contains("ask_at_the_desk") && text.contains("DESK_URL"));
    std::fs::write(catalogue, text).unwrap();
    system.restart("tool-runner");
    let token = system.token("dr.yenji", "Doctor", &[]);
    until("the tool is there", async || {
        let names = system.client().tool_names(&token).await;
        names
            .iter()
            .any(|name| name == "ask_at_the_desk")
            .then_some(())
    })
    .await;
    system
}

/// A client of 2025-11-25.
struct Client {
    http: reqwest::Client,
    token: String,
    /// Once it has begun.
    session: Option<String>,
    last: String,
}

impl Client {
    fn request(&self, system: &Separate, method: Method) -> reqwest::RequestBuilder {
        let url = format!("{}/mcp", system.client().base());
        let request = self
            .http
            .request(method, url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        match &self.session {
            Some(session) => request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25"),
            None => request,
        }
    }

    async fn begin(system: &Separate) -> Self {
        let mut client = Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            token: system.token("dr.yenji", "Doctor", &[]),
            session: None,
            last: String::new(),
        };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "journey", "version": "1" },
        } });
        let begun = client.request(system, Method::POST).body(hello.to_string());
        let begun = begun.send().await.unwrap();
        let session = begun.headers()["mcp-session-id"].to_str().unwrap();
        client.session = Some(session.to_owned());
        client
    }

    /// The next message of a stream.
    async fn hear(&mut self, response: &mut reqwest::Response) -> Value {
        let mut read = String::new();
        loop {
            let chunk = timeout(PATIENCE, response.chunk())
                .await
                .expect("it goes on");
            read += std::str::from_utf8(&chunk.unwrap().expect("no end yet")).unwrap();
            while let Some((event, rest)) = read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                read = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let Some(id) = field("id: ") {
                    id.clone_into(&mut self.last);
                }
                if let Some(message) = field("data: ") {
                    return serde_json::from_str(message).unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_an_older_server_holds_open_goes_on_when_the_gateway_is_killed() {
    for asks_on_its_own in [false, true] {
        let (desk, url) = Desk::start(asks_on_its_own).await;
        let mut system = system(&url).await;
        let mut client = Client::begin(&system).await;
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
            "name": "ask_at_the_desk", "arguments": {},
        } });
        let call = client.request(&system, Method::POST).body(call.to_string());
        let mut stream = call.send().await.unwrap();
        let asked = client.hear(&mut stream).await;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        system.restart("gateway");
        system.until_ready(true).await;
        let back = client.request(&system, Method::GET);
        let back = back.header("last-event-id", &client.last).send().await;
        let mut stream = back.unwrap();
        assert_eq!(stream.status(), 200);
        let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer });
        let answer = client
            .request(&system, Method::POST)
            .body(answer.to_string());
        assert_eq!(answer.send().await.unwrap().status(), 202);
        let done = client.hear(&mut stream).await;
        assert_eq!(done["id"], 7, "{done}");
        let text = &done["result"]["content"][0]["text"];
        assert_eq!(*text, "Hello, \"Ann\"", "{done}");
        assert_eq!(*desk.calls.lock().unwrap(), 1, "it ran once");
    }
}
