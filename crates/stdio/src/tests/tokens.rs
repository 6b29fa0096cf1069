use futures::FutureExt;
use serde_json::Value;

use super::client::{Client, legacy, modern};
use super::server::{Server, json};
use crate::TokenSource;

fn unauthorized_response() -> axum::response::Response {
    let mut response = json(
        r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"The token has expired.","data":{"reason":"expired"}}}"#,
    );
    *response.status_mut() = axum::http::StatusCode::UNAUTHORIZED;
    response
}

#[tokio::test]
async fn with_a_wrong_token_every_request_ends_and_says_what_to_fix() {
    let server = Server::start(|_| async { unauthorized_response() }.boxed()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "wrong").unwrap();
    let path = file.display().to_string();
    for (source, fix) in [
        (TokenSource::File(file), path.as_str()),
        (TokenSource::Variable("wrong".to_owned()), "WARDGATE_TOKEN"),
        (TokenSource::None, "--token-file"),
    ] {
        let mut client = Client::start(&server.url, source);
        for line in [
            modern(1, "server/discover", ""),
            modern(1, "subscriptions/listen", ""),
            legacy(1, "initialize"),
            legacy(1, "ping"),
            format!("[{}]", legacy(1, "ping")),
        ] {
            let answer = client.send_request(&line).await;
            assert_eq!(answer["id"], 1);
            assert_eq!(answer["error"]["code"], -32600);
            assert_eq!(answer["error"]["data"]["reason"], "expired");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("The token has expired. "), "{message}");
            assert!(message.contains(fix), "{message}");
        }
        client.close_input();
        client.end().await.0.unwrap();
    }
}

#[tokio::test]
async fn a_token_that_was_renewed_meanwhile_is_tried_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "old").unwrap();
    let renewed = file.clone();
    let mut server = Server::start(move |arrived| {
        let renewed = renewed.clone();
        async move {
            if arrived.header("authorization") == "Bearer old" {
                std::fs::write(renewed, "new").unwrap();
                return unauthorized_response();
            }
            arrived.result("{}")
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::File(file));
    assert!(client.send_request(&legacy(1, "ping")).await["result"].is_object());
    let tokens = [server.arrival().await, server.arrival().await]
        .map(|arrived| arrived.header("authorization").to_owned());
    assert_eq!(tokens, ["Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn without_a_readable_file_the_error_names_it() {
    let server = Server::start(|arrived| async move { arrived.result("{}") }.boxed()).await;
    let source = TokenSource::File("/nowhere/token".into());
    let mut client = Client::start(&server.url, source);
    let fault = client.fault(&legacy(1, "ping")).await;
    assert!(fault.contains("/nowhere/token"), "{fault}");
}

#[tokio::test]
async fn what_the_gateway_says_of_no_request_in_particular_is_the_answer_to_the_one_it_is_about() {
    let server = Server::start(|_| {
        async { json(r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"too deep"}}"#) }.boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    let answer: Value = client.send_request(&legacy(9, "ping")).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&9.into(), &(-32700).into())
    );
}
