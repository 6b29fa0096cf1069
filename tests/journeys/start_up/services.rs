//! Separate services, stores and sources: what is missing or cannot be reached.

use std::path::Path;

use wardgate_testkit::{Client, WardgateProcess, run};

use super::super::people::of_patient;
use super::{Example, assert_failed};
use crate::WARDGATE;

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
        let missing = Example::with_config(section).service(service);
        assert_failed(&missing, &[key, "is missing", "wardgate certs dev"]);
        let file = if key.ends_with('s') {
            "[key.pem]"
        } else {
            "key.pem"
        };
        let named = Example::with_config(&format!("{section}  {key}: {file}\n"));
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
        &Example::with_config(&format!("{rest}{store}")).up(),
        &["cannot open the tool-runner's store sqlite:/no/such/directory/tool-runner.sqlite"],
    );
    assert_failed(
        &Example::with_config(&format!("{rest}  store: mysql://u:hunter2@h/d\n")).up(),
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
