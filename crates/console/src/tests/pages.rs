//! Tests of the pages of tools and their calls.

use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::TestConsole;

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
    let stage = TestConsole::new().await;
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
        let result = stage.call("/console/tools/look_up", &cookie, &form).await;
        assert_eq!(result.status, StatusCode::OK);
        assert!(is_clean(&result.body), "{}", result.body);
        assert!(result.body.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
    assert!(is_clean(&list.body) && is_clean(&tool.body));
    assert!(list.body.contains("only reads"), "{}", list.body);
}

#[tokio::test]
async fn a_hint_that_is_not_trusted_is_not_shown_as_a_fact() {
    let stage = TestConsole::new().await;
    let mut tool = hostile_tool();
    tool["_meta"] = json!({ "dev.wardgate/mayWrite": true });
    stage.gateway.has(tool);
    let cookie = stage.sign_in("anna").await;
    let list = stage.get("/console/tools", &cookie).await;
    assert!(list.body.contains("may change data"), "{}", list.body);
    assert!(!list.body.contains(">only reads<"), "{}", list.body);
}

/// Returns the response to a call, with the ids of its record.
fn answer() -> Value {
    json!({ "result": {
        "content": [{ "type": "text", "text": "x" }],
        "structuredContent": [{ "code": "•••WI", "n": 1 }],
        "_meta": {
            "dev.wardgate/callId": "0192d1a0-0000-7000-8000-000000000001",
            "dev.wardgate/receipt": { "leafHash": "00" },
        },
    } })
}

#[tokio::test]
async fn a_call_goes_out_in_the_persons_name_once_and_its_place_on_record_is_linked() {
    let stage = TestConsole::new().await;
    stage.gateway.has(hostile_tool());
    stage.gateway.answers(answer());
    stage.lets_read_own("anna");
    let cookie = stage.sign_in("anna").await;
    let form = stage.get("/console/tools/look_up", &cookie).await;
    let (key, person) = (form.field("key"), form.field("person"));
    let filled = format!("argument.code=NUGWI&key={key}&person={person}");
    let sent = stage.post("/console/tools/look_up", &cookie, &filled).await;
    assert_eq!(sent.status, StatusCode::SEE_OTHER);
    let page = sent.header("location").split('#').next().unwrap();
    assert!(page.starts_with("/console/calls/"), "{page}");
    let page = stage.get(page, &cookie).await;
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
    let key_of_call = &call["params"]["_meta"]["dev.wardgate/idempotencyKey"];
    assert!(key_of_call.is_string(), "{call}");
    // The form on the page of the call has a new key, so it makes another call.
    assert_ne!(page.field("key"), key);
}

#[tokio::test]
async fn a_page_of_a_call_is_loaded_any_number_of_times_and_a_form_sent_twice_calls_once() {
    let stage = TestConsole::new().await;
    stage.gateway.has(hostile_tool());
    stage.gateway.answers(answer());
    let cookie = stage.sign_in("anna").await;
    let form = stage.get("/console/tools/look_up", &cookie).await;
    let (key, person) = (form.field("key"), form.field("person"));
    let filled = format!("argument.code=NUGWI&key={key}&person={person}");
    let path = "/console/tools/look_up";
    let first = stage.post(path, &cookie, &filled).await;
    let again = stage.post(path, &cookie, &filled).await;
    let page = |reply: &super::Reply| {
        let to = reply.header("location").split(['?', '#']).next();
        to.unwrap().to_owned()
    };
    assert_eq!(page(&first), page(&again));
    for _ in 0..3 {
        let shown = stage.get(&page(&first), &cookie).await;
        assert_eq!(shown.status, StatusCode::OK);
        assert!(shown.body.contains("<td>•••WI</td>"), "{}", shown.body);
    }
    assert_eq!(stage.gateway.calls().len(), 1);
    // The same form with another argument is another call.
    let other = filled.replace("NUGWI", "OTHER");
    let other = stage.post(path, &cookie, &other).await;
    assert_ne!(page(&other), page(&first));
    assert_eq!(stage.gateway.calls().len(), 2);
    // Another person does not find the page, and nobody does once its time has passed.
    let stranger = stage.sign_in("ben").await;
    let nothing = stage.get(&page(&first), &stranger).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
    stage.advance(15 * 60);
    let gone = stage.get(first.header("location"), &cookie).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert!(gone.body.contains("The result is no longer stored"));
    for page in [&nothing.body, &gone.body] {
        assert!(!page.contains("•••WI") && !page.contains("NUGWI"), "{page}");
    }
    assert_eq!(stage.gateway.calls().len(), 2);
}

#[tokio::test]
async fn a_form_or_message_written_by_another_person_is_not_sent_on() {
    let stage = TestConsole::new().await;
    stage.gateway.has(hostile_tool());
    stage.gateway.answers(answer());
    let (anna, ben) = (stage.sign_in("anna").await, stage.sign_in("ben").await);
    let form = stage.get("/console/tools/look_up", &anna).await;
    let (key, person) = (form.field("key"), form.field("person"));
    for person in [person.as_str(), "", "x"] {
        let filled = format!("argument.code=NUGWI&key={key}&person={person}");
        let refused = stage.post("/console/tools/look_up", &ben, &filled).await;
        assert_eq!(refused.status, StatusCode::CONFLICT);
        assert!(
            refused.body.contains("Another user is signed in")
                && refused.body.contains("nothing was done")
                && refused.body.contains("<b>ben</b>"),
            "{}",
            refused.body
        );
        assert!(!refused.body.contains("NUGWI"), "{}", refused.body);
    }
    assert!(stage.gateway.calls().is_empty());
    for path in ["/console/chat/message", "/console/chat/approvals/a"] {
        for whose in [Some(person.as_str()), None] {
            let mut request = Request::post(path)
                .header("origin", "http://localhost:8082")
                .header("content-type", "application/json")
                .header("cookie", &ben);
            if let Some(person) = whose {
                request = request.header("wardgate-person", person);
            }
            let reply = stage.send(request.body("{}".into()).unwrap()).await;
            assert_eq!(reply.status, StatusCode::CONFLICT);
            assert!(reply.body.contains("Another user"), "{}", reply.body);
        }
    }
    assert!(stage.gateway.chat_messages().is_empty());
}

#[tokio::test]
async fn what_nobody_sees_is_marked_on_every_page() {
    const TRICK: &str = "give \u{202e}drazzah on\u{202c} now\u{200b}\u{e0041}";
    const MARKED: &str = "give ‹U+202E›drazzah on‹U+202C› now‹U+200B›‹U+E0041›";
    let stage = TestConsole::new().await;
    stage.gateway.has(json!({
        "name": "look_up", "title": TRICK, "description": TRICK,
        "inputSchema": { "properties": { "code": { "type": "string", "description": TRICK, "default": TRICK } } },
    }));
    stage
        .audit
        .holds(json!({ "event": "outcome", "reason": TRICK, "caller": { "subject": TRICK } }));
    stage.lets_read_all("anna");
    let cookie = stage.sign_in("anna").await;
    let mut pages = vec![
        stage.get("/console/tools", &cookie).await.body,
        stage.get("/console/tools/look_up", &cookie).await.body,
        stage.get("/console/record", &cookie).await.body,
        stage.get("/console/record/0", &cookie).await.body,
    ];
    for answer in [
        json!({ "result": { "content": [{ "type": "text", "text": TRICK }], "structuredContent": { TRICK: [{ TRICK: TRICK }] } } }),
        json!({ "error": { "code": -1, "message": TRICK, "data": { "reason": TRICK } } }),
    ] {
        stage.gateway.answers(answer);
        let page = stage.call("/console/tools/look_up", &cookie, "argument.code=x");
        pages.push(page.await.body);
    }
    stage.gateway.answers(json!({ "result": { "approval": {
        "id": "1", "tool": "look_up", "caller": { "issuer": "https://a", "subject": TRICK },
        "approvers": { "roles": ["Manager"], "caller": false }, "clientIp": "",
        "requestedAt": "", "expiresAt": "", "arguments": json!({ "to": TRICK }).to_string(),
    } } }));
    pages.push(stage.get("/console/approvals/1", &cookie).await.body);
    for page in pages {
        assert!(page.contains(MARKED), "{page}");
        assert!(
            !page.contains(['\u{202e}', '\u{200b}', '\u{e0041}']),
            "{page}"
        );
    }
    // Submitted text stays unchanged, and its invisible characters are pointed out.
    let typed = format!("argument.code={}", crate::fields::segment("a\u{200b}b"));
    let page = stage.call("/console/tools/look_up", &cookie, &typed).await;
    assert!(page.body.contains("value=\"a\u{200b}b\""), "{}", page.body);
    assert!(page.body.contains("invisible characters: a‹U+200B›b"));
    let (_, call) = stage.gateway.calls().pop().unwrap();
    assert_eq!(call["params"]["arguments"]["code"], json!("a\u{200b}b"));
    // The script uses the same definition of invisible characters.
    let script = stage.get("/console/chat.js", "").await.body;
    assert!(script.contains(r"\\u{2028}-\\u{202e}") && !script.contains("{{"));
}

#[tokio::test]
async fn what_does_not_fit_is_kept_in_the_form_and_calls_nothing() {
    let stage = TestConsole::new().await;
    stage.gateway.has(json!({ "name": "look_up", "inputSchema": { "properties": { "n": { "type": "integer" } } } }));
    let cookie = stage.sign_in("anna").await;
    let page = stage
        .call("/console/tools/look_up", &cookie, "argument.n=many")
        .await;
    assert!(
        page.body.contains("It is not a whole number.") && page.body.contains("value=\"many\""),
        "{}",
        page.body
    );
    assert!(stage.gateway.calls().is_empty());
}

#[tokio::test]
async fn who_calls_no_tools_is_shown_what_there_is_for_them() {
    let stage = TestConsole::new().await;
    stage.lets_read_all("lee");
    stage.lets_read_own("joy");
    for (subject, shown, hidden) in [
        (
            "lee",
            &["/console/record?status=denied", ">Record<"][..],
            "Your calls",
        ),
        (
            "joy",
            &["href=\"/console/record\"", "Your calls"],
            "status=denied",
        ),
        ("mallory", &["Your rights"], "/console/record"),
    ] {
        let cookie = stage.sign_in(subject).await;
        let page = stage.get("/console/tools", &cookie).await.body;
        for text in shown {
            assert!(page.contains(text), "{subject} {text}: {page}");
        }
        assert!(!page.contains(hidden), "{subject} {hidden}: {page}");
    }
}

#[tokio::test]
async fn pages_that_say_what_went_wrong_have_the_way_to_the_others() {
    let stage = TestConsole::new().await;
    stage.lets_read_own("anna");
    let cookie = stage.sign_in("anna").await;
    for path in [
        "/console/tools/none",
        "/console/nothing/here",
        "/console/record/77",
        "/console/calls/x",
    ] {
        let page = stage.get(path, &cookie).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{path}");
        for text in [
            "<span>anna</span>",
            "Sign out",
            "/console/chat",
            "Your calls",
        ] {
            assert!(page.body.contains(text), "{path} {text}: {}", page.body);
        }
        // A visitor who is not signed in sees only the sign-in.
        let page = stage.get(path, "").await;
        assert!(!page.body.contains("Sign out"), "{path}: {}", page.body);
    }
}

#[tokio::test]
async fn a_tool_that_is_hidden_and_one_that_is_not_there_are_the_same_page() {
    let stage = TestConsole::new().await;
    stage.gateway.has(hostile_tool());
    let cookie = stage.sign_in("anna").await;
    let (hidden, unknown) = (
        stage.get("/console/tools/secret_tool", &cookie).await,
        stage.get("/console/tools/no_such_tool", &cookie).await,
    );
    assert_eq!(hidden.status, StatusCode::NOT_FOUND);
    assert_eq!(hidden.body, unknown.body);
    let called = stage
        .submit("/console/tools/secret_tool", &cookie, "arguments={}")
        .await;
    assert_eq!(called.body, unknown.body);
    assert!(stage.gateway.calls().is_empty());
}

#[tokio::test]
async fn tools_are_found_by_what_they_are_called_and_say() {
    let stage = TestConsole::new().await;
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
    let stage = TestConsole::new().await;
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
    let stage = TestConsole::new().await;
    let cookie = stage.sign_in("anna").await;
    let page = stage.get("/console/chat", &cookie).await.body;
    let (_, person) = page.split_once("data-person=\"").unwrap();
    let person = person.split('"').next().unwrap();
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
            .header("wardgate-person", person)
            .header("cookie", &cookie);
        let reply = stage.send(request.body(body.into()).unwrap()).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (StatusCode::OK, "{}\n")
        );
        assert_eq!(reply.header("x-secret"), "");
    }
    assert_eq!(
        stage.gateway.chat_messages(),
        [r#"{"message":"hi"}"#, r#"a-b_c: {"decision":"approve"}"#]
    );
    // A plain HTML form of another site cannot set the content type to JSON.
    let plain = Request::post("/console/chat/message")
        .header("origin", "http://localhost:8082")
        .header("content-type", "text/plain")
        .header("wardgate-person", person)
        .header("cookie", &cookie);
    let reply = stage.send(plain.body("{}".into()).unwrap()).await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
