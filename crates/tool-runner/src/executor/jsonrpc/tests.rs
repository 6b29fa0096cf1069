//! Tests of both dialects against a server with prepared answers.

use std::sync::Mutex;

use axum::Router;
use axum::routing::post;

use super::*;
use crate::executor::testing::{TestTool, refusal_text};

const METHOD: &str =
    "{ type: jsonrpc, source: api, path: /mcp/, dialect: method, method: get_records }";
const TOOLS_CALL: &str = "{ type: jsonrpc, source: api, path: /mcp/, method: get_records, params: { patient: '{id}', n: '{n}' } }";

/// Starts a server that answers with `body`, in which `ID` stands for the id of the request.
async fn server(status: u16, body: &'static str) -> (u16, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let answer = post(async move |request: String| {
        let request: Value = serde_json::from_str(&request).unwrap();
        let body = body.replace("ID", &request["id"].to_string());
        record.lock().unwrap().push(request);
        (StatusCode::from_u16(status).unwrap(), body)
    });
    let router = Router::new().route("/mcp/", answer);
    let port = wardgate_testkit::serve(router).await.port();
    (port, seen)
}

fn tool(port: u16, execute: &str) -> TestTool {
    let sources =
        format!("{{ api: {{ type: http, base_url: 'http://127.0.0.1:{port}', private: true }} }}");
    TestTool::new(&sources, execute, "{}")
}

async fn run_with_answer(status: u16, body: &'static str) -> Result<Vec<Value>, ExecutorError> {
    let (port, _) = server(status, body).await;
    let out = tool(port, METHOD).run(json!({"id": "NUGWI"})).await?;
    Ok(out.rows)
}

#[tokio::test]
async fn each_dialect_sends_its_own_envelope() {
    let (port, seen) = server(200, r#"{"jsonrpc":"2.0","id":ID,"result":{"data":[]}}"#).await;
    let arguments = json!({"id": "NUGWI", "n": 7});
    tool(port, METHOD).run(arguments.clone()).await.unwrap();
    tool(port, TOOLS_CALL).run(arguments).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0],
        json!({"jsonrpc": "2.0", "id": 1, "method": "get_records",
               "params": {"name": "get_records", "arguments": {"id": "NUGWI", "n": 7}}})
    );
    assert_eq!(
        seen[1],
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "get_records", "arguments": {"patient": "NUGWI", "n": 7}}})
    );
}

#[tokio::test]
async fn every_request_has_an_id_of_its_own() {
    let (port, seen) = server(200, r#"{"jsonrpc":"2.0","id":ID,"result":{"data":[]}}"#).await;
    let tool = tool(port, METHOD);
    for _ in 0..3 {
        tool.run(json!({})).await.unwrap();
    }
    let ids: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[tokio::test]
async fn a_result_is_its_data_else_its_structured_content_else_its_content_else_itself() {
    for (body, wanted) in [
        (
            r#"{"id":ID,"result":{"data":[{"a":1},{"a":2}],"content":[]}}"#,
            vec![json!({"a": 1}), json!({"a": 2})],
        ),
        (
            r#"{"id":ID,"error":null,"result":{"content":[],"structuredContent":{"a":1}}}"#,
            vec![json!({"a": 1})],
        ),
        (
            r#"{"id":ID,"result":{"content":[{"type":"text","text":"x"}],"isError":false}}"#,
            vec![json!({"content": [{"type": "text", "text": "x"}]})],
        ),
        (r#"{"id":ID,"result":{"a":1}}"#, vec![json!({"a": 1})]),
        (r#"{"id":ID,"result":[1]}"#, vec![json!({"value": 1})]),
    ] {
        assert_eq!(run_with_answer(200, body).await.unwrap(), wanted, "{body}");
    }
}

#[tokio::test]
async fn an_error_is_reported_in_the_servers_words() {
    for body in [
        r#"{"id":ID,"error":{"code":-32602,"message":"Invalid patient_id"}}"#,
        r#"{"id":ID,"result":null,"error":{"message":"Invalid patient_id"}}"#,
        r#"{"id":null,"error":{"message":"Invalid patient_id"}}"#,
        r#"{"error":"Invalid patient_id"}"#,
    ] {
        let error = run_with_answer(200, body).await.unwrap_err();
        assert!(
            matches!(&error, ExecutorError::Reported(words) if words == "Invalid patient_id"),
            "{body}: {error}"
        );
    }
}

#[tokio::test]
async fn a_result_that_is_an_error_is_told_in_the_words_of_its_content() {
    for (result, told) in [
        (
            r#"{"content":[{"type":"text","text":"no such patient"}],"isError":true}"#,
            "no such patient",
        ),
        (
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":""},{"type":"text","text":"b"}],"structuredContent":{"x":1},"isError":true}"#,
            "a\nb",
        ),
        (
            r#"{"isError":true,"data":[{"id":1}]}"#,
            "the tool failed without an error message",
        ),
        (
            r#"{"content":[],"isError":true}"#,
            "the tool failed without an error message",
        ),
    ] {
        let body = format!(r#"{{"id":ID,"result":{result}}}"#);
        let error = run_with_answer(200, body.leak()).await.unwrap_err();
        assert!(
            matches!(&error, ExecutorError::Reported(words) if words == told),
            "{result}: {error}"
        );
    }
}

#[tokio::test]
async fn another_status_is_named_as_it_is() {
    for status in [201, 403, 429, 500, 503] {
        let body = r#"{"id":ID,"result":{"data":["canary"]}}"#;
        let error = run_with_answer(status, body).await.unwrap_err();
        assert_eq!(refusal_text(error), format!("MCP server returned {status}"));
    }
}

#[tokio::test]
async fn an_answer_that_is_none_says_so() {
    for (body, what) in [
        (
            r#"{"jsonrpc":"2.0","id":ID}"#,
            "neither a result nor an error",
        ),
        (
            r#"{"jsonrpc":"2.0","id":ID,"error":null}"#,
            "neither a result nor an error",
        ),
        (
            r#"{"id":7777,"result":{"data":["canary"]}}"#,
            "a response to another request",
        ),
        (
            r#"{"id":"ID","result":{"data":["canary"]}}"#,
            "a response to another request",
        ),
        (
            r#"{"id":7777,"error":{"message":"canary"}}"#,
            "a response to another request",
        ),
        (
            r#"{"id":null,"result":{"data":["canary"]}}"#,
            "a response to another request",
        ),
        (
            r#"{"result":{"data":["canary"]}}"#,
            "a response to another request",
        ),
        (
            r#"{"id":ID,"id":ID,"result":"canary"}"#,
            "a response that is not JSON",
        ),
        ("canary", "a response that is not JSON"),
        ("", "a response that is not JSON"),
        (
            r#"[{"id":ID,"result":"canary"}]"#,
            "a response that is not a JSON-RPC message",
        ),
        (
            r#"{"id":ID,"result":{"content":"canary"}}"#,
            "content that is not a list",
        ),
    ] {
        let error = run_with_answer(200, body).await.unwrap_err();
        assert_eq!(
            refusal_text(error),
            format!("MCP server returned {what}"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn without_a_path_the_url_of_the_source_is_called_as_it_is() {
    let (port, seen) = server(200, r#"{"id":ID,"result":{"data":[]}}"#).await;
    let sources = format!(
        "{{ api: {{ type: http, base_url: 'http://127.0.0.1:{port}/mcp/', private: true }} }}"
    );
    let tool = TestTool::new(&sources, "{ type: jsonrpc, source: api, method: m }", "{}");
    tool.run(json!({})).await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn hostile_arguments_stay_values() {
    let (port, seen) = server(200, r#"{"id":ID,"result":{"data":[]}}"#).await;
    let tool = tool(port, TOOLS_CALL);
    for value in [
        json!("\",\"method\":\"admin\",\"x\":\""),
        json!("\r\n\0"),
        json!({"method": "admin"}),
        json!(u64::MAX),
    ] {
        tool.run(json!({"id": value})).await.unwrap();
        let request = seen.lock().unwrap().pop().unwrap();
        let params = json!({"name": "get_records", "arguments": {"patient": value}});
        assert_eq!(request["method"], "tools/call");
        assert_eq!(request["params"], params);
        assert_eq!(request.as_object().unwrap().len(), 4);
    }
}
