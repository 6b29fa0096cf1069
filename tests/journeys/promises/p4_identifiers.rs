//! An extensive test of P4: identifiers of twenty kinds in arguments, results, errors and failures of upstreams, in
//! many calls with five processes. None is in the logs, metrics and traces, in the record with its tree and details, or
//! in the copies that security tools receive.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParameter, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::StreamExt;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};
use wardgate_testkit::{Client, SeparateProcesses, System, json_response, serve, until};

use super::super::collector::collector_for;
use super::super::extra_tools::{LOOK_OFTEN, add_with_source};
use super::super::identifiers::{IdentifierSearch, KINDS, identifier};
use super::super::people::doctor;
use super::super::postgres::Database;
use crate::{REPOSITORY, WARDGATE};

/// Number of calls, unless the environment variable sets another one.
const CALLS: (&str, usize) = ("IDENTIFIER_CALLS", KINDS.len() * SCENARIOS.len());
/// Number of calls after which the output of the system is searched and discarded.
const ROUND: usize = 1_000;
/// Number of concurrent calls.
const AT_ONCE: usize = 12;

/// The sources. The arguments of a call name what the upstream does with it. Failures are rare enough that no upstream
/// is considered failed, because each call has to reach it.
const SOURCES: &str = r#"
  clinic:
    type: http
    base_url: "URL"
    private: ["127.0.0.0/8"]
    breaker: { failures: 1000 }
    retry: { attempts: 1 }
  desk:
    type: mcp
    url: "URL/mcp"
    private: ["127.0.0.0/8"]
    pins: first_use
    tags: [staff]
    classes: { content: none, structuredContent: none, error: none }
    breaker: { failures: 1000 }
"#;

/// A database whose errors contain the invalid value.
const REGISTRY: &str = r#"
  registry: { type: postgres, url: "URL" }
"#;

const TOOLS: &str = r#"
  - name: file_chart
    description: Files the chart of a patient.
    tags: [staff]
    input_schema: { type: object, properties: { ARGUMENTS } }
    execute: { type: http, source: clinic, path: /charts, json: { MEMBERS } }
    result: { rows: /rows, subject: patient, classes: { CLASSES } }
  - name: find_person
    description: Finds a person.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema: &question
      type: object
      properties: { how: { type: string }, who: { type: string }, limit: { type: integer } }
      required: [how, who]
    execute: { type: http, source: clinic, path: "/people/{who}", query: { how: "{how}", who: "{who}" } }
    result: { rows: /rows, classes: { who: phi.name }, empty: { error: "Nobody is called {who}." } }
  - name: read_path
    description: Fails, in words of the database.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: sql, source: hospital, statement: "IN_SQLITE" }
    result: { classes: { found: none, how: none } }
  - name: read_number
    description: Fails, in words of PostgreSQL where there is a server.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: sql, source: REGISTRY, statement: "STATEMENT" }
    result: { classes: { found: none, how: none } }
  - name: search_files
    description: Fails, in words of a program.
    tags: [staff]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: command, argv: [grep, --, "{how}", "./{who}"], sandbox: { required: false } }
    result: { classes: { line: none } }
"#;

/// Statements for which errors of either database contain the value.
const IN_SQLITE: &str = "SELECT json_extract('{}', :who) AS found, :how AS how";
const IN_POSTGRES: &str =
    "SELECT CAST(CAST(:who AS text) AS integer) AS found, CAST(:how AS text) AS how";

/// Returns the sources and tools with the missing addresses and statements.
fn catalogue(upstreams: &str, registry: Option<&Database>) -> (String, String) {
    let mut sources = SOURCES.replace("URL", upstreams);
    let (source, statement) = match registry {
        Some(database) => {
            sources += &REGISTRY.replace("URL", &database.url);
            ("registry", IN_POSTGRES)
        }
        None => ("hospital", IN_SQLITE),
    };
    let each = |line: fn(&str) -> String| KINDS.map(|(kind, _)| line(kind)).join(", ");
    let tools = TOOLS
        .replace(
            "ARGUMENTS",
            &each(|kind| format!("{kind}: {{ type: string }}")),
        )
        .replace("MEMBERS", &each(|kind| format!("{kind}: \"{{{kind}}}\"")))
        .replace("CLASSES", &each(|kind| format!("{kind}: phi.text")))
        .replace("REGISTRY", source)
        .replace("STATEMENT", statement)
        .replace("IN_SQLITE", IN_SQLITE);
    (sources, tools)
}

const FAILED: &str = "\"isError\":true";
const ERROR: &str = "\"error\"";

/// The scenarios: successful calls, failing tools and upstreams, and requests that the gateway refuses. Each has the
/// tool, its behavior, and a text that the response must contain. Without a tool the body is not a call.
const SCENARIOS: [(&str, &str, &str); 21] = [
    ("file_chart", "chart", "Quillfeather.row."),
    ("find_person", "rows", ".row."),
    ("find_person", "nobody", "Nobody is called"),
    ("find_person", "error", FAILED),
    ("find_person", "missing", FAILED),
    ("find_person", "garbled", FAILED),
    ("find_person", "elsewhere", FAILED),
    ("find_person", "broken", FAILED),
    ("answer", "text", ".row."),
    ("answer", "structured", ".row."),
    ("answer", "tool_error", ".failure."),
    ("answer", "error", ERROR),
    ("answer", "garbled", "\"jsonrpc\""),
    ("read_path", "path", FAILED),
    ("read_number", "number", FAILED),
    ("search_files", "word", FAILED),
    ("find_person", "wrong type", FAILED),
    ("find_person", "wrong names", FAILED),
    ("", "unknown tool", ERROR),
    ("", "no method", ERROR),
    ("", "no JSON", ERROR),
];

/// Returns an identifier of each kind.
fn chart(origin: &str, number: usize) -> Value {
    let kinds = KINDS.iter().enumerate();
    let members = kinds.map(|(kind, (name, _))| {
        let value = identifier(kind, origin, number);
        ((*name).to_owned(), value.into())
    });
    Value::Object(members.collect())
}

/// The number of requests to the upstreams, by behavior.
type RequestCounts = Arc<Mutex<BTreeMap<String, u64>>>;

/// A service and an MCP server whose responses all contain identifiers.
struct FailingUpstreams {
    asked: RequestCounts,
    answers: AtomicUsize,
}

impl FailingUpstreams {
    async fn serve() -> (String, RequestCounts) {
        let asked = RequestCounts::default();
        let upstreams = Arc::new(Self {
            asked: Arc::clone(&asked),
            answers: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/charts", post(charts))
            .route("/people/{who}", get(people))
            .route("/mcp", post(desk))
            .with_state(upstreams);
        (format!("http://{}", serve(router).await), asked)
    }

    fn note(&self, how: &str) {
        let mut asked = self.asked.lock().unwrap();
        *asked.entry(how.to_owned()).or_default() += 1;
    }

    /// Returns an identifier for a result and one for a failure. Each response uses the next kind.
    fn identifiers(&self) -> [String; 2] {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        ["row", "failure"].map(|origin| identifier(number % KINDS.len(), origin, number))
    }
}

async fn charts(State(upstreams): State<Arc<FailingUpstreams>>, body: Bytes) -> Response {
    let filed: Value = serde_json::from_slice(&body).unwrap();
    // Each identifier arrived as it was sent.
    for (name, stem) in KINDS {
        let sent = filed[name].as_str().unwrap_or_default();
        assert!(sent.starts_with(stem), "{name}: {filed}");
    }
    upstreams.note("chart");
    let number = upstreams.answers.fetch_add(1, Ordering::Relaxed);
    json_response(json!({ "rows": [chart("row", number)] }).to_string())
}

async fn people(
    State(upstreams): State<Arc<FailingUpstreams>>,
    PathParameter(who): PathParameter<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let query = url::form_urlencoded::parse(query.as_bytes()).collect::<BTreeMap<_, _>>();
    let how = &*query["how"];
    upstreams.note(how);
    let [row, failure] = upstreams.identifiers();
    let headers = [("x-person", failure.clone()), ("server", failure.clone())];
    match how {
        "nobody" => json_response(r#"{"rows":[]}"#),
        "error" => {
            let body = json!({ "error": failure, "of": who }).to_string();
            (StatusCode::INTERNAL_SERVER_ERROR, headers, body).into_response()
        }
        "missing" => (StatusCode::NOT_FOUND, headers, failure).into_response(),
        "garbled" => (headers, json_response(format!("{{\"rows\": {failure}"))).into_response(),
        "elsewhere" => {
            let to = format!("http://192.0.2.1/{}", failure.replace(' ', "%20"));
            (StatusCode::FOUND, headers, [("location", to)]).into_response()
        }
        "broken" => {
            let half = Bytes::from(format!("{{\"rows\": [{{\"who\": \"{failure}"));
            let parts = [Ok(half), Err(std::io::Error::other("the line is cut"))];
            Body::from_stream(futures::stream::iter(parts)).into_response()
        }
        _ => {
            let rows = json!({ "rows": [{ "who": row }] }).to_string();
            (headers, json_response(rows)).into_response()
        }
    }
}

async fn desk(State(upstreams): State<Arc<FailingUpstreams>>, request: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&request).unwrap();
    let arguments = &request["params"]["arguments"];
    let mut answer = match request["method"].as_str() {
        Some("initialize") => json!({ "result": {
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "desk", "version": "1" },
        } }),
        Some("tools/list") => json!({ "result": { "tools": [{
            "name": "answer", "description": "Answers.", "annotations": { "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": { "how": { "type": "string" }, "who": { "type": "string" } } },
        }] } }),
        Some("tools/call") => {
            let how = arguments["how"].as_str().unwrap_or_default();
            upstreams.note(&format!("desk {how}"));
            let [row, failure] = upstreams.identifiers();
            let text = |text: &str| json!([{ "type": "text", "text": text }]);
            match how {
                "text" => json!({ "result": { "content": text(&row) } }),
                "structured" => {
                    json!({ "result": { "content": text(&row), "structuredContent": { "who": row } } })
                }
                "tool_error" => json!({ "result": { "content": text(&failure), "isError": true } }),
                "garbled" => return json_response(format!("{{\"jsonrpc\": {failure}")),
                _ => {
                    json!({ "error": { "code": -32603, "message": failure, "data": { "of": row } } })
                }
            }
        }
        _ if request.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        _ => json!({ "error": { "code": -32601, "message": "unknown" } }),
    };
    answer["jsonrpc"] = "2.0".into();
    answer["id"] = request["id"].clone();
    json_response(answer.to_string())
}

/// Makes call `number`. Each kind occurs in each scenario. `answer` is the name of the server's tool.
async fn call(client: &Client, token: &str, answer: &str, number: usize) {
    let (tool, how, expected) = SCENARIOS[number % SCENARIOS.len()];
    let kind = number / SCENARIOS.len() % KINDS.len();
    let who = identifier(kind, "argument", number);
    let body = match how {
        "no method" => Some(
            json!({ "jsonrpc": "2.0", "id": who, "method": who, "params": { &who: 1 } })
                .to_string(),
        ),
        "no JSON" => Some(format!("{{\"{who}\": {who}")),
        _ => None,
    };
    let arguments = match how {
        "chart" => chart("argument", number),
        "wrong type" => json!({ "how": "rows", "who": who, "limit": who }),
        "wrong names" => json!({ "how": [who], &who: who, "who": { &who: 1 } }),
        _ => json!({ "how": how, "who": who }),
    };
    let tool = match (tool, how) {
        ("answer", _) => answer,
        (_, "unknown tool") => &who,
        _ => tool,
    };
    let reply = match body {
        Some(body) => client.post("/message", Some(token), &[], body).await,
        None => client.call(token, tool, arguments).await,
    };
    assert!(
        reply.body.contains(expected),
        "call {number}, {how}, about {who}: {reply:?}"
    );
}

/// The security tools that receive copies of the record and search them, each with its name and the settings of its export.
const SECURITY_TOOLS: [(&str, &str); 3] = [
    ("copies in OCSF", "name=\"ocsf\",webhook"),
    ("copies in CEF", "name=\"cef\",format=\"cef\",webhook"),
    ("copies by OTLP", "name=\"otlp\",otlp"),
];

/// Starts the security tools, and returns the settings of their exports.
async fn security_tools(search: &Arc<IdentifierSearch>) -> String {
    let mut exports = Vec::new();
    for (name, settings) in SECURITY_TOOLS {
        let search = Arc::clone(search);
        let take = async move |body: Bytes| {
            search.search_bytes(name, &body);
            StatusCode::OK
        };
        let address = serve(Router::new().fallback(take)).await;
        exports.push(format!(
            "{{{settings}={{url=\"http://{address}/\",private_addresses=true}}}}"
        ));
    }
    format!("[{}]", exports.join(","))
}

/// Returns the number of records that every security tool has received.
async fn copied_records(store: &Path) -> u64 {
    let url = format!("sqlite:{}?mode=ro", store.display());
    let mut store = SqliteConnection::connect(&url).await.unwrap();
    let positions: Vec<i64> = sqlx::query_scalar(
        "SELECT position FROM export_cursor WHERE name IN ('ocsf', 'cef', 'otlp')",
    )
    .fetch_all(&mut store)
    .await
    .unwrap();
    assert!(positions.len() <= SECURITY_TOOLS.len());
    if positions.len() < SECURITY_TOOLS.len() {
        return 0;
    }
    positions.into_iter().min().unwrap().try_into().unwrap()
}

/// Searches the output and the metrics of the processes.
async fn look_at_processes(search: &IdentifierSearch, system: &mut SeparateProcesses) {
    let accept = [("accept", "application/openmetrics-text")];
    for probes in system.all_probes() {
        let metrics = probes.send("GET", "/metrics", &accept, "").await;
        search.search_bytes("metrics", metrics.body.as_bytes());
    }
    for process in system.processes() {
        search.search_bytes("logs", process.take_log().as_bytes());
    }
}

/// Searches the stored record, its tree, and its output for operators.
async fn look_at_record(search: &IdentifierSearch, system: &SeparateProcesses) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("exported");
    let exported = until("the record is exported", async || {
        let exported = system.audit(&["export", "--offline", "--out", out.to_str().unwrap()]);
        (exported.code == Some(0)).then_some(exported)
    });
    exported.await;
    search.look_into_files("the exported log", &out, |_| true);
    let checkpoint = std::fs::read_to_string(out.join("checkpoint")).unwrap();
    let size: u64 = checkpoint.lines().nth(1).unwrap().parse().unwrap();
    let store = system.data_dir().join("audit.sqlite");
    until("the security tools have all", async || {
        (copied_records(&store).await >= size).then_some(())
    })
    .await;
    search.search_bytes(
        "what operators read",
        system.query(&["-o", "jsonl"]).success().as_bytes(),
    );
    search
        .look_into_tables("tables of the record", &store)
        .await;
    search.look_into_files("files of the stores", &system.data_dir(), is_store);
}

/// Returns whether a file belongs to the store of a service, as opposed to the hospital's database.
fn is_store(name: &str) -> bool {
    name.contains(".sqlite") && !name.starts_with("hospital")
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_no_identifier_of_any_kind_is_in_a_log_metric_trace_record_or_copy_of_it() {
    let search = Arc::new(IdentifierSearch::new());
    let of_traces = Arc::clone(&search);
    let collector = collector_for(move |spans| of_traces.search_bytes("traces", spans)).await;
    let exports = security_tools(&search).await;
    let (upstreams, asked) = FailingUpstreams::serve().await;
    let environment = [
        ("WARDGATE_TELEMETRY__LOG", "trace"),
        ("WARDGATE_TELEMETRY__OTLP_ENDPOINT", collector.as_str()),
        ("WARDGATE_AUDIT__EXPORTS", exports.as_str()),
        ("WARDGATE_GATEWAY__LIMITS__REQUESTS_PER_MINUTE", "1000000"),
        LOOK_OFTEN,
    ];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let registry = Database::create().await;
    let (sources, tools) = catalogue(&upstreams, registry.as_ref());
    add_with_source(&system, &sources, &tools).await;
    let token = system.token_for("3h", "dr.yenji", "Doctor", &[]);
    let seen = doctor(&system);
    let answer = until("the server's tool is listed", async || {
        let names = system.client().tool_names(&seen).await;
        names.into_iter().find(|name| name.ends_with("answer"))
    })
    .await;

    let (variable, default) = CALLS;
    let calls = std::env::var(variable).map_or(default, |calls| calls.parse().expect("a number"));
    let client = system.client().clone();
    for round in (0..calls).step_by(ROUND) {
        let numbers = round..(round + ROUND).min(calls);
        let each = numbers.map(|number| call(&client, &token, &answer, number));
        futures::stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .count()
            .await;
        look_at_processes(&search, &mut system).await;
    }
    look_at_record(&search, &system).await;
    for process in system.processes() {
        let status = tokio::task::block_in_place(|| process.terminate());
        assert_eq!(status.code(), Some(0), "{}", process.log());
        search.search_bytes("logs", process.log().as_bytes());
    }
    search.look_into_files("files of the stores, closed", &system.data_dir(), is_store);

    if let Some(registry) = registry {
        registry.remove().await;
    }

    let (asked, searched) = (asked.lock().unwrap().clone(), search.searched_bytes());
    eprintln!("{calls} calls; upstreams were asked {asked:?}; bytes searched: {searched:?}");
    assert_eq!(asked.len(), 13, "each way to answer was alive");
    assert_eq!(searched.len(), 11);
    assert!(
        searched.values().all(|bytes| *bytes > 10_000),
        "each place held something"
    );
    assert_eq!(search.findings(), BTreeMap::new());
}
