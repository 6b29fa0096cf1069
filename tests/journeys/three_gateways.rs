//! A test of three gateways behind one address, while each of them is killed and restarted.
//!
//! ```text
//!  clients of two eras ──▶ round-robin ──▶ gateway ×3 ──▶ policy · tool-runner · audit
//!    each connection to the next                  │            └──▶ an MCP server that asks for a name
//!                                                 └──▶ PostgreSQL: sessions, streams, single use
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;
use wardgate_testkit::{EventStreamClient, WardgateProcess, free_port, run, until};

use super::clinic;
use super::postgres::Database;
use crate::WARDGATE;

/// A tool that asks for a name in its response, and greets that name.
const TOOL: &str = "clinic__test_input_required_result_elicitation";

/// The key of the server's question.
const KEY: &str = "user_name";

/// A timeout longer than a stream needs to continue, because another gateway considers a stream orphaned only after a while.
const PATIENCE: Duration = Duration::from_secs(90);

/// Number of clients of each era, and of sequential calls of each client.
const CLIENTS: usize = 4;
const CALLS: usize = 12;

const CATALOGUE: &str = r#"
sources:
  clinic:
    type: mcp
    url: "${CLINIC_URL}"
    private: [127.0.0.0/8]
    pins: first_use
    tags: [clinic]
    classes: { content: phi.text, structuredContent: phi.text, error: public }
"#;

const POLICIES: &str = r#"
@id("doctor-uses")
permit (principal in Role::"Doctor", action == Action::"call_tool", resource in Tag::"clinic");
@id("doctor-sees")
permit (principal in Role::"Doctor", action == Action::"show_clear", resource);
"#;

/// The whole system.
pub(super) struct Cluster {
    dir: TempDir,
    fixture: WardgateProcess,
    services: Vec<WardgateProcess>,
    /// The port and the process of each gateway.
    pub(super) gateways: Vec<(u16, WardgateProcess)>,
    /// The URL to which clients connect.
    address: String,
    token: String,
    environment: Vec<(String, String)>,
}

impl Cluster {
    /// Starts the system with `settings` of the environment besides the store.
    pub(super) async fn start(store: &str, settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = Path::new(WARDGATE).with_file_name("wardgate-fixture");
        assert!(
            program.is_file(),
            "build it: cargo build -p wardgate-fixture"
        );
        let record = dir.path().join("record").display().to_string();
        // Its tools ask as in 2026-07-28, which a server of both eras refuses in a legacy session.
        let options = ["--era", "modern", "--record", &record];
        let fixture = WardgateProcess::start(&program, &options, &[]);
        let url = fixture.ready_line().split_whitespace().nth(1).unwrap();
        let mut environment = vec![
            ("CLINIC_URL".to_owned(), url.to_owned()),
            ("WARDGATE_GATEWAY__STORE".to_owned(), store.to_owned()),
        ];
        let settings = settings.iter();
        environment.extend(settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let data = dir.path().join("data").display().to_string();
        run(
            WARDGATE.as_ref(),
            &["certs", "dev", "--data-dir", &data],
            &[],
        )
        .success();
        configure(dir.path());
        let mut cluster = Self {
            fixture,
            services: Vec::new(),
            gateways: Vec::new(),
            address: String::new(),
            token: doctor_token(dir.path(), "dr.yenji"),
            environment,
            dir,
        };
        for service in ["audit", "policy", "tool-runner"] {
            cluster.services.push(cluster.process(service, &[]));
        }
        for _ in 0..3 {
            let port = free_port();
            cluster.gateways.push((port, cluster.gateway(port)));
        }
        let ports = cluster.gateways.iter().map(|(port, _)| *port).collect();
        cluster.address = round_robin(ports).await;
        for (port, _) in &cluster.gateways {
            ready(*port).await;
        }
        cluster
    }

    fn process(&self, name: &str, more: &[(&str, &str)]) -> WardgateProcess {
        let config = self.dir.path().join("wardgate.yaml").display().to_string();
        let environment = self.environment.iter();
        let mut environment: Vec<(&str, &str)> = environment
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        environment.extend(more);
        WardgateProcess::start(
            WARDGATE.as_ref(),
            &[name, "--config", &config],
            &environment,
        )
    }

    fn gateway(&self, port: u16) -> WardgateProcess {
        let listen = format!("127.0.0.1:{port}");
        self.process("gateway", &[("WARDGATE_GATEWAY__LISTEN", &listen)])
    }

    /// Returns a token of the doctor `subject`.
    pub(super) fn token_of(&self, subject: &str) -> String {
        doctor_token(self.dir.path(), subject)
    }

    /// Returns how often the server greeted each name.
    fn count_greetings(&self) -> HashMap<String, usize> {
        let _ = &self.fixture;
        let text = std::fs::read_to_string(self.dir.path().join("record")).unwrap();
        let mut greeted = HashMap::new();
        for line in text.lines() {
            let request: Value = serde_json::from_str(line).unwrap();
            let body = match &request["body"] {
                Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
                other => other.clone(),
            };
            let given = &body["params"]["inputResponses"][KEY]["content"]["name"];
            if let Some(name) = given.as_str() {
                *greeted.entry(name.to_owned()).or_default() += 1;
            }
        }
        greeted
    }
}

fn doctor_token(dir: &Path, subject: &str) -> String {
    let data = dir.join("data").display().to_string();
    let token = [
        "token",
        "--sub",
        subject,
        "--role",
        "Doctor",
        "--data-dir",
        &data,
    ];
    let token = run(WARDGATE.as_ref(), &token, &[]).success();
    token.trim().to_owned()
}

/// Writes the configuration files of every process.
fn configure(dir: &Path) {
    let (policy, tool_runner, audit) = (free_port(), free_port(), free_port());
    let tls = |name: &str| {
        format!(
            "{{ ca: data/certs/ca.pem, cert: data/certs/{name}.pem, key: data/certs/{name}.key }}"
        )
    };
    let settings = format!(
        r#"
gateway:
  auth: &issuers
    issuers:
      - issuer: https://issuer.wardgate.internal
        audience: wardgate
        jwks: {{ file: data/keys/jwks.json }}
  links:
    policy: https://127.0.0.1:{policy}
    tool_runner: https://127.0.0.1:{tool_runner}
    audit: https://127.0.0.1:{audit}
  tls: {}
  session_key_file: data/keys/session.key
policy:
  listen: 127.0.0.1:{policy}
  tls: {}
  permit_key_file: data/keys/permit.pem
  policies: policies
  auth: *issuers
tool_runner:
  listen: 127.0.0.1:{tool_runner}
  tls: {}
  permit_public_key_files: [data/keys/permit.pub]
  pseudonym_key_file: data/keys/pseudonym.key
  catalogue: tools.yaml
  store: sqlite:data/tool-runner.sqlite
  links: {{ audit: "https://127.0.0.1:{audit}" }}
audit:
  listen: 127.0.0.1:{audit}
  tls: {}
  mac_key_file: data/keys/audit-mac.key
  log_key_file: data/keys/audit-log.pem
  details_key_file: data/keys/audit-details.key
  store: sqlite:data/audit.sqlite
"#,
        tls("gateway"),
        tls("policy"),
        tls("tool-runner"),
        tls("audit"),
    );
    clinic::configure(dir, &settings, CATALOGUE, POLICIES);
}

/// Starts a proxy that forwards each connection to the next gateway that accepts it.
async fn round_robin(ports: Vec<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let next = AtomicUsize::new(0);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let first = next.fetch_add(1, Ordering::Relaxed);
            let order: Vec<u16> = (first..first + ports.len())
                .map(|n| ports[n % ports.len()])
                .collect();
            tokio::spawn(async move {
                for port in order {
                    if let Ok(mut gateway) = TcpStream::connect(("127.0.0.1", port)).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

async fn ready(port: u16) {
    let url = format!("http://127.0.0.1:{port}/ready");
    until("a gateway is ready", async || {
        let reply = reqwest::get(&url).await.ok()?;
        reply.status().is_success().then_some(())
    })
    .await;
}

/// The end of a call, as its client sees it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The name was greeted.
    Greeted,
    /// The call ended with an error, which says that the call may have run or was not answered.
    Error(String),
    /// The client did not learn that its call had begun.
    Unheard,
}

/// A client that opens a new connection for every request.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    fn for_cluster(cluster: &Cluster) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        Self {
            http,
            url: format!("{}/mcp", cluster.address),
            token: cluster.token.clone(),
        }
    }

    fn request(
        &self,
        method: reqwest::Method,
        headers: &[(&str, &str)],
    ) -> reqwest::RequestBuilder {
        let mut request = self
            .http
            .request(method, &self.url)
            .bearer_auth(&self.token);
        request = request
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    fn post(&self, headers: &[(&str, &str)], message: &Value) -> reqwest::RequestBuilder {
        self.request(reqwest::Method::POST, headers)
            .body(message.to_string())
    }

    /// Opens a session of 2025-11-25 as a client that can fill in forms.
    async fn session(&self) -> String {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "journey", "version": "1" },
        } });
        until("a session begins", async || {
            let reply = self.post(&[], &hello).send().await.ok()?;
            let session = reply.headers().get("mcp-session-id")?;
            Some(session.to_str().unwrap().to_owned())
        })
        .await
    }
}

/// One call of a session, on one or several streams.
struct Call {
    client: Client,
    session: String,
    id: u64,
    name: String,
    last: Option<String>,
}

impl Call {
    fn headers(&self) -> [(&str, &str); 2] {
        [
            ("mcp-session-id", self.session.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ]
    }

    async fn end(mut self) -> End {
        let call = json!({ "jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": {
            "name": TOOL, "arguments": {},
        } });
        let headers = self.headers();
        let mut response = self.client.post(&headers, &call).send().await.ok();
        loop {
            if let Some(response) = response.take()
                && let Some(end) = self.read_stream(response).await
            {
                return end;
            }
            let Some(last) = self.last.clone() else {
                return End::Unheard;
            };
            let mut headers = self.headers().to_vec();
            headers.push(("last-event-id", last.as_str()));
            let back = self.client.request(reqwest::Method::GET, &headers);
            response = match back.send().await {
                Ok(response) if response.status() == 200 => Some(response),
                Ok(response) if response.status() == 503 => None,
                Ok(response) => panic!("{}: {:?}", response.status(), response.text().await),
                Err(_) => None,
            };
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads a stream to its end, and answers the questions on it. Returns `None` if the stream broke off.
    async fn read_stream(&mut self, response: reqwest::Response) -> Option<End> {
        if response.headers()["content-type"] == "application/json" {
            let answer = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
            return Some(self.judge(&answer));
        }
        let mut stream = EventStreamClient::new(response);
        loop {
            let message = stream.try_next_message().await;
            if !stream.last_id.is_empty() {
                self.last = Some(stream.last_id.clone());
            }
            let message = message.ok()??;
            if message.get("method").is_none() {
                return Some(self.judge(&message));
            }
            assert_eq!(message["method"], "elicitation/create", "{message}");
            self.answer(&message["id"]).await;
        }
    }

    async fn answer(&self, id: &Value) {
        // A person takes some time to answer, in which gateways may be killed.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let result = json!({ "action": "accept", "content": { "name": self.name } });
        let response = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        until("the answer is taken", async || {
            let reply = self.client.post(&self.headers(), &response).send().await;
            let status = reply.ok()?.status();
            assert!(status == 202 || status.is_server_error(), "{status}");
            (status == 202).then_some(())
        })
        .await;
    }

    fn judge(&self, answer: &Value) -> End {
        assert_eq!(
            answer["id"], self.id,
            "the answer of another call: {answer}"
        );
        if let Some(message) = answer["error"]["message"].as_str() {
            return End::Error(message.to_owned());
        }
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}"));
        if answer["result"]["isError"] == true {
            return End::Error(text.to_owned());
        }
        assert_eq!(text, format!("Hello, {}!", self.name), "of another call");
        End::Greeted
    }
}

/// Makes one call as a modern client, which answers the question in the response with a second request.
async fn modern(client: Client, name: String) -> End {
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", TOOL),
    ];
    let call = |id: u64, more: Value| {
        let mut params = json!({ "name": TOOL, "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        } });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let ask = async |message: &Value| -> Option<Value> {
        let reply = client.post(&headers, message).send().await.ok()?;
        serde_json::from_slice(&reply.bytes().await.ok()?).ok()
    };
    // The tool has not run yet, so a request without a response is repeated.
    let asked = until("the first leg ends", async || {
        let answer = ask(&call(1, json!({}))).await?;
        (answer["result"]["resultType"] == "input_required").then_some(answer)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = call(
        2,
        json!({
            "requestState": asked["result"]["requestState"],
            "inputResponses": { KEY: { "action": "accept", "content": { "name": name } } },
        }),
    );
    let Some(answer) = ask(&again).await else {
        return End::Unheard;
    };
    assert_eq!(answer["id"], 2);
    if let Some(message) = answer["error"]["message"].as_str() {
        return End::Error(message.to_owned());
    }
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(*text, format!("Hello, {name}!"));
    End::Greeted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_is_lost_doubled_or_answered_elsewhere_while_every_gateway_is_killed_once() {
    LocalSet::new().run_until(every_gateway_is_killed()).await;
}

async fn every_gateway_is_killed() {
    let Some(database) = Database::create().await else {
        return;
    };
    let mut cluster = Cluster::start(&database.url, &[]).await;
    let client = Client::for_cluster(&cluster);
    // No gateway has been killed yet, but a busy store may require another attempt.
    until("a call is answered", async || {
        let end = modern(client.clone(), "the first".to_owned()).await;
        (end == End::Greeted).then_some(())
    })
    .await;
    let ends: Arc<Mutex<Vec<(String, End)>>> = Arc::default();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let (legacy, newer) = (client.clone(), client.clone());
        let (heard, also_heard) = (Arc::clone(&ends), Arc::clone(&ends));
        clients.push(spawn_local(async move {
            let session = legacy.session().await;
            for id in 0..CALLS as u64 {
                // Two calls run concurrently, so that their streams could be confused.
                let call = |id: u64| Call {
                    client: legacy.clone(),
                    session: session.clone(),
                    id,
                    name: format!("legacy {number}.{id}"),
                    last: None,
                };
                let (one, other) = (call(2 * id), call(2 * id + 1));
                let names = [one.name.clone(), other.name.clone()];
                let both = timeout(PATIENCE, async { tokio::join!(one.end(), other.end()) });
                let (one, other) = both.await.expect("every call has an end");
                heard
                    .lock()
                    .unwrap()
                    .extend(names.into_iter().zip([one, other]));
            }
        }));
        clients.push(spawn_local(async move {
            for call in 0..CALLS {
                let name = format!("modern {number}.{call}");
                let end = timeout(PATIENCE, modern(newer.clone(), name.clone()));
                let end = end.await.expect("every call has an end");
                also_heard.lock().unwrap().push((name, end));
            }
        }));
    }
    for index in 0..cluster.gateways.len() {
        let so_far = ends.lock().unwrap().len();
        until("calls go on", async || {
            (ends.lock().unwrap().len() >= so_far + 2 * CLIENTS).then_some(())
        })
        .await;
        let port = cluster.gateways[index].0;
        cluster.gateways[index].1.kill();
        cluster.gateways[index].1 = cluster.gateway(port);
        ready(port).await;
    }
    for client in clients {
        client.await.unwrap();
    }

    let ends = std::mem::take(&mut *ends.lock().unwrap());
    let greeted = cluster.count_greetings();
    assert_eq!(ends.len(), CLIENTS * CALLS * 3);
    for (name, end) in &ends {
        let times = greeted.get(name).copied().unwrap_or_default();
        match end {
            End::Greeted => assert_eq!(times, 1, "{name} was answered"),
            End::Error(_) | End::Unheard => assert!(times <= 1, "{name} ran {times} times"),
        }
    }
    let count = |wanted: fn(&End) -> bool| ends.iter().filter(|(_, end)| wanted(end)).count();
    let errors = count(|end| matches!(end, End::Error(_)));
    let unheard = count(|end| *end == End::Unheard);
    eprintln!("{} calls: {errors} errors, {unheard} unheard", ends.len());
    // Of the calls that were in progress at a killed gateway, most waited for a person and continued.
    assert!(errors + unheard <= 3 * 3 * CLIENTS, "{ends:?}");
    cluster.services.clear();
    drop(cluster);
    database.remove().await;
}
