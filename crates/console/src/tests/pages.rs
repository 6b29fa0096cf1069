//! Tools and their calls, as a browser gets them.

use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::Stage;

const HOSTILE: &str = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'";

fn hostile_tool() -> Value {
    json!({
        "name": "look_up",
        "title": HOSTILE,
        "description": HOSTILE,
        "inputSchema": {
            "properties": { "code": { "type": "string", "description": HOSTILE, "default": HOSTILE } },
            "required": ["code"],
        },
        "annotations": { "readOnlyHint": true, "title": HOSTILE },
    })
}

fn is_clean(page: &str) -> bool {
    !page.contains("<script>alert") && !page.contains("<img")
}

#[tokio::test]
async fn what_tools_say_is_text_on_every_page() {
    let stage = Stage::new().await;
    stage.gateway.has(hostile_tool());
    let cookie = stage.sign_in("anna").await;
    let list = stage.get("/console/tools", &cookie).await;
    let tool = stage.get("/console/tools/look%5Fup", &cookie).await;
    for answer in [
        json!({ "result": {
            "content": [{ "type": "text", "text": HOSTILE }, { "type": HOSTILE, "mimeType": HOSTILE },
                { "type": "resource", "resource": { "text": HOSTILE } }],
            "structuredContent": { "rows": [{ HOSTILE: HOSTILE }], HOSTILE: HOSTILE },
            "_meta": { "dev.wardgate/callId": HOSTILE, "dev.wardgate/decisionId": HOSTILE },
        } }),
        json!({ "result": { "isError": true, "content": [{ "type": "text", "text": HOSTILE }] } }),
        json!({ "error": { "code": -1, "message": HOSTILE, "data": { "reason": HOSTILE } } }),
    ] {
        stage.gateway.answers(answer);
        let form = format!("argument.code={}", crate::fields::segment(HOSTILE));
        let result = stage.post("/console/tools/look_up", &cookie, &form).await;
        assert_eq!(result.status, StatusCode::OK);
        assert!(is_clean(&result.body), "{}", result.body);
        assert!(result.body.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
    assert!(is_clean(&list.body) && is_clean(&tool.body));
    assert!(list.body.contains("only reads"), "{}", list.body);
}

/// Under which the form of a page calls its tool.
fn key_of(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"key\" value=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_call_goes_out_in_the_persons_name_once_and_its_place_on_record_is_linked() {
    let stage = Stage::new().await;
    stage.gateway.has(hostile_tool());
    stage.gateway.answers(json!({ "result": {
        "content": [{ "type": "text", "text": "x" }],
        "structuredContent": [{ "code": "•••WI", "n": 1 }],
        "_meta": {
            "dev.wardgate/callId": "0192d1a0-0000-7000-8000-000000000001",
            "dev.wardgate/receipt": { "leafHash": "00" },
        },
    } }));
    let cookie = stage.sign_in("anna").await;
    let form = stage.get("/console/tools/look_up", &cookie).await;
    let key = key_of(&form.body);
    let filled = format!("argument.code=NUGWI&key={key}");
    let page = stage.post("/console/tools/look_up", &cookie, &filled).await;
    for shown in [
        "<td>•••WI</td>",
        "call_id=0192d1a0",
        "value=\"NUGWI\"",
        "Done.",
    ] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    let calls = stage.gateway.calls();
    let (headers, call) = &calls[0];
    assert!(
        headers["authorization"]
            .to_str()
            .unwrap()
            .starts_with("Bearer ey")
    );
    assert_eq!(headers["mcp-name"], "look_up");
    assert!(!headers.contains_key("cookie"));
    assert_eq!(call["params"]["arguments"], json!({ "code": "NUGWI" }));
    assert_eq!(
        call["params"]["_meta"]["dev.wardgate/idempotencyKey"],
        json!(key)
    );
    // The page it came back on makes another call, and not the same again.
    assert_ne!(key_of(&page.body), key);
}

#[tokio::test]
async fn what_does_not_fit_is_kept_in_the_form_and_calls_nothing() {
    let stage = Stage::new().await;
    stage.gateway.has(json!({ "name": "look_up", "inputSchema": { "properties": { "n": { "type": "integer" } } } }));
    let cookie = stage.sign_in("anna").await;
    let page = stage
        .post("/console/tools/look_up", &cookie, "argument.n=many")
        .await;
    assert!(
        page.body.contains("It is not a whole number.") && page.body.contains("value=\"many\""),
        "{}",
        page.body
    );
    assert!(stage.gateway.calls().is_empty());
}

#[tokio::test]
async fn a_tool_that_is_hidden_and_one_that_is_not_there_are_the_same_page() {
    let stage = Stage::new().await;
    stage.gateway.has(hostile_tool());
    let cookie = stage.sign_in("anna").await;
    let (hidden, unknown) = (
        stage.get("/console/tools/secret_tool", &cookie).await,
        stage.get("/console/tools/no_such_tool", &cookie).await,
    );
    assert_eq!(hidden.status, StatusCode::NOT_FOUND);
    assert_eq!(hidden.body, unknown.body);
    let called = stage
        .post("/console/tools/secret_tool", &cookie, "arguments={}")
        .await;
    assert_eq!(called.body, unknown.body);
    assert!(stage.gateway.calls().is_empty());
}

#[tokio::test]
async fn tools_are_found_by_what_they_are_called_and_say() {
    let stage = Stage::new().await;
    for at in 0..95 {
        stage.gateway.has(json!({ "name": format!("tool_{at}"), "description": format!("Number {at}."), "inputSchema": {} }));
    }
    let cookie = stage.sign_in("anna").await;
    let page = stage.get("/console/tools?q=NUMBER+94", &cookie).await.body;
    assert!(
        page.contains("1 of 95 tools") && page.contains("/console/tools/tool%5F94"),
        "{page}"
    );
    let last = stage.get("/console/tools?page=3", &cookie).await.body;
    assert!(
        last.contains("tool_94") && !last.contains("tool_1<") && last.contains("Page 3 of 3"),
        "{last}"
    );
    let beyond = stage
        .get("/console/tools?page=99999999999999999999", &cookie)
        .await;
    assert_eq!(beyond.status, StatusCode::OK);
}

#[tokio::test]
async fn a_gateway_that_fails_is_named_and_nothing_else_is() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in("anna").await;
    for (status, answered) in [
        (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY),
    ] {
        stage.gateway.fails_with(status);
        let reply = stage.get("/console/tools", &cookie).await;
        assert_eq!(reply.status, answered);
        assert!(
            reply.body.contains("The gateway did not answer"),
            "{}",
            reply.body
        );
    }
}

#[tokio::test]
async fn chat_says_what_is_missing_and_passes_messages_and_events_and_no_more() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in("anna").await;
    let page = stage.get("/console/chat", &cookie).await.body;
    assert!(
        page.contains("LLM_BASE_URL") && page.contains("value=\"clinic\""),
        "{page}"
    );
    for (path, body) in [
        ("/console/chat/message", r#"{"message":"hi"}"#),
        (
            "/console/chat/approvals/a-b%5Fc",
            r#"{"decision":"approve"}"#,
        ),
    ] {
        let request = Request::post(path)
            .header("origin", "http://localhost:8082")
            .header("content-type", "application/json")
            .header("cookie", &cookie);
        let reply = stage.send(request.body(body.into()).unwrap()).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (StatusCode::OK, "{}\n")
        );
        assert_eq!(reply.header("x-secret"), "");
    }
    assert_eq!(
        stage.gateway.said(),
        [r#"{"message":"hi"}"#, r#"a-b_c: {"decision":"approve"}"#]
    );
    // A plain form of another page could not say that it is JSON.
    let reply = stage.post("/console/chat/message", &cookie, "{}").await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
