//! P3 and P5 as a matrix: each kind of caller × each tool, one for each kind of executor × what is expected.
//!
//! A combination states whether the tool is listed, whether it can be called, which rows are released, and the form of
//! each column. The executors of SQL, HTTP, commands and MCP return the same four rows. The gRPC server has one row without
//! an owner, and the query one row that policies do not govern. The imported tool returns MCP content.

use std::path::Path;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tonic::transport::server::TcpIncoming;
use wardgate_testkit::{Reply, System, TestApp, TestIssuer, json_response, serve, until};

use super::super::clinic;
use crate::WARDGATE;

const CATALOGUE: &str = r#"
sources:
  stored: { type: sqlite, url: "${STORED_URL}" }
  web: { type: http, base_url: "${WEB_URL}", private: ["127.0.0.0/8"] }
  health: { type: grpc, url: "${GRPC_URL}", private: ["127.0.0.0/8"], descriptors: health.binpb }
  desk:
    type: mcp
    url: "${WEB_URL}/mcp"
    private: ["127.0.0.0/8"]
    pins: first_use
    tools: all
    read_only: all
    tags: [clinical]
    classes: { content: phi.text, structuredContent: phi.text, error: none }
tools:
  - name: by_sql
    description: Rows of a database.
    tags: [clinical, billed]
    annotations: { readOnlyHint: true }
    input_schema: &question { type: object, properties: { patient_id: { type: string } } }
    execute:
      type: sql
      source: stored
      statement: SELECT r.id, r.patient, r.doctor, r.ward, r.name FROM visits r WHERE :row_rule ORDER BY r.id
    result:
      entity: Visit
      key: id
      row_rule: { patient: r.patient, doctor: r.doctor, ward: r.ward }
      classes: &classes { id: none, patient: id.patient, doctor: id.staff, ward: none, name: phi.name }
  - name: by_http
    description: Rows of a REST service.
    tags: [clinical]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: http, source: web, path: /visits }
    result: { rows: /rows, entity: Visit, key: id, classes: *classes }
  - name: by_mcp
    description: Rows of an MCP server.
    tags: [clinical]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: mcp, source: desk, tool: visits }
    result: { rows: /rows, shape: rows, entity: Visit, key: id, classes: *classes }
  - name: by_command
    description: Rows of a program.
    tags: [clinical]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: command, argv: [cat, visits.json], output: json }
    result: { rows: /rows, entity: Visit, key: id, classes: *classes }
  - name: by_grpc
    description: The row of a gRPC server.
    tags: [clinical, billed]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: grpc, source: health, method: grpc.health.v1.Health/Check, message: { service: "" } }
    result:
      entity: Visit
      key: id
      columns: { id: /status, patient: /patient, doctor: /doctor, ward: /ward }
      classes: { id: none, patient: id.patient, doctor: id.staff, ward: none }
  - name: by_query
    description: The state of this process.
    tags: [platform]
    annotations: { readOnlyHint: true }
    input_schema: *question
    execute: { type: query, interface: node, query_type: get_status }
    result: { columns: { id: /status }, shape: rows, classes: { id: none } }
"#;

const SCHEMA: &str = "
entity User { ward?: String, patient_id?: String };
entity Visit { patient?: String, doctor?: String, ward?: String };
";

const POLICIES: &str = r#"
@id("only-the-own-tenant") forbid (principal, action == Action::"call_tool", resource)
when { principal.tenant != "north" };
@id("auditors-call-nothing") forbid (principal in Role::"Auditor", action == Action::"call_tool", resource);
@id("clinicians-call") permit (principal, action == Action::"call_tool", resource in Tag::"clinical")
when { principal in Role::"Doctor" || principal in Role::"Nurse" };
@id("doctors-look-at-the-platform")
permit (principal in Role::"Doctor", action == Action::"call_tool", resource in Tag::"platform");
@id("billing-calls")
permit (principal in Role::"Billing", action == Action::"call_tool", resource in Tag::"billed");
@id("patients-call-for-themselves")
permit (principal in Role::"Patient", action == Action::"call_tool", resource in Tag::"clinical")
when { principal has patient_id && context.arguments.hasTag("patient_id") &&
       context.arguments.getTag("patient_id") == principal.patient_id };

@id("doctors-read-their-patients") permit (principal in Role::"Doctor", action == Action::"read", resource is Visit)
when { resource has doctor && resource.doctor == principal.subject };
@id("nurses-read-their-ward") permit (principal in Role::"Nurse", action == Action::"read", resource is Visit)
when { principal has ward && resource has ward && resource.ward == principal.ward };
@id("billing-reads-everything")
permit (principal in Role::"Billing", action == Action::"read", resource is Visit);
@id("patients-read-their-rows") permit (principal in Role::"Patient", action == Action::"read", resource is Visit)
when { principal has patient_id && resource has patient && resource.patient == principal.patient_id };

@id("doctors-see") permit (principal in Role::"Doctor", action == Action::"show_clear", resource)
when { resource in [Class::"none", Class::"id", Class::"phi"] };
@id("nurses-see") permit (principal in Role::"Nurse", action == Action::"show_clear", resource == Class::"none");
@id("nurses-recognise")
permit (principal in Role::"Nurse", action == Action::"show_partial", resource == Class::"phi.name");
@id("billing-sees") permit (principal in Role::"Billing", action == Action::"show_clear", resource)
when { resource in [Class::"none", Class::"id.patient"] };
@id("patients-see") permit (principal in Role::"Patient", action == Action::"show_clear", resource)
when { resource in [Class::"none", Class::"id.patient", Class::"phi"] };
@id("patients-tell-staff-apart")
permit (principal in Role::"Patient", action == Action::"show_pseudonym", resource == Class::"id.staff");
"#;

/// The name of the imported tool at its server.
const IMPORTED: &str = "visits";

/// The columns of rows, in the order in which [`MATRIX`] states their forms.
const COLUMNS: [&str; 5] = ["id", "patient", "doctor", "ward", "name"];

/// Returns the rows that the source of a tool returns.
fn source_rows(tool: &str) -> Vec<Value> {
    let row = |id: &str, patient: &str, doctor: Option<&str>, ward: Option<&str>, name: &str| json!({ "id": id, "patient": patient, "doctor": doctor, "ward": ward, "name": name });
    match tool {
        "by_grpc" => {
            vec![json!({ "id": "SERVING", "patient": null, "doctor": null, "ward": null })]
        }
        "by_query" => vec![json!({ "id": "running" })],
        _ => vec![
            row(
                "visit-1",
                "NUGWI",
                Some("dr.yenji"),
                Some("W2"),
                "Ada Quillfeather",
            ),
            row(
                "visit-2",
                "DOSRO",
                Some("dr.okafor"),
                Some("W2"),
                "Ben Frostwick",
            ),
            row(
                "visit-3",
                "NUGWI",
                Some("dr.okafor"),
                Some("W4"),
                "Ada Quillfeather",
            ),
            row("visit-4", "GUNKO", None, None, "Cyd Lowmarsh"),
        ],
    }
}

/// The issuer that signs a caller's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SigningIssuer {
    /// The issuer of the tenants.
    Own,
    /// Another trusted issuer, whose subjects have a prefix and whose only role is Doctor.
    Partner,
    /// An issuer that is not trusted.
    Stranger,
}
use SigningIssuer::{Own, Partner, Stranger};

/// The callers: name in the matrix, issuer, claims, and the argument `patient_id`.
fn callers() -> Vec<(&'static str, SigningIssuer, Value, &'static str)> {
    let of = |subject: &str, roles: &[&str]| json!({ "sub": subject, "roles": roles, "tenant": "north" });
    let with = |mut claims: Value, name: &str, value: &str| {
        claims[name] = value.into();
        claims
    };
    let doctor = || of("dr.yenji", &["Doctor"]);
    let patient = || of("patient.nugwi", &["Patient"]);
    let nugwi = || with(patient(), "patient_id", "NUGWI");
    let nurse = || of("nurse.joy", &["Nurse"]);
    vec![
        ("doctor", Own, doctor(), "NUGWI"),
        ("other doctor", Own, of("dr.okafor", &["Doctor"]), "NUGWI"),
        ("nurse", Own, with(nurse(), "ward", "W2"), "NUGWI"),
        ("nurse without ward", Own, nurse(), "NUGWI"),
        ("billing", Own, of("billing.ruiz", &["Billing"]), "NUGWI"),
        ("patient", Own, nugwi(), "NUGWI"),
        ("patient, other id", Own, nugwi(), "DOSRO"),
        ("patient without id", Own, patient(), "NUGWI"),
        ("auditor", Own, of("auditor.lee", &["Auditor"]), "NUGWI"),
        (
            "doctor and auditor",
            Own,
            of("dr.yenji", &["Doctor", "Auditor"]),
            "NUGWI",
        ),
        (
            "unknown role",
            Own,
            of("dr.yenji", &["Surgeon", "doctor"]),
            "NUGWI",
        ),
        ("no role", Own, of("dr.yenji", &[]), "NUGWI"),
        (
            "other tenant",
            Own,
            with(doctor(), "tenant", "south"),
            "NUGWI",
        ),
        ("other issuer", Partner, doctor(), "NUGWI"),
        ("untrusted issuer", Stranger, doctor(), "NUGWI"),
    ]
}

/// The expectation of a combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallExpectation {
    /// The token is refused.
    NoCaller,
    /// The tool is not listed, and a call is answered as that of an unknown tool.
    Hidden,
    /// The tool is listed, and this call is refused with a reason.
    Refused,
    /// The call releases the rows whose ids end with these characters. Each column is clear (C), masked (M) or dropped
    /// (-), in the order of [`COLUMNS`].
    Rows(&'static str, &'static str),
    /// The call releases the content of the imported tool.
    Content,
    /// The call succeeds without any content.
    NoContent,
}
use CallExpectation::{Content, Hidden, NoCaller, NoContent, Refused, Rows};

/// No row is released, so no column is.
const NO_ROWS: CallExpectation = Rows("", "");

/// The tools, in the order of the columns of [`MATRIX`].
const TOOLS: [&str; 7] = [
    "by_sql",
    "by_http",
    "by_mcp",
    "by_command",
    "by_grpc",
    "by_query",
    IMPORTED,
];

/// The callers and, for each tool, what is expected.
#[rustfmt::skip]
const MATRIX: [(&str, [CallExpectation; 7]); 15] = [
    //                     by_sql                  by_http              by_mcp               by_command           by_grpc            by_query        imported
    ("doctor",             [Rows("1", "CCCCC"),    Rows("1", "CCCCC"),  Rows("1", "CCCCC"),  Rows("1", "CCCCC"),  NO_ROWS,           Rows("g", "C"), Content]),
    ("other doctor",       [Rows("23", "CCCCC"),   Rows("23", "CCCCC"), Rows("23", "CCCCC"), Rows("23", "CCCCC"), NO_ROWS,           Rows("g", "C"), Content]),
    ("nurse",              [Rows("12", "C--CM"),   Rows("12", "C--CM"), Rows("12", "C--CM"), Rows("12", "C--CM"), NO_ROWS,           Hidden,         NoContent]),
    ("nurse without ward", [NO_ROWS,               NO_ROWS,             NO_ROWS,             NO_ROWS,             NO_ROWS,           Hidden,         NoContent]),
    ("billing",            [Rows("1234", "CC-C-"), Hidden,              Hidden,              Hidden,              Rows("G", "CC-C"), Hidden,         Hidden]),
    ("patient",            [Rows("13", "CCMCC"),   Rows("13", "CCMCC"), Rows("13", "CCMCC"), Rows("13", "CCMCC"), NO_ROWS,           Hidden,         Content]),
    ("patient, other id",  [Refused,               Refused,             Refused,             Refused,             Refused,           Hidden,         Refused]),
    ("patient without id", [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    ("auditor",            [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    ("doctor and auditor", [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    ("unknown role",       [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    ("no role",            [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    ("other tenant",       [Hidden,                Hidden,              Hidden,              Hidden,              Hidden,            Hidden,         Hidden]),
    // The subject has the prefix of its issuer, so the doctor of the same name reads no row.
    ("other issuer",       [NO_ROWS,               NO_ROWS,             NO_ROWS,             NO_ROWS,             NO_ROWS,           Rows("g", "C"), Content]),
    ("untrusted issuer",   [NoCaller,              NoCaller,            NoCaller,            NoCaller,            NoCaller,          NoCaller,       NoCaller]),
];

/// Returns the document of the HTTP service, of the MCP server and of the program.
fn document() -> Value {
    json!({ "rows": source_rows("by_http") })
}

/// Starts the HTTP service, which is also the MCP server.
async fn web() -> String {
    let router = Router::new()
        .route(
            "/visits",
            get(async || json_response(document().to_string())),
        )
        .route("/mcp", post(desk));
    format!("http://{}", serve(router).await)
}

async fn desk(request: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&request).unwrap();
    let mut answer = match request["method"].as_str() {
        Some("initialize") => json!({ "result": {
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "desk", "version": "1" },
        } }),
        Some("tools/list") => json!({ "result": { "tools": [{
            "name": IMPORTED, "description": "Visits.", "annotations": { "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": { "patient_id": { "type": "string" } } },
        }] } }),
        Some("tools/call") => json!({ "result": {
            "content": [{ "type": "text", "text": document().to_string() }],
            "structuredContent": document(),
        } }),
        _ if request.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        _ => json!({ "error": { "code": -32601, "message": "unknown" } }),
    };
    answer["jsonrpc"] = "2.0".into();
    answer["id"] = request["id"].clone();
    json_response(answer.to_string())
}

/// Starts a gRPC server with the standard health service, and writes its descriptors.
fn grpc(dir: &Path) -> String {
    std::fs::write(
        dir.join("health.binpb"),
        tonic_health::pb::FILE_DESCRIPTOR_SET,
    )
    .unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    format!("http://{address}")
}

/// Creates the database, and returns its URL.
async fn database(dir: &Path) -> String {
    let url = format!("sqlite:{}", dir.join("visits.sqlite").display());
    let mut connection = SqliteConnection::connect(&format!("{url}?mode=rwc"))
        .await
        .unwrap();
    let table = "CREATE TABLE visits (id TEXT PRIMARY KEY, patient TEXT, doctor TEXT, ward TEXT, name TEXT)";
    connection.execute(table).await.unwrap();
    for row in source_rows("by_sql") {
        let values = COLUMNS.map(|column| {
            let text = row[column].as_str();
            text.map_or_else(|| "NULL".to_owned(), |text| format!("'{text}'"))
        });
        let insert = format!("INSERT INTO visits VALUES ({})", values.join(", "));
        connection.execute(AssertSqlSafe(insert)).await.unwrap();
    }
    connection.close().await.unwrap();
    url
}

/// The issuers, the system, and the files of its sources.
struct MatrixClinic {
    own: TestIssuer,
    partner: TestIssuer,
    stranger: TestIssuer,
    app: TestApp,
    _files: TempDir,
}

impl MatrixClinic {
    async fn start() -> Self {
        let own = TestIssuer::new("https://own.example");
        let partner = TestIssuer::new("https://partner.example");
        let settings = json!({
            "policy": { "policies": "policies" },
            "tool_runner": { "catalogue": "tools.yaml" },
            "gateway": { "auth": { "issuers": [
                {
                    "issuer": "https://own.example", "audience": "wardgate", "jwks": { "file": own.key_set() },
                    "roles": ["Doctor", "Nurse", "Billing", "Patient", "Auditor"], "tenant_claim": "tenant",
                    "attributes": { "ward": "ward", "patient_id": "patient_id" },
                },
                {
                    "issuer": "https://partner.example", "audience": "wardgate",
                    "jwks": { "file": partner.key_set() }, "roles": ["Doctor"], "tenant_claim": "tenant",
                    "subject_prefix": "partner:",
                },
            ] } },
        });
        let files = tempfile::tempdir().unwrap();
        let dir = files.path().join("clinic");
        std::fs::create_dir(&dir).unwrap();
        clinic::configure(&dir, &settings.to_string(), CATALOGUE, POLICIES);
        std::fs::write(dir.join("policies/words.cedarschema"), SCHEMA).unwrap();
        std::fs::write(dir.join("visits.json"), document().to_string()).unwrap();
        let (grpc, web, stored) = (grpc(&dir), web().await, database(files.path()).await);
        let environment = [
            ("GRPC_URL", grpc.as_str()),
            ("WEB_URL", web.as_str()),
            ("STORED_URL", stored.as_str()),
        ];
        Self {
            own,
            partner,
            // The key set of this issuer is not configured, although it has the name of one that is.
            stranger: TestIssuer::new("https://own.example"),
            app: TestApp::start_example(WARDGATE, &dir, "clinic", &environment),
            _files: files,
        }
    }

    fn token(&self, issuer: SigningIssuer, claims: &Value) -> String {
        let mut claims = claims.clone();
        claims["exp"] = 4_102_444_800_i64.into();
        claims["jti"] = "t".into();
        match issuer {
            Own => self.own.token(&claims),
            Partner => self.partner.token(&claims),
            Stranger => self.stranger.token(&claims),
        }
    }

    async fn names(&self, token: &str) -> Vec<String> {
        self.app.client().tool_names(token).await
    }
}

/// Returns what a reply to a call shows of the tool.
fn describe_reply(reply: &Reply, tool: &str, name: &str) -> (String, String) {
    if reply.status == 401 {
        return ("no caller".to_owned(), String::new());
    }
    let answer = reply.json();
    if answer["error"].is_object() {
        assert_eq!(reply.error(), (-32602, format!("Unknown tool: {name}")));
        return ("hidden".to_owned(), String::new());
    }
    if answer["result"]["isError"] == true && reply.body.contains("not_permitted") {
        return ("refused".to_owned(), String::new());
    }
    if tool == IMPORTED {
        let has_content = reply.body.contains("Ada Quillfeather");
        return (format!("content: {has_content}"), String::new());
    }
    let stored = source_rows(tool);
    let mut ids = String::new();
    let mut forms = String::new();
    for row in reply.rows() {
        let is_it = |stored: &&Value| stored["id"] == row["id"];
        let stored = stored.iter().find(is_it).unwrap();
        ids.push(row["id"].as_str().unwrap().chars().next_back().unwrap());
        let columns = COLUMNS.iter().filter(|column| stored.get(column).is_some());
        let form = |column: &&str| match row.get(column) {
            None => '-',
            Some(cell) if *cell == stored[*column] => 'C',
            Some(_) => 'M',
        };
        let of_row: String = columns.map(form).collect();
        assert!(
            forms.is_empty() || forms == of_row,
            "every row has the same columns"
        );
        forms = of_row;
    }
    (ids, forms)
}

/// Returns what [`describe_reply`] returns if a reply is as expected.
fn describe_expectation(expectation: CallExpectation) -> (String, String) {
    let word = |word: &str| (word.to_owned(), String::new());
    match expectation {
        NoCaller => word("no caller"),
        Hidden => word("hidden"),
        Refused => word("refused"),
        Content => word("content: true"),
        NoContent => word("content: false"),
        Rows(ids, forms) => (ids.to_owned(), forms.to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_p5_each_caller_sees_of_each_tool_what_the_matrix_says() {
    let clinic = MatrixClinic::start().await;
    let callers = callers();
    let (_, issuer, claims, _) = &callers[0];
    let doctor = clinic.token(*issuer, claims);
    let imported = until("the tool of the MCP server is listed", async || {
        let names = clinic.names(&doctor).await;
        names.into_iter().find(|name| name.ends_with(IMPORTED))
    })
    .await;
    assert!(
        callers
            .iter()
            .map(|(name, ..)| *name)
            .eq(MATRIX.map(|(name, _)| name))
    );
    for ((who, issuer, claims, patient_id), (_, expectations)) in callers.iter().zip(MATRIX) {
        let token = clinic.token(*issuer, claims);
        let listed = match issuer {
            Stranger => {
                let list = clinic.app.client().modern(&token, "tools/list", json!({}));
                assert_eq!(list.await.status, 401, "{who}");
                Vec::new()
            }
            Own | Partner => clinic.names(&token).await,
        };
        for (tool, expectation) in TOOLS.into_iter().zip(expectations) {
            let name: &str = if tool == IMPORTED { &imported } else { tool };
            let at = format!("{who}, {tool}");
            let is_listed = !matches!(expectation, Hidden | NoCaller);
            assert_eq!(listed.iter().any(|it| it == name), is_listed, "{at}");
            let arguments = json!({ "patient_id": patient_id });
            let reply = clinic.app.client().call(&token, name, arguments).await;
            assert_eq!(
                describe_reply(&reply, tool, name),
                describe_expectation(expectation),
                "{at}: {reply:?}"
            );
            // No part of the answer names a row that is not released.
            for row in source_rows(tool) {
                let id = row["id"].as_str().unwrap();
                let is_released = match expectation {
                    Rows(ids, _) => ids.contains(id.chars().next_back().unwrap()),
                    Content => true,
                    _ => false,
                };
                assert_eq!(
                    reply.body.contains(id),
                    is_released,
                    "{at}, {id}: {reply:?}"
                );
            }
        }
    }
}
