//! Tests of sessions and of the checks on requests.

use http::{Request, StatusCode};
use serde_json::json;

use super::TestConsole;

#[tokio::test]
async fn a_session_is_a_sealed_cookie_that_no_script_and_no_other_site_gets() {
    let stage = TestConsole::new().await;
    let token = stage.token("nurse.joy", &json!({}));
    let reply = stage
        .post("/console/sign-in", "", &format!("token={token}"))
        .await;
    let set = reply.header("set-cookie");
    assert!(!set.contains(&token), "{set}");
    let terms = "; Path=/console; Max-Age=3600; HttpOnly; SameSite=Strict";
    assert!(set.ends_with(terms), "{set}");
    let page = stage.get("/console/policy", &reply.cookie()).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("nurse.joy"), "{}", page.body);

    let secure = TestConsole::with(Some("https://console.example"), [7; 32]).await;
    let token = secure.token("nurse.joy", &json!({}));
    let reply = secure
        .post("/console/sign-in", "", &format!("token={token}"))
        .await;
    assert!(reply.header("set-cookie").ends_with("; Secure"));
}

#[tokio::test]
async fn a_cookie_of_another_key_a_changed_one_two_and_none_are_nobodys() {
    let (stage, other) = (
        TestConsole::new().await,
        TestConsole::with(None, [8; 32]).await,
    );
    let (good, foreign) = (stage.sign_in("anna").await, other.sign_in("anna").await);
    let mut changed = good.clone();
    let last = if changed.pop() == Some('A') { 'B' } else { 'A' };
    changed.push(last);
    for cookie in [
        foreign,
        changed,
        format!("{good}; {good}"),
        String::new(),
        "wardgate_console=".to_owned(),
    ] {
        let reply = stage.get("/console/tools?q=x", &cookie).await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{cookie}");
        assert_eq!(
            reply.header("location"),
            "/console/sign-in?next=%2Fconsole%2Ftools%3Fq%3Dx"
        );
    }
    assert_eq!(
        stage.get("/console/tools", &good).await.status,
        StatusCode::OK
    );
    assert!(stage.gateway.calls().is_empty());
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let stage = TestConsole::new().await;
    let cookie = stage.sign_in("anna").await;
    stage.advance(3_599);
    assert_eq!(
        stage.get("/console/tools", &cookie).await.status,
        StatusCode::OK
    );
    stage.advance(2);
    let reply = stage.get("/console/tools", &cookie).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER);
    // A POST is refused instead of redirected, so that what was to be sent is not lost.
    let reply = stage.post("/console/tools/x", &cookie, "").await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn what_changes_anything_comes_from_a_page_of_the_console() {
    let stage = TestConsole::new().await;
    stage
        .gateway
        .has(json!({ "name": "look_up", "inputSchema": {} }));
    stage
        .gateway
        .answers(json!({ "result": { "content": [] } }));
    let cookie = stage.sign_in("anna").await;
    let foreign: &[&[(&str, &str)]] = &[
        &[],
        &[
            ("sec-fetch-site", "cross-site"),
            ("origin", "https://evil.example"),
        ],
        &[
            ("sec-fetch-site", "same-site"),
            ("origin", "http://localhost:8082"),
        ],
        &[
            ("sec-fetch-site", "none"),
            ("origin", "http://localhost:8082"),
        ],
        &[("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "same-origin"), ("origin", "null")],
        &[("origin", "http://localhost:9999")],
        &[("origin", "http://localhost")],
        &[("origin", "localhost:8082")],
    ];
    for path in [
        "/console/tools/look_up",
        "/console/sign-out",
        "/console/sign-in",
        "/console/chat/message",
    ] {
        for from in foreign {
            let reply = stage.post_from(path, &cookie, "", from).await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path} {from:?}");
            assert_eq!(reply.header("set-cookie"), "", "{path} {from:?}");
        }
    }
    assert!(stage.gateway.calls().is_empty() && stage.gateway.chat_messages().is_empty());
    // Browsers that send only the `Origin` header.
    let own = [("origin", "http://localhost:8082")];
    let form = stage.get("/console/tools/look_up", &cookie).await;
    let form = format!("person={}", form.field("person"));
    let reply = stage
        .post_from("/console/tools/look_up", &cookie, &form, &own)
        .await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER);
    assert_eq!(stage.gateway.calls().len(), 1);
}

#[tokio::test]
async fn a_name_that_was_rebound_to_this_address_is_not_served() {
    let stage = TestConsole::new().await;
    let cookie = stage.sign_in("anna").await;
    let request = Request::get("/console/tools")
        .header("host", "evil.example")
        .header("cookie", cookie);
    let reply = stage
        .send(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_token_that_nobody_may_use_says_why_and_is_shown_nowhere() {
    let stage = TestConsole::new().await;
    let old = stage.token("canary", &json!({ "exp": 1 }));
    let foreign = TestConsole::new().await.token("canary", &json!({}));
    let long = stage.token("canary", &json!({ "x": "y".repeat(3_000) }));
    for (token, says) in [
        (old.as_str(), "expired"),
        (&foreign, "signature"),
        (&long, "3000 bytes"),
        ("canary", "not a well-formed"),
        ("canary%0d%0aa:b", "not a well-formed"),
        ("", "bearer token"),
    ] {
        let reply = stage
            .post("/console/sign-in", "", &format!("token={token}"))
            .await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{says}");
        assert!(reply.body.contains(says), "{says}: {}", reply.body);
        assert!(token.is_empty() || !reply.body.contains(token), "{says}");
        assert_eq!(reply.header("set-cookie"), "", "{says}");
    }
}

#[tokio::test]
async fn signing_out_takes_the_cookie_away() {
    let stage = TestConsole::new().await;
    let cookie = stage.sign_in("anna").await;
    let reply = stage.post("/console/sign-out", &cookie, "").await;
    assert!(
        reply
            .header("set-cookie")
            .starts_with("wardgate_console=; Path=/console; Max-Age=0;")
    );
    assert_eq!(reply.header("location"), "/console/sign-in");
}

#[tokio::test]
async fn a_form_is_bounded_and_of_its_kind() {
    let stage = TestConsole::new().await;
    stage
        .gateway
        .has(json!({ "name": "look_up", "inputSchema": {} }));
    let cookie = stage.sign_in("anna").await;
    let large = format!("arguments={}", "x".repeat(300_000));
    let reply = stage.post("/console/tools/look_up", &cookie, &large).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    let many = "a=b&".repeat(600);
    let reply = stage.post("/console/tools/look_up", &cookie, &many).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let put = Request::put("/console/tools")
        .body(axum::body::Body::empty())
        .unwrap();
    let reply = stage.send(put).await;
    assert_eq!(
        (reply.status, reply.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "GET")
    );
}

#[tokio::test]
async fn every_response_says_that_nothing_may_be_loaded_framed_or_kept() {
    let stage = TestConsole::new().await;
    let cookie = stage.sign_in("anna").await;
    for (path, cookie) in [
        ("/console", ""),
        ("/console/sign-in", ""),
        ("/console/tools", ""),
        ("/console/tools", cookie.as_str()),
        ("/console/tools/none", &cookie),
        ("/console/record", &cookie),
        ("/console/nothing/here", &cookie),
        ("/console/chat", &cookie),
        ("/console/style.css", ""),
        ("/console/chat.js", ""),
    ] {
        let reply = stage.get(path, cookie).await;
        let policy = reply.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; "),
            "{path}: {policy}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(
            policy.contains("script-src"),
            path == "/console/chat",
            "{path}: {policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("referrer-policy"), "same-origin", "{path}");
        let kept = path.ends_with("css") || path.ends_with("js");
        assert_eq!(reply.header("cache-control") == "no-store", !kept, "{path}");
    }
}
