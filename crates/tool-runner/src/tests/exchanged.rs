//! Tests of prompts, resources and completions of a server whose credentials are derived from the caller's token.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind};
use wardgate_proto::toolrunner::v1::get_content_request::{Completion, Prompt, Resource, Wanted};
use wardgate_testkit::{json_response, mcp_discovery, mcp_result, serve};

use super::harness::Harness;
use crate::tests::database;

const TOKEN: &str = "canary-of-the-caller";

/// A server with its authorization server. Records the `Authorization` headers and the exchanged tokens.
#[derive(Default)]
struct Server {
    seen: Mutex<Vec<String>>,
    exchanged: Mutex<Vec<String>>,
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/token" {
        let form = url::form_urlencoded::parse(&body).into_owned();
        let subject = form.filter(|(name, _)| name == "subject_token");
        server
            .exchanged
            .lock()
            .unwrap()
            .extend(subject.map(|(_, token)| token));
        let token = json!({
            "access_token": "exchanged", "token_type": "Bearer", "expires_in": 60,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        });
        return json_response(token.to_string());
    }
    let authorization = head.headers.get("authorization");
    let authorization = authorization.map_or("", |value| value.to_str().unwrap());
    server.seen.lock().unwrap().push(authorization.to_owned());
    if authorization != "Bearer exchanged" {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let mut result = match message["method"].as_str().unwrap() {
        "server/discover" => mcp_discovery(&json!({})),
        "prompts/get" => {
            let content = json!({ "type": "text", "text": "hello" });
            json!({ "messages": [{ "role": "user", "content": content }] })
        }
        "resources/read" => json!({ "contents": [{ "uri": "memo://a", "text": "hello" }] }),
        "completion/complete" => json!({ "completion": { "values": ["hello"] } }),
        other => panic!("{other}"),
    };
    result["resultType"] = "complete".into();
    mcp_result(&message, &result)
}

async fn start() -> (Arc<Server>, Harness) {
    let server = Arc::new(Server::default());
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::clone(&server));
    let url = format!("http://{}", serve(router).await);
    let yaml = format!(
        "sources:
  up:
    type: mcp
    url: '{url}/mcp'
    private: [127.0.0.0/8]
    tools: []
    prompts: all
    resources: all
    auth: {{ type: token_exchange, token_url: '{url}/token', client_id: runner, client_secret: s }}
"
    );
    let harness = Harness::with(&database::sqlite().await, &yaml, |_| ()).await;
    (server, harness)
}

#[tokio::test]
async fn what_is_got_goes_by_the_callers_own_token_exchanged_and_never_sent_on() {
    let (server, harness) = start().await;
    assert!(harness.tools().await.sources[0].needs_caller_token);
    let (prompt, uri) = (json!({ "name": "p" }), json!({ "uri": "memo://a" }));
    let completion = Wanted::Completion(Completion::default());
    for (kind, decided, wanted) in [
        (
            OfferKind::Prompts,
            &prompt,
            Wanted::Prompt(Prompt::default()),
        ),
        (OfferKind::Resources, &uri, Wanted::Resource(Resource {})),
        (OfferKind::Prompts, &prompt, completion),
    ] {
        let terms = harness.terms_for(kind, ColumnTier::Clear).await;
        let mut request = harness.content_request_to("up", decided, wanted, Some(&terms));
        let without = harness.got(request.clone()).await.unwrap();
        assert_eq!(
            without.facts.unwrap().error_kind,
            "no_credentials",
            "{}",
            without.error
        );
        request.caller_token = TOKEN.to_owned();
        let got = harness.got(request).await.unwrap();
        assert_eq!(got.error, "");
        assert!(String::from_utf8_lossy(&got.result_json).contains("hello"));
    }
    assert_eq!(*server.exchanged.lock().unwrap(), [TOKEN]);
    let seen = server.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|seen| !seen.contains(TOKEN)), "{seen:?}");
}
