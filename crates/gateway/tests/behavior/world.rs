//! A gateway with fake neighbouring services, and a client of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wardgate_domain::Clock;
use wardgate_edge::BoundListener;
use wardgate_gateway::{Config, Gateway, Neighbours, SessionKey};
use wardgate_rpc::{Peer, Shutdown, probes};
use wardgate_telemetry::{Guard, Metrics};
use wardgate_testkit::{
    FakeAudit, FakeMemory, FakePolicy, FakeToolRunner, PATIENCE, TestClock, TestIssuer, listed_tool,
};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const OLDEST: &str = "2025-03-26";

pub(crate) const ISSUER: &str = "https://id.hospital.example";
pub(crate) const AUDIENCE: &str = "wardgate";

/// An issuer of tokens that uses the gateway's clock.
pub(crate) struct Issuer {
    keys: TestIssuer,
    clock: TestClock,
}

impl Issuer {
    /// Returns a token that is valid for an hour.
    pub(crate) fn token(&self, subject: &str, roles: &[&str]) -> String {
        self.token_until(subject, roles, self.clock.now().as_seconds() + 3_600)
    }

    /// Returns a token of `dr.lee` with additional claims.
    pub(crate) fn token_saying(&self, claims: &Value) -> String {
        let mut all = json!({
            "sub": "dr.lee", "roles": ["Doctor"], "exp": self.clock.now().as_seconds() + 3_600,
        });
        let own = all.as_object_mut().unwrap();
        own.extend(claims.as_object().unwrap().clone());
        self.keys.token(&all)
    }

    pub(crate) fn token_until(&self, subject: &str, roles: &[&str], end: i64) -> String {
        self.keys
            .token(&json!({ "sub": subject, "roles": roles, "exp": end }))
    }
}

/// A gateway with its neighbouring services.
pub(crate) struct World {
    pub(crate) policy: Arc<FakePolicy>,
    pub(crate) tool_runner: Arc<FakeToolRunner>,
    pub(crate) audit: Arc<FakeAudit>,
    pub(crate) memory: Arc<FakeMemory>,
    pub(crate) clock: TestClock,
    pub(crate) issuer: Issuer,
    /// A token of `dr.lee`, who has the role Doctor.
    pub(crate) token: String,
    pub(crate) address: SocketAddr,
    pub(crate) http: reqwest::Client,
    /// The settings of the issuers whose tokens the gateway accepts.
    auth: Value,
    /// The setting of the gateway's store.
    store: Value,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    /// The directory of the store. It is shared with twins, so that it remains when the gateway that created it stops.
    files: Arc<tempfile::TempDir>,
}

fn written_settings(address: SocketAddr, files: &Path, jwks: &Path) -> Value {
    json!({
        "listen": "127.0.0.1:0",
        "public_url": "https://mcp.hospital.example",
        "advertise": format!("http://{address}"),
        "store": format!("sqlite:{}", files.join("gateway.sqlite").display()),
        "auth": { "issuers": [
            { "issuer": ISSUER, "audience": AUDIENCE, "jwks": { "file": jwks } },
        ]},
    })
}

impl World {
    /// Starts a gateway with the tools `reads`, `writes` and `slow`. Everything is ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(json!({})).await
    }

    /// Starts a gateway without a memory service.
    pub(crate) async fn start_without_memory(settings: Value) -> Self {
        Self::start_among(settings, false).await
    }

    /// Starts a gateway with other settings.
    pub(crate) async fn start_with(settings: Value) -> Self {
        Self::start_among(settings, true).await
    }

    async fn start_among(settings: Value, remembers: bool) -> Self {
        let clock = TestClock::at(1_800_000_000);
        let ambient = clock.ambient();
        let issuer = Issuer {
            keys: TestIssuer::new(ISSUER),
            clock: clock.clone(),
        };
        let files = Arc::new(tempfile::tempdir().unwrap());
        let jwks = files.path().join("jwks.json");
        std::fs::copy(issuer.keys.key_set(), &jwks).unwrap();

        let policy = FakePolicy::new(ambient.clone());
        let tools = ["reads", "writes", "slow"].map(|name| listed_tool(name, &definition()));
        let tool_runner = FakeToolRunner::new(policy.verifier(), ambient.clone(), tools.to_vec());
        let audit = FakeAudit::new(Peer::Gateway);
        let memory = FakeMemory::new(ambient.clone());
        let neighbours = Neighbours {
            policy: policy.link(Peer::Gateway),
            tool_runner: tool_runner.link(),
            audit: audit.link(),
            memory: remembers.then(|| memory.link()),
        };

        let bound = BoundListener::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = bound.address();
        let mut written = written_settings(address, files.path(), &jwks);
        let settings = settings.as_object().unwrap().clone();
        written.as_object_mut().unwrap().extend(settings);
        let (auth, store) = (written["auth"].clone(), written["store"].clone());
        let config: Config = serde_json::from_value(written).unwrap();
        let key = SessionKey::from_bytes(&[3; 32]);
        let gateway = Gateway::new(config, &bound, neighbours, &key, ambient)
            .await
            .unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(
            Arc::clone(&gateway).serve(
                bound,
                gateway
                    .router()
                    .merge(probes::router(gateway.parts(), &metrics())),
                Shutdown::when(async {
                    let _ = stopped.await;
                }),
            ),
        );
        tokio::time::timeout(PATIENCE, gateway.ready())
            .await
            .unwrap();

        if remembers {
            memory.watches.reaches(1).await;
        }

        let token = issuer.token("dr.lee", &["Doctor"]);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            policy,
            tool_runner,
            audit,
            memory,
            clock,
            issuer,
            token,
            address,
            http,
            auth,
            store,
            stop,
            served,
            files,
        }
    }

    /// Starts another gateway for the same callers and with the same store, but with separate neighbouring services.
    pub(crate) async fn twin(&self) -> Self {
        let shared = json!({ "auth": self.auth, "store": self.store });
        let twin = Self::start_with(shared).await;
        Self {
            token: self.token.clone(),
            files: Arc::clone(&self.files),
            ..twin
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Creates a message to `/mcp` of a client of `version`. `params` is written without braces.
    pub(crate) fn message(&self, version: &str, method: &str, params: &str) -> RequestBuilder {
        self.message_of(&self.token, version, method, params)
    }

    pub(crate) fn message_of(
        &self,
        token: &str,
        version: &str,
        method: &str,
        params: &str,
    ) -> RequestBuilder {
        let mut members: Vec<String> = Vec::new();
        if version == MODERN {
            members.push(META.to_owned());
        }
        if !params.is_empty() {
            members.push(params.to_owned());
        }
        let params = members.join(",");
        let request = self
            .http
            .post(self.url("/mcp"))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", version)
            .body(format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}}}}}"#
            ));
        if version == MODERN {
            request.header("mcp-method", method)
        } else {
            request
        }
    }

    /// Creates a call of a tool. `arguments` is a JSON object.
    pub(crate) fn tools_call(&self, version: &str, tool: &str, arguments: &str) -> RequestBuilder {
        self.tools_call_of(&self.token, version, tool, arguments)
    }

    pub(crate) fn tools_call_of(
        &self,
        token: &str,
        version: &str,
        tool: &str,
        arguments: &str,
    ) -> RequestBuilder {
        let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
        let request = self.message_of(token, version, "tools/call", &params);
        if version == MODERN {
            request.header("mcp-name", tool)
        } else {
            request
        }
    }

    /// Calls a tool as a modern client, without arguments.
    pub(crate) async fn call(&self, tool: &str) -> Reply {
        Reply::to(self.tools_call(MODERN, tool, "{}")).await
    }

    /// Calls a tool in a separate task.
    pub(crate) fn spawn_call(&self, version: &str, tool: &str) -> JoinHandle<Reply> {
        tokio::spawn(Reply::to(self.tools_call(version, tool, "{}")))
    }

    /// Returns all bytes of the gateway's store.
    pub(crate) fn read_store(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.files.path()).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let stored = files.filter(|path| path.display().to_string().contains("gateway.sqlite"));
        stored
            .flat_map(|path| std::fs::read(path).unwrap())
            .collect()
    }

    /// Stops the gateway. Its store is removed after the gateway has stopped.
    pub(crate) fn stop(self) -> JoinHandle<()> {
        self.stop.send(()).unwrap();
        let (served, files) = (self.served, self.files);
        tokio::spawn(async move {
            served.await.unwrap();
            drop(files);
        })
    }
}

pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// The `_meta` of every modern request.
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The definition of the tools.
pub(crate) fn definition() -> Value {
    json!({
        "title": "A tool",
        "description": "Does as it is told.",
        "inputSchema": { "type": "object", "properties": { "n": { "type": "number" } } },
        "outputSchema": { "type": "object", "properties": { "rows": { "type": "array" } } },
        "annotations": { "readOnlyHint": true },
    })
}

/// Returns the metrics of the process, which can have only one recorder.
fn metrics() -> Metrics {
    static TELEMETRY: OnceLock<Guard> = OnceLock::new();
    let quiet = wardgate_telemetry::Config {
        log: "off".to_owned(),
        ..wardgate_telemetry::Config::default()
    };
    TELEMETRY
        .get_or_init(|| wardgate_telemetry::init(&quiet, "gateway").unwrap())
        .metrics()
}

/// An HTTP response that was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) async fn to(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        let mut json: Value =
            serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"));
        // Snapshots do not depend on the order of members.
        json.sort_all_objects();
        json
    }

    /// Returns the member at a JSON pointer.
    pub(crate) fn at(&self, pointer: &str) -> Value {
        self.json().pointer(pointer).cloned().unwrap_or_default()
    }

    /// Returns the code of a JSON-RPC error, or 0 for a result.
    pub(crate) fn code(&self) -> i64 {
        self.at("/error/code").as_i64().unwrap_or(0)
    }

    /// Returns whether the reply is the error that `parameter` is unknown, which is the same for every problem with it.
    pub(crate) fn is_unknown(&self, parameter: &str) -> bool {
        let words = self.at("/error/message") == format!("unknown `{parameter}`");
        words && self.code() == -32602 && self.status == 200
    }

    /// Returns whether the ordinary result of a tool was released.
    pub(crate) fn is_released(&self) -> bool {
        let released = self.at("/result/isError") == false;
        assert_eq!(released, self.text.contains("secret"), "{self:?}");
        released
    }

    /// Returns the id of a call that ended in an error.
    pub(crate) fn failed_call(&self) -> String {
        let id = self.at("/error/data/dev.wardgate~1callId");
        id.as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// Reads a response with a `Content-Length`, and returns its status and body.
pub(crate) async fn read_response(stream: &mut TcpStream) -> (u16, String) {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "closed early");
        read.push(byte[0]);
    }
    let head = String::from_utf8(read).unwrap().to_ascii_lowercase();
    let status = head[9..12].parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (status, String::from_utf8(body).unwrap())
}
