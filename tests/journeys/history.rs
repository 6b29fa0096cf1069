//! Tests of policies that depend on earlier calls, which are counted in the record across all processes.

use std::fs;

use futures::future::join_all;
use serde_json::{Value, json};
use wardgate_testkit::{Client, Reply, SeparateProcesses, System, TestApp, WardgateProcess, until};

use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// `get_admissions` represents an export, and `get_shifts` an e-mail.
const COUNTERS: &str = r#"entity History {
  @tools("get_admissions") @within("24h")
  exports: Long,
  @tools("get_medical_records, get_patient_overview") @of("conversation") @released("phi") @within("24h")
  patient_rows: Long,
};"#;

const EXPORTS: &str = r#"@id("three-exports-a-day")
forbid (principal, action == Action::"call_tool", resource == Tool::"get_admissions")
when { context.history.exports >= 3 };
"#;

const MAILS: &str = r#"@id("no-mail-after-patient-rows")
forbid (principal, action == Action::"call_tool", resource == Tool::"get_shifts")
when { context.history.patient_rows > 0 };
"#;

fn add_policies(system: &impl System, policies: &str) {
    let directory = system.example_dir().join("policies");
    fs::write(directory.join("history.cedarschema"), COUNTERS).unwrap();
    fs::write(directory.join("history.cedar"), policies).unwrap();
}

async fn export(client: &Client, token: &str) -> Reply {
    client
        .call(token, "get_admissions", of_patient("NUGWI"))
        .await
}

fn assert_allowed(reply: &Reply) {
    assert_eq!(reply.result()["isError"], false, "{reply:?}");
}

/// Returns the reason on record why the last call was denied.
fn last_reason(system: &impl System) -> Value {
    let records = system.records_with(&["--event", "outcome"]);
    let last = records.last().unwrap();
    assert_eq!(last["status"], "denied", "{last}");
    last["reason"].clone()
}

/// Starts a second gateway beside the one of `system`.
fn second_gateway(system: &SeparateProcesses) -> (WardgateProcess, Client) {
    let config = system.config().display().to_string();
    let store = format!(
        "sqlite:{}",
        system.data_dir().join("second.sqlite").display()
    );
    let environment = [
        ("WARDGATE_GATEWAY__LISTEN", "127.0.0.1:0"),
        ("WARDGATE_GATEWAY__STORE", store.as_str()),
    ];
    let arguments = ["gateway", "--config", &config];
    let process = WardgateProcess::start(WARDGATE.as_ref(), &arguments, &environment);
    let url = process.ready_line().split_whitespace().nth(1).unwrap();
    let client = Client::new(url.strip_suffix("/mcp").unwrap());
    (process, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fourth_export_of_a_day_is_refused_by_whichever_gateway() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    add_policies(&system, EXPORTS);
    tokio::task::block_in_place(|| system.restart("policy"));
    system.until_ready(true).await;
    let (_second, second) = second_gateway(&system);
    let token = doctor(&system);

    assert_allowed(&export(system.client(), &token).await);
    assert_allowed(&export(&second, &token).await);
    // The counts survive a restart of the process that counted.
    tokio::task::block_in_place(|| system.restart("policy"));
    for client in [system.client(), &second] {
        until("it knows the policies again", async || {
            (client.get("/ready").await.status == 200).then_some(())
        })
        .await;
    }
    assert_allowed(&export(system.client(), &token).await);
    for client in [&second, system.client()] {
        let refused = export(client, &token).await;
        assert!(refused.tool_error().contains("forbidden"), "{refused:?}");
    }
    assert_eq!(last_reason(&system), "forbidden");
    // Another person has separate counts, and another tool is not counted.
    let other = system.token("dr.other", "Doctor", &[]);
    let overview = client_call(system.client(), &token, None, "get_patient_overview").await;
    assert_allowed(&overview);

    // Of concurrent calls exactly as many are allowed as the limit permits.
    let calls = (0..8).map(|number| {
        let client = if number % 2 == 0 {
            system.client()
        } else {
            &second
        };
        export(client, &other)
    });
    let refused = join_all(calls).await;
    let refused = refused
        .iter()
        .filter(|reply| reply.body.contains("forbidden"));
    assert_eq!(refused.count(), 5);
}

/// Makes a call in `conversation`.
async fn client_call(
    client: &Client,
    token: &str,
    conversation: Option<&str>,
    tool: &str,
) -> Reply {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if let Some(conversation) = conversation {
        meta["dev.wardgate/conversation"] = conversation.into();
    }
    let arguments = match tool {
        "get_shifts" => json!({}),
        _ => of_patient("NUGWI"),
    };
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    client
        .post("/mcp", Some(token), &headers, body.to_string())
        .await
}

#[tokio::test]
async fn a_mail_after_patient_rows_is_refused_in_that_conversation_alone() {
    let mut app = TestApp::start(WARDGATE);
    add_policies(&app, MAILS);
    app.process.terminate();
    app.restart();
    let token = doctor(&app);
    let mail = async |app: &TestApp, conversation: Option<&str>| {
        client_call(app.client(), &token, conversation, "get_shifts").await
    };
    assert_allowed(&mail(&app, Some("ward round")).await);
    let rows = client_call(
        app.client(),
        &token,
        Some("ward round"),
        "get_medical_records",
    )
    .await;
    assert_eq!(rows.rows().len(), 2);
    let refused = mail(&app, Some("ward round")).await;
    assert!(refused.tool_error().contains("forbidden"), "{refused:?}");
    assert_allowed(&mail(&app, Some("rota")).await);

    app.process.kill();
    app.restart();
    let refused = mail(&app, Some("ward round")).await;
    assert!(refused.tool_error().contains("forbidden"), "{refused:?}");
    assert_allowed(&mail(&app, Some("rota")).await);
    // The call names no conversation.
    let unknown = mail(&app, None).await;
    assert!(
        unknown.tool_error().contains("history_unavailable"),
        "{unknown:?}"
    );
    assert_eq!(last_reason(&app), "history_unavailable");
    // The record does not contain the name of the conversation.
    let records = app.records();
    assert!(
        !records
            .iter()
            .any(|record| record.to_string().contains("ward round"))
    );
    assert!(
        records
            .iter()
            .any(|record| record["conversation_hmac"].is_string())
    );
}

#[tokio::test]
async fn calls_of_tools_with_a_tag_are_counted_by_the_tags_in_the_record() {
    let mut app = TestApp::start(WARDGATE);
    let directory = app.example_dir().join("policies");
    let counters =
        r#"entity History { @tags("clinical, none") @within("24h") clinical_calls: Long };"#;
    fs::write(directory.join("history.cedarschema"), counters).unwrap();
    let policy = r#"@id("no-shifts-after-two-clinical-calls")
        forbid (principal, action == Action::"call_tool", resource == Tool::"get_shifts")
        when { context.history.clinical_calls >= 2 };"#;
    fs::write(directory.join("history.cedar"), policy).unwrap();
    app.process.terminate();
    app.restart();
    let token = doctor(&app);
    let call = async |tool: &str| client_call(app.client(), &token, None, tool).await;
    assert_allowed(&call("get_admissions").await);
    assert_allowed(&call("get_shifts").await);
    assert_allowed(&call("get_shifts").await);
    assert_allowed(&call("get_patient_overview").await);
    let refused = call("get_shifts").await;
    assert!(refused.tool_error().contains("forbidden"), "{refused:?}");
    let records = app.records_with(&["--event", "outcome"]);
    let tags: Vec<_> = records.iter().map(|record| &record["tags"]).collect();
    let (clinical, staff) = (json!(["clinical"]), json!(["staff"]));
    assert_eq!(tags, [&clinical, &staff, &staff, &clinical, &staff]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_refused_while_nobody_can_count_those_before_it() {
    let environment = [("WARDGATE_POLICY__LINKS__AUDIT", "https://127.0.0.1:1")];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    add_policies(&system, EXPORTS);
    tokio::task::block_in_place(|| system.restart("policy"));
    system.until_ready(true).await;
    let token = doctor(&system);
    let refused = export(system.client(), &token).await;
    assert!(
        refused.tool_error().contains("history_unavailable"),
        "{refused:?}"
    );
    assert_eq!(last_reason(&system), "history_unavailable");
    let other = client_call(system.client(), &token, None, "get_patient_overview").await;
    assert_allowed(&other);
}
