//! Tests of startup with faults: the process reports the fault and its place and exits, or it starts and logs the fault.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use wardgate_testkit::{Client, ProcessExit, System, TestApp, WardgateProcess, run};

use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// A copy of the hospital example, to be modified.
struct Example(TempDir);

impl Example {
    fn copy() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let from = format!("{REPOSITORY}/deploy/examples/hospital/.");
        let copied = Command::new("cp")
            .args(["-r", &from])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(copied.success());
        Self(dir)
    }

    /// Copies the example and replaces its configuration by this text.
    fn configured(text: &str) -> Self {
        let example = Self::copy();
        std::fs::write(example.path("wardgate.yaml"), text).unwrap();
        example
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn spoil(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from:?}");
        std::fs::write(self.path(name), text.replacen(from, to, 1)).unwrap();
    }

    /// Runs `wardgate up` on the example, and expects it to exit.
    fn up(&self) -> ProcessExit {
        let (config, data) = (self.path("wardgate.yaml"), self.path("data"));
        let arguments = [
            "up",
            "--config",
            &config,
            "--data-dir",
            &data,
            "--listen",
            "127.0.0.1:0",
        ];
        run(
            Path::new(WARDGATE),
            &arguments,
            &[("HOSPITAL_DB_URL", "sqlite:none.sqlite")],
        )
    }

    /// Runs one service on the example, and expects it to exit.
    fn service(&self, name: &str) -> ProcessExit {
        run(
            Path::new(WARDGATE),
            &[name, "--config", &self.path("wardgate.yaml")],
            &[],
        )
    }
}

/// Checks that the process failed to start, and that its message contains each of `says`.
fn assert_failed(ended: &ProcessExit, says: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(!ended.stdout.contains("ready"), "{}", ended.stdout);
    assert!(ended.stderr.contains("wardgate: "), "{}", ended.stderr);
    for words in says {
        assert!(
            ended.stderr.contains(words),
            "no {words:?} in {}",
            ended.stderr
        );
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// Returns the position of a text in a file of the example, as `file:line:`.
fn line_of(example: &Example, name: &str, text: &str) -> String {
    let content = std::fs::read_to_string(example.path(name)).unwrap();
    let line = content
        .lines()
        .position(|line| line.contains(text))
        .unwrap()
        + 1;
    format!("{}:{line}:", example.path(name))
}

#[test]
fn a_bad_catalogue_stops_the_start_with_file_and_line() {
    for (from, to) in [
        ("type: sql\n", "type: sqll\n"),
        ("source: hospital\n", "source: hospitl\n"),
        ("input_schema:\n", "input_shema:\n"),
        ("readOnlyHint: true", "readOnlyHint: maybe"),
        ("phi.name", "phi name"),
        ("maximum: 500", "maximum: five"),
    ] {
        let example = Example::copy();
        example.spoil("tools.yaml", from, to);
        let at = line_of(&example, "tools.yaml", to.trim());
        assert_failed(&example.up(), &[&at]);
    }
    let example = Example::copy();
    example.spoil("tools.yaml", "tools:", "tools: [");
    assert_failed(&example.up(), &[&example.path("tools.yaml:"), "not YAML"]);
    std::fs::remove_file(example.path("tools.yaml")).unwrap();
    assert_failed(&example.up(), &[&example.path("tools.yaml")]);
}

#[test]
fn a_catalogue_whose_variable_is_not_set_stops_the_start_with_its_name() {
    let example = Example::copy();
    let (config, data) = (example.path("wardgate.yaml"), example.path("data"));
    let ended = run(
        Path::new(WARDGATE),
        &["up", "--config", &config, "--data-dir", &data],
        &[],
    );
    assert_failed(
        &ended,
        &[
            "`HOSPITAL_DB_URL`",
            &line_of(&example, "tools.yaml", "HOSPITAL_DB_URL"),
        ],
    );
}

#[test]
fn a_bad_policy_stops_the_start_with_file_and_line() {
    for (file, from, to) in [
        ("policies/doctor.cedar", "permit (", "permitt ("),
        (
            "policies/doctor.cedar",
            "== principal.subject",
            "== principal.subjct",
        ),
        ("policies/nurse.cedar", "principal has ward && ", ""),
        ("policies/billing.cedar", "Tool::", "Tol::"),
        (
            "policies/hospital.cedarschema",
            "entity Patient {",
            "entity Patient",
        ),
    ] {
        let example = Example::copy();
        example.spoil(file, from, to);
        assert_failed(&example.up(), &[&(example.path(file) + ":")]);
    }
    let example = Example::copy();
    std::fs::remove_file(example.path("policies/hospital.cedarschema")).unwrap();
    assert_failed(&example.up(), &[&example.path("policies"), "`Patient`"]);
    std::fs::remove_dir_all(example.path("policies")).unwrap();
    assert_failed(&example.up(), &[&example.path("policies")]);
}

#[test]
fn the_checks_fail_as_the_start_does() {
    let example = Example::copy();
    let check = |arguments: &[&str], on: &str| {
        let environment = [("HOSPITAL_DB_URL", "sqlite:none.sqlite")];
        run(
            Path::new(WARDGATE),
            &[arguments, &[&example.path(on)]].concat(),
            &environment,
        )
    };
    example.spoil("tools.yaml", "type: sql\n", "type: sqll\n");
    let at = line_of(&example, "tools.yaml", "sqll");
    assert_failed(&check(&["tools", "check"], "tools.yaml"), &[&at]);
    assert_failed(&check(&["tools", "list"], "tools.yaml"), &[&at]);
    example.spoil("policies/doctor.cedar", "permit (", "permitt (");
    assert_failed(&check(&["policy", "check"], "policies"), &["doctor.cedar:"]);
    example.spoil("wardgate.yaml", "catalogue:", "catalog:");
    assert_failed(
        &check(&["config", "check", "--config"], "wardgate.yaml"),
        &["catalog"],
    );
}

const REST: &str = "policy: { policies: policies }\ntool_runner: { catalogue: tools.yaml }\n";

/// Sections that make a configuration invalid, each with texts of the error.
const BAD_SECTIONS: &[(&str, &[&str])] = &[
    ("gatewy: {}", &["`gatewy`", "known sections are"]),
    ("gateway: { lisen: 127.0.0.1:1 }", &["`gateway`", "lisen"]),
    ("gateway: { limits: { body: 1 } }", &["`gateway`", "body"]),
    (
        "gateway: { listen: nowhere }",
        &["`gateway`", "`listen`", "socket address"],
    ),
    (
        "gateway: { public_url: mcp.example }",
        &["gateway.public_url", "absolute"],
    ),
    (
        "gateway: { public_url: \"https://mcp.example/api\" }",
        &["gateway.public_url", "remove the path"],
    ),
    (
        "gateway: { allowed_origins: [mcp.example] }",
        &["gateway.allowed_origins", "mcp.example"],
    ),
    ("gateway: { auth: { issuers: [] } }", &["auth.issuers"]),
    (
        "audit: { store: \"mysql://127.0.0.1/x\" }",
        &["store", "sqlite:"],
    ),
    (
        "audit: { store: \"sqlite:a\", stroe: b }",
        &["`audit`", "stroe"],
    ),
    ("telemetry: { log: \"a=b=c\" }", &["telemetry.log"]),
    (
        "telemetry: { log_format: xml }",
        &["`telemetry`", "`log_format`", "xml"],
    ),
];

/// Configurations that are invalid as a whole.
const BAD_FILES: &[(&str, &[&str])] = &[
    (
        "policy: { policies: policies, permit_tll: 3 }\n",
        &["`policy`", "permit_tll"],
    ),
    (
        "policy: { policies: policies, permit_ttl: 0 }\n",
        &["permit_ttl"],
    ),
    (
        "policy: { policies: policies, time_zone: Europe/Wien }\n",
        &["time_zone", "Europe/Wien"],
    ),
    ("policy: {}\n", &["policy.policies", "policy.bundle"]),
    (
        "policy: { policies: policies }\ntool_runner: { catalog: tools.yaml }\n",
        &["`tool_runner`", "catalog"],
    ),
    ("gateway: [\n", &["wardgate.yaml", "line"]),
    ("- a list\n", &["wardgate.yaml"]),
];

#[test]
fn a_configuration_that_cannot_be_used_is_refused_by_section_and_key() {
    for (section, says) in BAD_SECTIONS {
        assert_failed(
            &Example::configured(&format!("{section}\n{REST}")).up(),
            says,
        );
    }
    for (text, says) in BAD_FILES {
        assert_failed(&Example::configured(text).up(), says);
    }
    let example = Example::copy();
    std::fs::remove_file(example.path("wardgate.yaml")).unwrap();
    assert_failed(&example.up(), &["wardgate.yaml", "No such file"]);
}

#[test]
fn the_check_refuses_what_the_start_refuses_and_names_line_and_column() {
    let check = |example: &Example| {
        let config = example.path("wardgate.yaml");
        run(
            Path::new(WARDGATE),
            &["config", "check", "--config", &config],
            &[("HOSPITAL_DB_URL", "sqlite:none.sqlite")],
        )
    };
    let sections = BAD_SECTIONS.iter();
    let sections = sections.map(|(section, says)| (format!("{section}\n{REST}"), *says));
    let files = BAD_FILES.iter();
    let files = files.map(|(text, says)| ((*text).to_owned(), *says));
    for (text, says) in sections.chain(files) {
        let example = Example::configured(&text);
        let ended = check(&example);
        assert_failed(&ended, says);
        let place = format!("{}:", example.path("wardgate.yaml"));
        let place = ended.stderr.split_once(&place).map(|(_, rest)| rest);
        let mut numbers = place.unwrap_or_default().split(':');
        let is_number = |it: Option<&str>| it.is_some_and(|it| it.parse::<u32>().is_ok());
        assert!(
            is_number(numbers.next()) && is_number(numbers.next()),
            "{text}: {}",
            ended.stderr
        );
    }
    // Errors in the files that the configuration names are found too.
    for (file, from, to, says) in [
        ("tools.yaml", "type: sql\n", "type: sqll\n", "tools.yaml:"),
        (
            "policies/doctor.cedar",
            "permit (",
            "permitt (",
            "doctor.cedar:",
        ),
        (
            "assistants.yaml",
            "provider: llm\n",
            "provider: lm\n",
            "assistants.yaml",
        ),
    ] {
        let example = Example::copy();
        example.spoil(file, from, to);
        assert_failed(&check(&example), &[says]);
        let alone = run(
            Path::new(WARDGATE),
            &[
                "config",
                "check",
                "--alone",
                "--config",
                &example.path("wardgate.yaml"),
            ],
            &[],
        );
        assert_eq!(alone.success(), "ok\n");
    }
    let example = Example::copy();
    std::fs::write(example.path("tools.lock"), "version: [").unwrap();
    assert_failed(&check(&example), &["tools.lock"]);
    std::fs::remove_dir_all(example.path("policies")).unwrap();
    assert_failed(&check(&example), &[&example.path("policies")]);
}

#[test]
fn a_value_of_the_environment_is_named_by_its_variable() {
    let example = Example::copy();
    let ended = run(
        Path::new(WARDGATE),
        &[
            "config",
            "check",
            "--alone",
            "--config",
            &example.path("wardgate.yaml"),
        ],
        &[("WARDGATE_POLICY__PERMIT_TTL", "soon")],
    );
    assert_failed(
        &ended,
        &[
            "environment variable WARDGATE_POLICY__PERMIT_TTL",
            "permit_ttl",
        ],
    );
}

#[test]
fn a_separate_service_is_not_started_without_its_keys() {
    let policy = "policy:\n  policies: policies\n  listen: 127.0.0.1:0\n  plaintext: true\n";
    let tools = "tool_runner:\n  catalogue: tools.yaml\n  listen: 127.0.0.1:0\n  plaintext: true\n";
    let audit = "audit:\n  store: sqlite:audit.sqlite\n  listen: 127.0.0.1:0\n  plaintext: true\n";
    for (service, section, key) in [
        ("policy", policy, "permit_key_file"),
        ("tool-runner", tools, "permit_public_key_files"),
        ("audit", audit, "mac_key_file"),
    ] {
        let missing = Example::configured(section).service(service);
        assert_failed(&missing, &[key, "is missing", "wardgate certs dev"]);
        let file = if key.ends_with('s') {
            "[key.pem]"
        } else {
            "key.pem"
        };
        let named = Example::configured(&format!("{section}  {key}: {file}\n"));
        assert_failed(&named.service(service), &["key.pem", "No such file"]);
        std::fs::write(named.path("key.pem"), "changeme").unwrap();
        assert_failed(&named.service(service), &["key.pem is not"]);
    }
}

#[test]
fn plain_text_beyond_this_machine_is_refused() {
    let example = Example::copy();
    let key = run(
        Path::new(WARDGATE),
        &["certs", "dev", "--data-dir", &example.path("data")],
        &[],
    );
    key.success();
    let audit = |listen: &str| {
        format!(
            "audit:\n  store: sqlite:audit.sqlite\n  mac_key_file: data/keys/audit-mac.key\n  log_key_file: data/keys/audit-log.pem\n  details_key_file: data/keys/audit-details.key\n  {listen}\n"
        )
    };
    for listen in [
        "listen: 0.0.0.0:0\n  plaintext: true",
        "listen: 127.0.0.1:0",
        "listen: 127.0.0.1:0\n  plaintext: false",
    ] {
        std::fs::write(example.path("wardgate.yaml"), audit(listen)).unwrap();
        assert_failed(
            &example.service("audit"),
            &["tls", "loopback", "plaintext: true"],
        );
    }
    let gateway = "gateway:\n  listen: 127.0.0.1:0\n  auth: { issuers: [{ issuer: https://i.example, audience: a, jwks: { file: data/keys/jwks.json } }] }\n  links: { policy: http://192.0.2.1:7001, tool_runner: http://127.0.0.1:7002, audit: http://127.0.0.1:7003 }\n";
    std::fs::write(example.path("wardgate.yaml"), gateway).unwrap();
    assert_failed(
        &example.service("gateway"),
        &["http://192.0.2.1:7001", "plain text", "https"],
    );
}

#[test]
fn a_store_that_cannot_be_reached_stops_the_start_without_its_password() {
    let example = Example::copy();
    for (store, says) in [
        (
            "postgres://wardgate:hunter2@127.0.0.1:1/record",
            "127.0.0.1",
        ),
        (
            "sqlite:/no/such/directory/audit.sqlite",
            "/no/such/directory/audit.sqlite",
        ),
    ] {
        std::fs::write(
            example.path("wardgate.yaml"),
            format!("policy: {{ policies: policies }}\ntool_runner: {{ catalogue: tools.yaml }}\naudit: {{ store: \"{store}\" }}\n"),
        )
        .unwrap();
        let ended = example.up();
        assert_failed(&ended, &["audit", says]);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn a_tool_runner_is_not_started_without_a_store_and_a_record() {
    let rest = "policy: { policies: policies }\ntool_runner:\n  catalogue: tools.yaml\n";
    let store = "  store: sqlite:/no/such/directory/tool-runner.sqlite\n";
    assert_failed(
        &Example::configured(&format!("{rest}{store}")).up(),
        &["cannot open the tool-runner's store sqlite:/no/such/directory/tool-runner.sqlite"],
    );
    assert_failed(
        &Example::configured(&format!("{rest}  store: mysql://u:hunter2@h/d\n")).up(),
        &["`sqlite:PATH` or `postgres://…`"],
    );
    let example = Example::copy();
    let made = ["certs", "dev", "--data-dir", &example.path("data")];
    run(Path::new(WARDGATE), &made, &[]).success();
    let keys = "  permit_public_key_files: [data/keys/permit.pub]\n  pseudonym_key_file: data/keys/pseudonym.key\n";
    let listen = "  listen: 127.0.0.1:0\n  plaintext: true\n";
    let split = format!("{rest}{keys}{listen}");
    for (links, says) in [
        ("", "tool_runner.links.audit is missing"),
        ("  links: { audit: http://192.0.2.1:7003 }\n", "plain text"),
        (
            "  links: { audit: http://127.0.0.1:7003 }\n",
            "`sqlite:PATH`",
        ),
    ] {
        std::fs::write(example.path("wardgate.yaml"), format!("{split}{links}")).unwrap();
        assert_failed(&example.service("tool-runner"), &[says]);
    }
}

#[tokio::test]
async fn a_source_that_cannot_be_reached_fails_its_own_tools_alone() {
    let example = Example::copy();
    example.spoil(
        "tools.yaml",
        "tools:\n",
        "  ledger: { type: postgres, url: \"postgres://ledger:hunter2@127.0.0.1:1/ledger\" }\n\
         \ntools:\n  - name: read_ledger\n    description: Reads the ledger.\n    tags: [staff]\n    \
         annotations: { readOnlyHint: true }\n    input_schema: { type: object, properties: {} }\n    \
         execute: { type: sql, source: ledger, statement: SELECT 1 AS one }\n    \
         result: { classes: { one: none } }\n\n",
    );
    let database = example.path("hospital.sqlite");
    let scripts = ["schema.sql", "seed.sql"].map(|name| example.path(name));
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&format!(
        "sqlite:{database}?mode=rwc"
    ))
    .await
    .unwrap();
    let sql = scripts
        .map(|script| std::fs::read_to_string(script).unwrap())
        .concat();
    let sql = format!("BEGIN; {sql}; COMMIT;");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&mut connection)
        .await
        .unwrap();

    let (config, data) = (example.path("wardgate.yaml"), example.path("data"));
    let arguments = [
        "up",
        "--config",
        &config,
        "--data-dir",
        &data,
        "--listen",
        "127.0.0.1:0",
    ];
    let url = format!("sqlite:{database}");
    let process = WardgateProcess::start(
        Path::new(WARDGATE),
        &arguments,
        &[("HOSPITAL_DB_URL", &url)],
    );
    let client = Client::new(
        process
            .ready_line()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .strip_suffix("/mcp")
            .unwrap(),
    );
    let token = [
        "token",
        "--data-dir",
        &data,
        "--sub",
        "dr.yenji",
        "--role",
        "Doctor",
    ];
    let token = run(Path::new(WARDGATE), &token, &[])
        .success()
        .trim()
        .to_owned();
    for _ in 0..2 {
        let reply = client
            .call(&token, "read_ledger", serde_json::json!({}))
            .await;
        assert_eq!(
            reply.tool_error(),
            "Tool execution failed: the data source cannot be reached"
        );
        let reply = client
            .call(&token, "get_medical_records", of_patient("NUGWI"))
            .await;
        assert_eq!(reply.rows().len(), 2);
    }
    assert!(!process.log().contains("hunter2"), "{}", process.log());
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let example = Example::copy();
    let arguments = [
        "up",
        "--data-dir",
        &example.path("data"),
        "--listen",
        &address,
    ];
    assert_failed(
        &run(Path::new(WARDGATE), &arguments, &[]),
        &["cannot listen on", &address],
    );
}

#[test]
fn a_data_directory_that_is_a_file_is_named() {
    let example = Example::copy();
    let file = example.path("README.md");
    for arguments in [
        &["up", "--data-dir", &file][..],
        &["certs", "dev", "--data-dir", &file],
    ] {
        assert_failed(&run(Path::new(WARDGATE), arguments, &[]), &[&file]);
    }
}

#[test]
fn a_command_without_its_data_directory_makes_none() {
    let example = Example::copy();
    let absent = example.path("absent");
    for arguments in [
        &["token", "--sub", "a", "--role", "b", "--data-dir", &absent][..],
        &["audit", "query", "--offline", "--data-dir", &absent],
    ] {
        assert_failed(&run(Path::new(WARDGATE), arguments, &[]), &[&absent]);
    }
    assert!(!Path::new(&absent).exists());
}

#[test]
fn wrong_usage_exits_with_two_and_says_how_it_is_used() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["up", "--no-such-option"],
        &["up", "--listen", "nowhere"],
        &["up", "--demo", "hospital", "--config", "x.yaml"],
        &["up", "--demo", "prison"],
        &["gateway"],
        &["policy"],
        &["audit"],
        &["token", "--sub", "a"],
        &["token", "--role", "b"],
        &["token", "--sub", "a", "--role", "b", "--ttl", "soon"],
        &["token", "--sub", "a", "--role", "b", "--claim", "ward"],
        &["audit", "query", "--status", "fine"],
        &["audit", "query", "--since", "yesterday"],
        &["audit", "query", "--limit", "-1"],
        &["audit", "query", "--view", "access"],
        &["audit", "query", "--offline", "--token-file", "a"],
        &[
            "policy",
            "replay",
            "--with",
            "a",
            "--offline",
            "--token-file",
            "b",
        ],
        &[
            "audit",
            "export",
            "--out",
            "a",
            "--offline",
            "--context",
            "b",
        ],
        &["tools", "validate", "a", "b"],
    ] {
        let ended = run(Path::new(WARDGATE), arguments, &[]);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?}");
        assert!(
            ended.stderr.contains("--help") || ended.stderr.contains("Usage:"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn health_tells_by_its_exit_code() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{nobody}");
    let ended = run(Path::new(WARDGATE), &["health", "--url", &url], &[]);
    assert_failed(&ended, &[&url]);

    let app = TestApp::start(WARDGATE);
    let url = app.client().base();
    let said = run(Path::new(WARDGATE), &["health", "--url", url], &[]).success();
    assert!(said.contains(r#""status":"ready""#), "{said}");
}

#[tokio::test]
async fn metrics_are_on_loopback_alone_and_where_the_configuration_says() {
    // Another process may use this port already. A second system starts anyway, and reports the address of its metrics.
    let taken = std::net::TcpListener::bind("127.0.0.1:9090");
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let clients = listen.local_addr().unwrap();
    drop(listen);
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_GATEWAY__LISTEN", "127.0.0.1:1")]);
    let probes = app.probes();
    assert!(
        probes.base().starts_with("http://127.0.0.1:"),
        "{}",
        probes.base()
    );
    assert_ne!(probes.base(), app.client().base());
    assert_eq!(probes.get("/metrics").await.status, 200);

    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().display().to_string();
    let listen = clients.to_string();
    let second = WardgateProcess::start(
        Path::new(WARDGATE),
        &["up", "--data-dir", &dir, "--listen", &listen],
        &[],
    );
    let line = second.ready_line();
    // If another test had the port, that test may have ended by now.
    if taken.is_ok() {
        assert!(!line.contains("127.0.0.1:9090"), "{line}");
        wardgate_testkit::until("the log says so", async || {
            let said = second.log().contains("cannot listen on 127.0.0.1:9090");
            said.then_some(())
        })
        .await;
    }

    let own = TestApp::start_with(WARDGATE, &[("WARDGATE_GATEWAY__PROBES", "127.0.0.1:0")]);
    assert_eq!(own.probes().get("/readyz").await.status, 200);
    for path in ["/ready", "/metrics"] {
        assert_eq!(own.client().get(path).await.status, 404, "{path}");
    }
    assert_eq!(own.client().get("/health").await.status, 200);
}

#[tokio::test]
async fn the_probes_answer_without_a_token() {
    let app = TestApp::start(WARDGATE);
    for path in ["/health", "/healthz"] {
        let reply = app.client().get(path).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (200, r#"{"status":"ok"}"#)
        );
    }
    for path in ["/ready", "/readyz"] {
        let reply = app.client().get(path).await;
        assert_eq!(reply.status, 200);
        for part in ["keys", "policy", "tool-runner", "catalogue", "audit"] {
            assert_eq!(reply.json()["parts"][part], "ready", "{part}");
        }
    }
    let token = doctor(&app);
    app.client()
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(app.client().get("/metrics").await.status, 404);
    let metrics = app.probes().get("/metrics").await;
    assert!(
        metrics.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain")
    );
    let counted = r#"wardgate_tool_calls_total{tool="get_medical_records",status="ok"} 1"#;
    assert!(metrics.body.contains(counted), "{}", metrics.body);
}
