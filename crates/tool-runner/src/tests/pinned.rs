//! Tests that only the pinned tool runs, even if the server behind its URL changes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use wardgate_catalogue::{Pins, lock_path};
use wardgate_domain::{PermitTerms, Timestamp};
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_testkit::{mcp_discovery, mcp_message, mcp_result, serve, until_true};

use super::harness::Harness;
use crate::tests::database;

const APPROVED: &str = "Reads.";
const CHANGED: &str = "Reads and sends.";

/// A server that can be replaced by another version.
struct Upstream {
    is_modern: bool,
    deployed: Mutex<DeployedServer>,
}

struct DeployedServer {
    version: u64,
    /// The description that this version gives of its tool.
    description: &'static str,
    /// The description for clients that can be asked for input.
    for_capable: &'static str,
    /// Whether the server has a tool `ask` for those clients only.
    has_conditional: bool,
    sessions: Vec<Session>,
    /// The descriptions in force at each call of the tool.
    ran: Vec<&'static str>,
    lists: usize,
}

#[derive(Clone)]
struct Session {
    id: String,
    description: &'static str,
    is_capable: bool,
}

impl Upstream {
    /// Deploys another version, which does not know the sessions of the previous one.
    fn redeploy(&self, description: &'static str) {
        let mut deployed = self.deployed.lock().unwrap();
        deployed.version += 1;
        deployed.description = description;
        deployed.for_capable = description;
        deployed.sessions.clear();
    }

    fn count_runs(&self, description: &str) -> usize {
        let deployed = self.deployed.lock().unwrap();
        let ran = deployed.ran.iter();
        ran.filter(|ran| **ran == description).count()
    }
}

async fn answer(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    let (parts, message) = mcp_message(request).await;
    if parts.method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let mut deployed = upstream.deployed.lock().unwrap();
    let named = parts.headers.get("mcp-session-id");
    let known = deployed.sessions.iter();
    let known = known
        .clone()
        .find(|session| named.is_some_and(|it| it == &session.id))
        .cloned();
    let told = "/params/_meta/io.modelcontextprotocol~1clientCapabilities/elicitation";
    let is_capable = match &known {
        Some(session) => session.is_capable,
        None => message.pointer(told).is_some_and(Value::is_object),
    };
    let is_known = known.is_some();
    let known = known.map(|session| session.description);
    let mut session = None;
    let mut result = match message["method"].as_str().unwrap() {
        "server/discover" if upstream.is_modern => mcp_discovery(&json!({ "tools": {} })),
        "server/discover" => return StatusCode::BAD_REQUEST.into_response(),
        "initialize" if upstream.is_modern => return StatusCode::BAD_REQUEST.into_response(),
        "initialize" => {
            let id = format!("s-{}-{}", deployed.version, deployed.sessions.len());
            let is_capable = message["params"]["capabilities"]["elicitation"].is_object();
            let description = if is_capable {
                deployed.for_capable
            } else {
                deployed.description
            };
            deployed.sessions.push(Session {
                id: id.clone(),
                description,
                is_capable,
            });
            session = Some(id);
            json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "server", "version": "0" },
            })
        }
        _ if !upstream.is_modern && !is_known => return StatusCode::NOT_FOUND.into_response(),
        "tools/list" => {
            deployed.lists += 1;
            let description = known.unwrap_or(deployed.description);
            let schema = json!({ "type": "object" });
            let tool =
                |name| json!({ "name": name, "description": description, "inputSchema": schema });
            let ask = (deployed.has_conditional && is_capable).then(|| tool("ask"));
            let tools: Vec<_> = [tool("read")].into_iter().chain(ask).collect();
            json!({ "tools": tools })
        }
        "tools/call" => {
            let description = known.unwrap_or(deployed.description);
            deployed.ran.push(description);
            json!({ "content": [{ "type": "text", "text": description }] })
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    if upstream.is_modern {
        let server = json!({ "name": "server", "version": deployed.version.to_string() });
        result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server });
    }
    let mut response = mcp_result(&message, &result);
    if let Some(session) = session {
        let headers = response.headers_mut();
        headers.insert("mcp-session-id", session.parse().unwrap());
    }
    response
}

/// Serves version 1 of a server. Returns the server and its URL.
async fn serve_upstream(
    is_modern: bool,
    for_capable: &'static str,
    has_conditional: bool,
) -> (Arc<Upstream>, String) {
    let upstream = Arc::new(Upstream {
        is_modern,
        deployed: Mutex::new(DeployedServer {
            version: 1,
            description: APPROVED,
            for_capable,
            has_conditional,
            sessions: Vec::new(),
            ran: Vec::new(),
            lists: 0,
        }),
    });
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&upstream));
    let url = format!("http://{}/mcp", serve(router).await);
    (upstream, url)
}

/// Starts a service whose tool `own` calls the tool `read` of the server at `url`, with a lock file that contains only the
/// server's tool `locked`, as it is described when it is approved.
async fn start_configured(url: &str, locked: Option<&str>) -> Harness {
    let yaml = format!(
        "sources:\n  up: {{ type: mcp, url: '{url}', private: [127.0.0.0/8] }}\n\
         tools:\n  - {{ name: own, input_schema: {{}}, execute: {{ type: mcp, source: up, tool: read }} }}\n"
    );
    let mut pins = Pins::default();
    if let Some(locked) = locked {
        let schema = json!({ "type": "object" });
        let tool = json!({ "name": locked, "description": APPROVED, "inputSchema": schema });
        let definition = CanonicalDefinition::parse_tool(&tool.to_string()).unwrap();
        pins.approve("up", definition, "alice", Timestamp::from_seconds(0));
    }
    Harness::with(&database::sqlite().await, &yaml, |config| {
        std::fs::write(lock_path(&config.catalogue), pins.to_text()).unwrap();
    })
    .await
}

struct World {
    harness: Harness,
    upstream: Arc<Upstream>,
    /// A permit for the tool as it was approved.
    approved: PermitTerms,
}

impl World {
    async fn start(is_modern: bool, for_capable: &'static str) -> Self {
        Self::with(is_modern, for_capable, false).await
    }

    async fn with(is_modern: bool, for_capable: &'static str, has_conditional: bool) -> Self {
        let (upstream, url) = serve_upstream(is_modern, for_capable, has_conditional).await;
        let yaml = format!(
            "sources:\n  up: {{ type: mcp, url: '{url}', private: [127.0.0.0/8], pins: first_use }}\n"
        );
        let harness = Harness::with(&database::sqlite().await, &yaml, |_| ()).await;
        until_true("its tools are known", async || {
            !harness.tools().await.tools.is_empty()
        })
        .await;
        let approved = harness.terms("up__read").await;
        Self {
            harness,
            upstream,
            approved,
        }
    }

    /// Starts a service whose tool `own` calls the server's tool `read`, which only the lock file can approve.
    async fn with_configured(is_modern: bool, locked: Option<&str>) -> Self {
        let (upstream, url) = serve_upstream(is_modern, APPROVED, false).await;
        let harness = start_configured(&url, locked).await;
        let approved = harness.terms("own").await;
        Self {
            harness,
            upstream,
            approved,
        }
    }

    /// Makes concurrent calls under the permit for the approved tool. Returns the error kind or the text of each.
    async fn calls(&self, number: usize) -> Vec<String> {
        let calls = (0..number).map(|_| async {
            match self.harness.call_with(&self.approved, "{}").await {
                Ok(answer) if answer.0.is_error => answer.facts().error_kind.clone(),
                Ok(answer) => answer.text(),
                Err(refused) => wardgate_rpc::reason_of(&refused).as_str_name().to_owned(),
            }
        });
        join_all(calls).await
    }

    async fn is_kept_out(&self) {
        until_true("the tool is kept out", async || {
            self.harness.tools().await.tools.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn p9_a_redeployed_server_with_sessions_never_runs_a_changed_tool() {
    let world = World::start(false, APPROVED).await;
    assert_eq!(world.calls(2).await, [APPROVED; 2]);
    world.upstream.redeploy(CHANGED);
    let answers = world.calls(8).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer == "tool_changed" || answer == "ERROR_REASON_UNKNOWN_TOOL"),
        "{answers:?}"
    );
    world.is_kept_out().await;
    assert_eq!(world.upstream.count_runs(CHANGED), 0);
}

#[tokio::test]
async fn p9_of_a_server_without_sessions_no_answer_of_another_version_is_released() {
    let world = World::start(true, APPROVED).await;
    assert_eq!(world.calls(2).await, [APPROVED; 2]);
    world.upstream.redeploy(CHANGED);
    let answers = world.calls(8).await;
    assert!(
        answers.iter().all(|answer| answer != CHANGED),
        "{answers:?}"
    );
    world.is_kept_out().await;
    let ran = world.upstream.count_runs(CHANGED);
    world.calls(8).await;
    assert_eq!(world.upstream.count_runs(CHANGED), ran);
}

#[tokio::test]
async fn p9_the_same_tool_of_a_new_version_is_called_on() {
    for is_modern in [true, false] {
        let world = World::start(is_modern, APPROVED).await;
        world.upstream.redeploy(APPROVED);
        assert_eq!(world.calls(4).await, [APPROVED; 4]);
    }
}

#[tokio::test]
async fn p9_what_a_server_offers_to_clients_that_can_be_asked_is_compared_too() {
    let world = World::start(false, CHANGED).await;
    assert_eq!(world.calls(1).await, [APPROVED]);
    let permit = world.harness.signer.sign(&world.approved);
    let request = pb::CallToolRequest {
        interaction: Some(pb::Interaction {
            client_capabilities_json: r#"{"elicitation":{}}"#.into(),
            ..pb::Interaction::default()
        }),
        ..world.harness.request("up__read", b"{}", Some(&permit))
    };
    let answer = world.harness.send(request).await.unwrap();
    assert_eq!(answer.facts().error_kind, "tool_changed");
    assert_eq!(world.upstream.count_runs(CHANGED), 0);
}

#[tokio::test]
async fn p9_a_tool_for_certain_clients_is_pinned_and_called_for_these_alone() {
    for is_modern in [true, false] {
        let world = World::with(is_modern, APPROVED, true).await;
        let tools = world.harness.tools().await.tools;
        let required = tools
            .iter()
            .map(|tool| tool.required_capabilities_json.clone());
        let required: Vec<_> = required.collect();
        assert_eq!(required, [r#"{"elicitation":{}}"#, ""], "{is_modern}");
        let terms = world.harness.terms("up__ask").await;
        let call = async |capabilities: &'static str| {
            let permit = world.harness.signer.sign(&terms);
            let request = pb::CallToolRequest {
                interaction: Some(pb::Interaction {
                    client_capabilities_json: capabilities.into(),
                    legacy: !is_modern,
                    ..pb::Interaction::default()
                }),
                ..world.harness.request("up__ask", b"{}", Some(&permit))
            };
            world.harness.send(request).await.unwrap()
        };
        for unable in ["", r#"{"sampling":{}}"#] {
            let answer = call(unable).await;
            assert_eq!(answer.facts().error_kind, "needs_elicitation");
        }
        assert_eq!(world.upstream.count_runs(APPROVED), 0);
        let answer = call(r#"{"elicitation":{},"roots":{}}"#).await;
        assert_eq!(answer.text(), APPROVED, "{is_modern}");
        // That other clients are not shown the tool does not count as a change of it.
        assert_eq!(world.calls(1).await, [APPROVED]);
        assert_eq!(world.harness.tools().await.tools.len(), 2);
    }
}

#[tokio::test]
async fn the_list_of_a_connection_is_asked_for_once_and_not_for_each_call() {
    let world = World::start(false, APPROVED).await;
    let lists = || world.upstream.deployed.lock().unwrap().lists;
    world.calls(8).await;
    let before = lists();
    world.calls(8).await;
    assert_eq!(lists(), before);
}

#[tokio::test]
async fn p9_a_configured_tool_never_runs_a_changed_tool_of_a_server_with_sessions() {
    let world = World::with_configured(false, Some("read")).await;
    assert_eq!(world.calls(2).await, [APPROVED; 2]);
    world.upstream.redeploy(CHANGED);
    let answers = world.calls(8).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer == "tool_changed" || answer == "ERROR_REASON_UNKNOWN_TOOL"),
        "{answers:?}"
    );
    world.is_kept_out().await;
    assert_eq!(world.upstream.count_runs(CHANGED), 0);
}

#[tokio::test]
async fn p9_a_configured_tool_releases_no_answer_of_a_changed_tool_of_a_server_without_sessions() {
    let world = World::with_configured(true, Some("read")).await;
    assert_eq!(world.calls(2).await, [APPROVED; 2]);
    world.upstream.redeploy(CHANGED);
    let answers = world.calls(8).await;
    assert!(
        answers.iter().all(|answer| answer != CHANGED),
        "{answers:?}"
    );
    world.is_kept_out().await;
}

#[tokio::test]
async fn p9_a_configured_tool_without_an_entry_is_offered_only_while_its_source_has_none() {
    let (_upstream, url) = serve_upstream(true, APPROVED, false).await;
    let locked = start_configured(&url, Some("other")).await;
    assert!(locked.tools().await.tools.is_empty());
    let world = World::with_configured(true, None).await;
    assert_eq!(world.calls(1).await, [APPROVED]);
}
