//! Tests of `wardgate login`: a person signs in once, and commands find and renew the token.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use wardgate_testkit::{ProcessExit, run, serve};

use crate::WARDGATE;

/// A fake gateway with its identity provider, as far as a sign-in uses them.
#[derive(Default)]
struct Provider {
    /// The URL, which is known after the start.
    url: Mutex<String>,
    /// The grants that the token endpoint received, in order.
    grants: Mutex<Vec<String>>,
    /// Lifetime of tokens, in seconds.
    lifetime: Mutex<u64>,
}

type ProviderState = State<Arc<Provider>>;

fn answer(status: StatusCode, body: &Value) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, body.to_string()).into_response()
}

impl Provider {
    fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }
}

async fn start() -> Arc<Provider> {
    let provider = Arc::new(Provider::default());
    *provider.lifetime.lock().unwrap() = 3_600;
    let router = Router::new()
        .route("/mcp", post(mcp))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/device", post(device))
        .route("/token", post(token))
        .with_state(Arc::clone(&provider));
    let url = serve(router).await;
    *provider.url.lock().unwrap() = format!("http://{url}");
    provider
}

async fn resource(State(provider): ProviderState) -> Response {
    let url = provider.url();
    let body = json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url] });
    answer(StatusCode::OK, &body)
}

async fn metadata(State(provider): ProviderState) -> Response {
    let url = provider.url();
    let body = json!({
        "issuer": url,
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "device_authorization_endpoint": format!("{url}/device"),
    });
    answer(StatusCode::OK, &body)
}

async fn register(body: Bytes) -> Response {
    let client: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(client["token_endpoint_auth_method"], "none");
    answer(StatusCode::CREATED, &json!({ "client_id": "cli" }))
}

async fn device(State(provider): ProviderState, form: String) -> Response {
    assert!(form.contains("client_id=cli"), "{form}");
    let body = json!({
        "device_code": "d-1", "user_code": "WDJB-MJHT",
        "verification_uri": format!("{}/type", provider.url()),
        "expires_in": 60, "interval": 1,
    });
    answer(StatusCode::OK, &body)
}

async fn token(State(provider): ProviderState, form: String) -> Response {
    let grants = {
        let mut grants = provider.grants.lock().unwrap();
        grants.push(form.clone());
        grants.len()
    };
    let lifetime = *provider.lifetime.lock().unwrap();
    // The person has not entered the code yet.
    if grants == 1 {
        let error = json!({ "error": "authorization_pending" });
        return answer(StatusCode::BAD_REQUEST, &error);
    }
    let body = json!({
        "access_token": format!("token-{grants}"), "token_type": "Bearer",
        "expires_in": lifetime, "refresh_token": format!("refresh-{grants}"),
    });
    answer(StatusCode::OK, &body)
}

async fn mcp(headers: HeaderMap, body: Bytes) -> Response {
    let bearer = headers.get(header::AUTHORIZATION);
    let Some(bearer) = bearer.and_then(|it| it.to_str().ok()) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let request: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(request["method"], "tools/list");
    let tool = json!({ "name": bearer.replace("Bearer ", "for_"), "description": "One.\nTwo." });
    let result = json!({ "tools": [tool] });
    let body = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    answer(StatusCode::OK, &body)
}

/// Runs a command with a configuration directory of its own, on a blocking thread.
async fn wardgate(directory: &std::path::Path, words: &[&str]) -> ProcessExit {
    let (directory, words) = (
        directory.display().to_string(),
        words.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
    let running = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(
            WARDGATE.as_ref(),
            &words,
            &[("WARDGATE_CONFIG_DIR", &directory)],
        )
    });
    running.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_signs_in_once_needs_no_token_file_and_the_token_is_renewed() {
    let provider = start().await;
    let home = tempfile::tempdir().unwrap();
    let url = provider.url();
    // The token has expired when it is used.
    *provider.lifetime.lock().unwrap() = 1;
    let words = ["login", "--url", &url, "--device", "--context", "clinic"];
    let said = wardgate(home.path(), &words).await.success();
    assert!(said.contains("WDJB-MJHT"), "{said}");
    *provider.lifetime.lock().unwrap() = 3_600;

    let listed = wardgate(home.path(), &["tools", "list", "--context", "clinic"])
        .await
        .success();
    assert!(listed.starts_with("for_token-3 "), "{listed}");
    assert!(
        listed.contains("One.") && !listed.contains("Two."),
        "{listed}"
    );
    // The token was stored, so the second command does not contact the provider.
    let again = wardgate(
        home.path(),
        &["tools", "list", "-o", "jsonl", "--context", "clinic"],
    )
    .await
    .success();
    assert!(again.contains("\"for_token-3\""), "{again}");
    let grants = provider.grants.lock().unwrap().clone();
    assert_eq!(grants.len(), 3);
    assert!(grants[1].contains("device_code=d-1"), "{}", grants[1]);
    assert!(
        grants[2].contains("refresh_token=refresh-2"),
        "{}",
        grants[2]
    );

    let file = home.path().join("contexts.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let contexts = wardgate(home.path(), &["contexts", "list"]).await.success();
    assert!(contexts.starts_with("* clinic "), "{contexts}");

    // The token of a sign-in is sent only to its own gateway.
    let elsewhere = start().await.url();
    let words = ["tools", "call", "x", "--url", &elsewhere];
    let refused = wardgate(home.path(), &words).await;
    assert!(
        refused.stderr.contains("a token is required"),
        "{}",
        refused.stderr
    );

    wardgate(home.path(), &["logout"]).await.success();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("token-"), "{text}");
}
