//! Tests of tools that call a real MCP server.

use super::*;
use crate::executor::testing::{TestTool, refusal_text};
use wardgate_mcp_client::testing::program;

fn tool(kind: &str, execute: &str) -> TestTool {
    let source = format!("{{ up: {} }}", program::source(kind));
    TestTool::new(&source, execute, "{}")
}

const ODD: &str = "{ type: mcp, source: up, tool: odd }";

#[tokio::test]
async fn a_tool_gets_the_arguments_of_the_call_and_its_content_is_the_result() {
    let mirror = tool("mirror", ODD);
    let ran = mirror.run(json!({"id": "a", "n": 7})).await.unwrap();
    let seen = ran.rows[0]["content"][0]["text"].as_str().unwrap();
    let seen: Value = serde_json::from_str(seen).unwrap();
    assert_eq!(seen["params"]["name"], "odd");
    assert_eq!(seen["params"]["arguments"], json!({"id": "a", "n": 7}));
    assert!(!ran.is_error);
}

#[tokio::test]
async fn arguments_may_be_named_and_formed_anew() {
    let execute = "{ type: mcp, source: up, tool: echo, arguments: { region: 'r-{id}', n: '{n}', gone: '{absent}' } }";
    let echo = tool("rmcp-modern", execute);
    let ran = echo.run(json!({"id": "a", "n": 7})).await.unwrap();
    assert_eq!(
        ran.rows[0]["structuredContent"],
        json!({"region": "r-a", "n": 7})
    );
}

#[tokio::test]
async fn structured_content_is_rows_where_the_result_says_so() {
    let source = format!("{{ up: {} }}", program::source("rmcp-modern"));
    let execute = "{ type: mcp, source: up, tool: echo }";
    let echo = TestTool::new(&source, execute, "{ shape: rows, rows: /list }");
    let ran = echo
        .run(json!({"list": [{"a": 1}, {"a": 2}]}))
        .await
        .unwrap();
    assert_eq!(ran.rows, [json!({"a": 1}), json!({"a": 2})]);
}

#[tokio::test]
async fn resources_and_prompts_are_tools_too() {
    let memo = tool(
        "rmcp-modern",
        "{ type: mcp, source: up, resource: 'memo://{id}' }",
    );
    let ran = memo.run(json!({"id": "one"})).await.unwrap();
    let part = json!({"uri": "memo://one", "mimeType": "text/plain", "text": "a memo"});
    assert_eq!(
        ran.rows[0]["content"],
        json!([{"type": "resource", "resource": part}])
    );

    let execute = "{ type: mcp, source: up, prompt: greet, arguments: { name: '{id}' } }";
    let ran = tool("rmcp-modern", execute)
        .run(json!({"id": "Ann"}))
        .await
        .unwrap();
    let greeting = json!({"type": "text", "text": "Greet \"Ann\""});
    assert_eq!(ran.rows[0]["content"], json!([greeting]));
    assert_eq!(
        ran.rows[0]["structuredContent"]["messages"],
        json!([{"role": "user", "content": greeting}])
    );
}

#[tokio::test]
async fn where_resources_are_offered_a_result_names_them_as_clients_know_them() {
    let source = program::source("rmcp-modern");
    let source = format!("{{ up: {{ resources: all, {} }}", &source.trim()[1..]);
    let execute = "{ type: mcp, source: up, resource: 'memo://{id}' }";
    let memo = TestTool::new(&source, execute, "{}");
    let ran = memo.run(json!({"id": "one"})).await.unwrap();
    let block = &ran.rows[0]["content"][0];
    assert_eq!(block["resource"]["uri"], "up+memo://one");
}

#[tokio::test]
async fn a_failure_of_the_tool_is_its_own_and_other_failures_are_ours() {
    let failed = tool("rmcp-modern", "{ type: mcp, source: up, tool: fail }");
    let ran = failed.run(json!({})).await.unwrap();
    assert!(ran.is_error);
    assert_eq!(ran.rows[0]["content"][0]["text"], "it failed");

    let outcome = tool("refuses", ODD).run(json!({})).await;
    assert!(
        matches!(outcome, Err(ExecutorError::Protocol(error)) if error.message == "secret words")
    );
    let outcome = tool("dies", ODD).run(json!({})).await;
    assert!(matches!(outcome, Err(ExecutorError::Broken(_))));
    let outcome = tool("contentless", ODD).run(json!({})).await;
    assert!(matches!(outcome, Err(ExecutorError::BadResult(_))));
    let outcome = tool("input", ODD).run(json!({})).await.unwrap_err();
    assert!(refusal_text(outcome).contains("requests input"));
}

#[test]
fn what_is_asked_of_the_server_must_be_one_thing() {
    let sources =
        "{ up: { type: mcp, command: [server] }, db: { type: sqlite, url: 'sqlite::memory:' } }";
    for (execute, expected) in [
        ("{ type: mcp, source: up }", "must have exactly one of"),
        (
            "{ type: mcp, source: up, tool: a, prompt: b }",
            "must have exactly one of",
        ),
        (
            "{ type: mcp, source: db, tool: a }",
            "not a source of type mcp",
        ),
        (
            "{ type: mcp, source: up, tool: a, arguments: { a: '{nobody}' } }",
            "`{nobody}`",
        ),
        (
            "{ type: mcp, source: up, resource: 'a://{nobody}' }",
            "`{nobody}`",
        ),
        (
            "{ type: mcp, source: up, resource: 'a://b', arguments: {} }",
            "does not support `arguments`",
        ),
    ] {
        let faults = TestTool::faults(sources, execute);
        assert!(faults.contains(expected), "{execute}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{execute}: {faults}");
    }
}

#[test]
fn a_faulty_source_says_what_to_mend() {
    for (source, expected) in [
        ("{ type: mcp }", "either a `command` or a `url`"),
        (
            "{ type: mcp, command: [a], url: 'https://a.example/mcp' }",
            "either a `command` or a `url`",
        ),
        ("{ type: mcp, command: [] }", "`command` is empty"),
        (
            "{ type: mcp, command: ['${NO_SUCH_VARIABLE}'] }",
            "NO_SUCH_VARIABLE",
        ),
        (
            "{ type: mcp, command: [a], headers: {} }",
            "unknown key `headers`",
        ),
        (
            "{ type: mcp, url: 'https://a.example/mcp', env: {} }",
            "unknown key `env`",
        ),
        (
            "{ type: mcp, command: [a], env: { 'A=B': c } }",
            "environment variable",
        ),
        ("{ type: mcp, command: [a], prefix: 'a b' }", "`prefix`"),
        ("{ type: mcp, command: [a], tools: some }", "`tools`"),
        (
            "{ type: mcp, command: [a], classes: { a: 'b c' } }",
            "column class",
        ),
        (
            "{ type: mcp, url: 'https://a.example/mcp', listing_auth: { type: token_exchange, token_url: 'https://a.example/token', client_id: a, client_secret: b } }",
            "`listing_auth` depends on a caller",
        ),
    ] {
        let faults = TestTool::faults(&format!("{{ up: {source} }}"), ODD);
        assert!(faults.contains(expected), "{source}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{source}: {faults}");
    }
}
