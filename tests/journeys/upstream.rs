//! Tests of the route of one upstream server, which is the server of the official conformance suite.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_testkit::{Reply, System, TestApp, WardgateProcess, until};

use crate::WARDGATE;

const ROUTE: &str = "/mcp/upstream/clinic";

/// The token that the server accepts.
const SERVERS_OWN: &str = "the-servers-own";

const CATALOGUE: &str = r#"
sources:
  clinic:
    type: mcp
    url: "${CLINIC_URL}"
    auth: { type: bearer, token: "${CLINIC_TOKEN}" }
    private: [127.0.0.0/8]
    pins: first_use
    tags: [clinic]
    classes: { content: phi.text, structuredContent: phi.text, error: public }
"#;

/// Policies that permit the same calls to two roles, with different columns.
const POLICIES: &str = r#"
@id("doctor-uses")
permit (
  principal in Role::"Doctor",
  action in [Action::"call_tool", Action::"connect", Action::"read_resource", Action::"get_prompt"],
  resource in Tag::"clinic"
);
@id("clerk-uses")
permit (
  principal in Role::"Clerk",
  action in [Action::"call_tool", Action::"connect", Action::"read_resource", Action::"get_prompt"],
  resource in Tag::"clinic"
);
@id("doctor-sees")
permit (principal in Role::"Doctor", action == Action::"show_clear", resource);
@id("clerk-sees")
permit (principal in Role::"Clerk", action == Action::"show_clear", resource == Class::"public");
"#;

/// The server, and the requests that it received.
struct Upstream {
    process: WardgateProcess,
    files: TempDir,
}

impl Upstream {
    fn start() -> Self {
        let program = Path::new(WARDGATE).with_file_name("wardgate-fixture");
        assert!(
            program.is_file(),
            "build it: cargo build -p wardgate-fixture"
        );
        let files = tempfile::tempdir().unwrap();
        let record = files.path().join("record").display().to_string();
        let options = ["--require-bearer", SERVERS_OWN, "--record", &record];
        let process = WardgateProcess::start(&program, &options, &[]);
        Self { process, files }
    }

    fn url(&self) -> &str {
        self.process.ready_line().split_whitespace().nth(1).unwrap()
    }

    /// Returns every request, oldest first.
    fn saw(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.files.path().join("record")).unwrap();
        let request = |line| serde_json::from_str(line).unwrap();
        text.lines().map(request).collect()
    }
}

/// Writes the configuration of a gateway in front of one server.
pub(super) fn configuration() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let policies = dir.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("clinic.cedar"), POLICIES).unwrap();
    std::fs::write(dir.path().join("tools.yaml"), CATALOGUE).unwrap();
    let settings = "policy: { policies: policies }\ntool_runner: { catalogue: tools.yaml }\n";
    std::fs::write(dir.path().join("wardgate.yaml"), settings).unwrap();
    dir
}

/// Starts a gateway in front of the server at `url`, and waits until its tools are known.
pub(super) async fn gateway(url: &str) -> TestApp {
    gateway_with(url, &[]).await
}

pub(super) async fn gateway_with(url: &str, environment: &[(&str, &str)]) -> TestApp {
    start(configuration().path(), url, environment).await
}

/// Starts such a gateway, which also offers the server's prompts and resources.
async fn gateway_with_content(url: &str) -> TestApp {
    let files = configuration();
    let offered = "    prompts: all\n    resources: all\n    tags: [clinic]\n";
    let catalogue = CATALOGUE.replace("    tags: [clinic]\n", offered);
    std::fs::write(files.path().join("tools.yaml"), catalogue).unwrap();
    start(files.path(), url, &[]).await
}

async fn start(files: &Path, url: &str, environment: &[(&str, &str)]) -> TestApp {
    let mut environment = environment.to_vec();
    environment.extend([("CLINIC_URL", url), ("CLINIC_TOKEN", SERVERS_OWN)]);
    let app = TestApp::start_example(WARDGATE, files, "clinic", &environment);
    knows_tools(&app).await;
    app
}

async fn knows_tools(app: &TestApp) {
    let doctor = doctor(app);
    until("the server's tools are known", async || {
        let names = app.client().tool_names(&doctor).await;
        (!names.is_empty()).then_some(())
    })
    .await;
}

pub(super) fn doctor(app: &TestApp) -> String {
    app.token("dr.yenji", "Doctor", &[])
}

fn clerk(app: &TestApp) -> String {
    app.token("clerk.ana", "Clerk", &[])
}

/// Returns the response in a reply, whether it is a JSON body or on a stream.
fn answer(reply: &Reply) -> Value {
    if reply.headers["content-type"] == "application/json" {
        return reply.json();
    }
    let data = reply
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let mut messages = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let answer = messages.find(|message| message.get("method").is_none());
    answer.unwrap_or_else(|| panic!("no answer in {reply:?}"))
}

async fn modern(app: &TestApp, token: &str, method: &str, params: Value) -> Reply {
    let named = ["name", "uri"].map(|member| params[member].as_str().map(str::to_owned));
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "debug",
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("cookie", "session=theirs"),
        ("mcp-session-id", "theirs"),
        ("x-api-key", "theirs"),
    ];
    let named = named.iter().flatten().next();
    headers.extend(named.map(|name| ("mcp-name", name.as_str())));
    let client = app.client();
    client
        .post(ROUTE, Some(token), &headers, body.to_string())
        .await
}

/// A session of a client of 2025-11-25.
struct Session {
    token: String,
    id: String,
}

impl Session {
    async fn begin(app: &TestApp, token: &str) -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "a-client", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let client = app.client();
        let reply = client.post(ROUTE, Some(token), &[], body.to_string()).await;
        assert_eq!(answer(&reply)["result"]["protocolVersion"], "2025-11-25");
        Self {
            token: token.to_owned(),
            id: reply.headers["mcp-session-id"].to_str().unwrap().to_owned(),
        }
    }

    async fn post(&self, app: &TestApp, message: &Value) -> Reply {
        let headers = [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-session-id", self.id.as_str()),
            ("cookie", "session=theirs"),
        ];
        let client = app.client();
        client
            .post(ROUTE, Some(&self.token), &headers, message.to_string())
            .await
    }

    async fn ready(&self, app: &TestApp) {
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(app, &ready).await.status, 202);
    }

    async fn send_request(&self, app: &TestApp, method: &str, params: Value) -> Reply {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.post(app, &message).await
    }

    async fn call(&self, app: &TestApp, tool: &str) -> Reply {
        let params = json!({
            "name": tool,
            "arguments": { "message": "Who are you?" },
            "_meta": { "progressToken": "p" },
        });
        self.send_request(app, "tools/call", params).await
    }
}

fn text_of(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {} })
}

#[tokio::test]
async fn what_a_role_may_not_see_does_not_come_through_in_any_way() {
    let upstream = Upstream::start();
    let app = gateway_with_content(upstream.url()).await;
    let (doctor, clerk) = (doctor(&app), clerk(&app));
    let listed = modern(&app, &doctor, "tools/list", json!({})).await;
    assert!(answer(&listed)["result"]["tools"].as_array().unwrap().len() > 30);
    for (method, params, words) in [
        ("tools/call", text_of("test_simple_text"), "simple text"),
        // The server sends a notification within the call.
        (
            "tools/call",
            text_of("test_tool_with_logging"),
            "Tool processing data",
        ),
        (
            "resources/read",
            json!({ "uri": "test://static-text" }),
            "static text resource",
        ),
        (
            "prompts/get",
            json!({ "name": "test_simple_prompt" }),
            "simple prompt",
        ),
    ] {
        let clear = modern(&app, &doctor, method, params.clone()).await;
        let receipt = &answer(&clear)["result"]["_meta"]["dev.wardgate/receipt"];
        assert!(receipt["leafHash"].is_string(), "{method} {clear:?}");
        assert!(clear.body.contains(words), "{method} {clear:?}");
        let closed = modern(&app, &clerk, method, params).await;
        assert_eq!(answer(&closed)["id"], 1);
        assert!(!closed.body.contains(words), "{method} {closed:?}");
    }

    for (token, sees) in [(&doctor, true), (&clerk, false)] {
        let session = Session::begin(&app, token).await;
        session.ready(&app).await;
        let reply = session.call(&app, "test_simple_text").await;
        assert_eq!(answer(&reply)["id"], 7);
        assert_eq!(reply.body.contains("simple text"), sees, "{reply:?}");
        let reply = session.call(&app, "test_tool_with_progress").await;
        assert_eq!(reply.body.matches("notifications/progress").count(), 3);
    }
    let session = Session::begin(&app, &clerk).await;
    session.ready(&app).await;
    // The client is not asked, and the server gets an error, so that the call ends.
    let reply = session.call(&app, "test_elicitation").await;
    assert_eq!(answer(&reply)["id"], 7);
    assert!(!reply.body.contains("Who are you?"), "{reply:?}");

    let records = app.records();
    let of = |event: &str, member: &str| -> BTreeSet<String> {
        let own = records.iter().filter(|record| record["event"] == event);
        own.map(|record| record[member].to_string()).collect()
    };
    let (intents, outcomes) = (of("intent", "call_id"), of("outcome", "call_id"));
    assert_eq!((intents.len(), outcomes.len()), (9, 13));
    assert!(intents.is_subset(&outcomes));
    let users = BTreeSet::from([r#""clerk.ana""#.to_owned(), r#""dr.yenji""#.to_owned()]);
    assert_eq!(of("outcome", "user"), users);
    let mut of_doctor = records
        .iter()
        .filter(|record| record["user"] == "dr.yenji" && record["event"] == "outcome");
    assert!(of_doctor.all(|outcome| outcome["status"] == "ok"));
}

fn header<'a>(request: &'a Value, name: &str) -> Option<&'a str> {
    let headers = request["headers"].as_array().unwrap();
    let own = headers.iter().find(|header| header[0] == name);
    own.and_then(|header| header[1].as_str())
}

#[tokio::test]
async fn a_server_sees_nothing_of_a_clients_credentials() {
    let upstream = Upstream::start();
    let app = gateway_with_content(upstream.url()).await;
    let token = doctor(&app);
    let session = Session::begin(&app, &token).await;
    session.ready(&app).await;
    session.call(&app, "test_simple_text").await;
    session.send_request(&app, "tools/list", json!({})).await;
    modern(&app, &token, "tools/list", json!({})).await;
    modern(&app, &token, "tools/call", text_of("test_simple_text")).await;
    modern(
        &app,
        &token,
        "resources/read",
        json!({ "uri": "test://static-text" }),
    )
    .await;
    let saw = upstream.saw();
    let of_client = saw
        .iter()
        .filter(|request| request.to_string().contains("test_simple_text"));
    assert_eq!(of_client.count(), 2);
    let own = format!("Bearer {SERVERS_OWN}");
    for request in saw {
        assert_eq!(header(&request, "authorization"), Some(own.as_str()));
        assert_eq!(header(&request, "cookie"), None);
        let text = request.to_string();
        for theirs in [&token, &session.id, "theirs"] {
            assert!(!text.contains(theirs), "{text}");
        }
    }
}
