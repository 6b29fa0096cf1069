use std::time::Duration;

use axum::body::Body;
use futures::stream::{self, StreamExt};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;

use super::response_body;
use super::testing::{TestEndpoints, an_answer, done_event, event, script, text, token};
use super::*;
use crate::{AgentEvent, EventStream, FinishReason};

const MESSAGE: &str = r#"{"message":"hello"}"#;
const COMPLETION: &str = r#"{"messages":[{"role":"user","content":"hello"}]}"#;

fn as_it_is(_: &mut Request<Body>) {}

async fn error_of(response: http::Response<Body>) -> Value {
    let body: Value = serde_json::from_str(&text(response.into_body()).await).unwrap();
    body["error"].clone()
}

#[tokio::test]
async fn nobody_without_a_token_gets_anywhere() {
    let world = TestEndpoints::start().await;
    for (method, path) in [
        ("POST", "/api/chat/message/"),
        ("POST", "/api/chat/message"),
        ("POST", "/chat"),
        ("POST", "/api/chat/approvals/a1"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/clinic"),
        ("PUT", "/v1/models"),
    ] {
        let response = world
            .send(method, path, MESSAGE, |request| {
                request.headers_mut().remove(header::AUTHORIZATION);
            })
            .await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        assert_eq!(error_of(response).await["code"], "token_missing");
        let response = world
            .send(method, path, MESSAGE, |request| {
                let forged = HeaderValue::from_static("Bearer a.b.c");
                request.headers_mut().insert(header::AUTHORIZATION, forged);
            })
            .await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        let challenge = response.headers()[header::WWW_AUTHENTICATE]
            .to_str()
            .unwrap();
        assert!(
            challenge.contains(r#"error="invalid_token""#),
            "{challenge}"
        );
    }
}

#[tokio::test]
async fn every_refusal_is_well_formed_and_names_what_to_do() {
    let world = TestEndpoints::start().await;
    let refused = async |method, path, body, change: fn(&mut Request<Body>)| {
        let response = world.send(method, path, body, change).await;
        let status = response.status().as_u16();
        let allow = response.headers().get(header::ALLOW).cloned();
        let error = error_of(response).await;
        assert!(error["message"].as_str().unwrap().ends_with('.'), "{error}");
        (status, error["code"].as_str().unwrap().to_owned(), allow)
    };
    let told = refused("GET", "/api/chat/message/", "", as_it_is).await;
    assert_eq!((told.0, told.1.as_str()), (405, "method_not_allowed"));
    assert_eq!(told.2.unwrap(), "POST");
    let told = refused("POST", "/v1/models", "{}", as_it_is).await;
    assert_eq!(
        (told.0, told.2.unwrap()),
        (405, HeaderValue::from_static("GET"))
    );
    for path in [
        "/v1/responses",
        "/api/chat",
        "/elsewhere",
        "/v1/models/nobody",
    ] {
        assert_eq!(refused("GET", path, "", as_it_is).await.0, 404, "{path}");
    }
    let form = |request: &mut Request<Body>| {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, form);
    };
    assert_eq!(
        refused("POST", "/v1/chat/completions", "a=b", form).await.0,
        415
    );
    let rebound = |request: &mut Request<Body>| {
        let host = HeaderValue::from_static("evil.example");
        request.headers_mut().insert(header::HOST, host);
    };
    assert_eq!(
        refused("POST", "/v1/chat/completions", COMPLETION, rebound)
            .await
            .0,
        403
    );
    let large = format!(r#"{{"message":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(
        refused("POST", "/api/chat/message/", &large, as_it_is)
            .await
            .0,
        413
    );
    assert_eq!(
        refused("POST", "/api/chat/message/", "{", as_it_is).await.0,
        400
    );
}

#[tokio::test]
async fn an_unknown_assistant_ends_the_stream_well_formed() {
    let world = TestEndpoints::start().await;
    let response = world
        .send("POST", "/api/chat/message/", MESSAGE, as_it_is)
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "application/x-ndjson"
    );
    let lines = text(response.into_body()).await;
    let types: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(types, ["error", "done"]);
}

#[tokio::test]
async fn an_unknown_assistant_is_an_unknown_model() {
    let world = TestEndpoints::start().await;
    let streamed = r#"{"messages":[{"role":"user","content":"hello"}],"stream":true}"#;
    for body in [COMPLETION, streamed] {
        let response = world
            .send("POST", "/v1/chat/completions", body, as_it_is)
            .await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let error = error_of(response).await;
        assert_eq!(
            (&error["code"], &error["param"]),
            (&"model_not_found".into(), &"model".into())
        );
    }
}

#[tokio::test]
async fn a_page_of_a_welcome_origin_may_ask_and_read() {
    let world = TestEndpoints::start().await;
    let origin = |request: &mut Request<Body>| {
        let origin = HeaderValue::from_static("http://localhost:3000");
        request.headers_mut().insert(header::ORIGIN, origin);
    };
    let response = world
        .send("OPTIONS", "/v1/chat/completions", "", origin)
        .await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let allowed = header::ACCESS_CONTROL_ALLOW_ORIGIN;
    assert_eq!(response.headers()[&allowed], "http://localhost:3000");
    let response = world.send("GET", "/v1/models", "", origin).await;
    assert_eq!(response.headers()[&allowed], "http://localhost:3000");
    let foreign = |request: &mut Request<Body>| {
        let origin = HeaderValue::from_static("https://evil.example");
        request.headers_mut().insert(header::ORIGIN, origin);
    };
    let response = world
        .send("OPTIONS", "/v1/chat/completions", "", foreign)
        .await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn every_event_is_a_line() {
    let reply = ndjson::reply(script(an_answer()));
    insta::assert_snapshot!(text(reply.into_body()).await);
}

/// Returns the next piece of a body.
async fn piece(body: &mut Body) -> String {
    let frame = tokio::time::timeout(Duration::from_secs(40), body.frame()).await;
    let bytes = frame.unwrap().unwrap().unwrap().into_data().unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_event_is_sent_as_it_happens_and_silence_is_filled() {
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let events = stream::unfold(said, async |mut said| Some((said.recv().await?, said))).boxed();
    let mut body = ndjson::reply(events).into_body();
    say.send(event(1, token("a"))).unwrap();
    assert!(piece(&mut body).await.contains(r#""text":"a""#));
    assert_eq!(piece(&mut body).await, "\n");
    say.send(event(2, done_event(FinishReason::Stop))).unwrap();
    assert!(piece(&mut body).await.contains("done"));
    drop(say);
    assert!(body.frame().await.is_none());
}

/// Returns endless events, and the number of events that were requested.
fn endless() -> (EventStream, watch::Receiver<u64>) {
    let (asked, asked_for) = watch::channel(0);
    let events = stream::iter(1..).map(move |id| {
        asked.send_replace(id);
        event(id, token("x"))
    });
    (events.boxed(), asked_for)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_stops_the_model_and_is_given_up() {
    let (events, mut asked) = endless();
    let body = ndjson::reply(events).into_body();
    // The sender is dropped together with the events.
    let ended = async { while asked.changed().await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(120), ended)
        .await
        .unwrap();
    assert!(*asked.borrow() < 20, "{}", *asked.borrow());
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn hanging_up_drops_the_work() {
    let (dropped, mut alive) = watch::channel(());
    let events = stream::once(async move {
        let _held = dropped;
        std::future::pending::<AgentEvent>().await
    });
    let mut body = ndjson::reply(events.boxed()).into_body();
    assert_eq!(piece(&mut body).await, "\n");
    drop(body);
    let ended = tokio::time::timeout(Duration::from_secs(1), alive.changed()).await;
    assert!(ended.unwrap().is_err());
}

#[tokio::test]
async fn an_event_without_a_piece_sends_nothing() {
    let body = response_body::body(script(an_answer()), "", |_| bytes::Bytes::new());
    assert_eq!(text(body).await, "");
}
