//! Tests of what clients rely on: metadata, registration, documents, redirects and replicas.

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use wardgate_testkit::{ProviderKind, TestBrowser, serve};

use super::world::{REDIRECT, World, redemption};

#[tokio::test]
async fn the_metadata_names_every_endpoint_and_what_is_demanded() {
    let world = World::start(ProviderKind::Keycloak).await;
    let metadata = world.metadata().await;
    assert_eq!(metadata["issuer"], world.url);
    for (name, path) in [
        ("authorization_endpoint", "/oauth/authorize"),
        ("token_endpoint", "/oauth/token"),
        ("registration_endpoint", "/oauth/register"),
        ("revocation_endpoint", "/oauth/revoke"),
    ] {
        assert_eq!(metadata[name], world.at(path));
    }
    assert_eq!(
        metadata["code_challenge_methods_supported"],
        json!(["S256"])
    );
    assert_eq!(
        metadata["scopes_supported"],
        json!(["openid", "mcp", "mcp.write"])
    );
    let path = "/.well-known/oauth-authorization-server/mcp";
    let response = world.http.get(world.at(path)).send().await.unwrap();
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    let of_path: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(of_path, metadata);
}

#[tokio::test]
async fn a_page_of_any_origin_may_register_and_redeem() {
    let world = World::start(ProviderKind::Okta).await;
    for path in ["/oauth/register", "/oauth/token", "/oauth/revoke"] {
        let request = world.http.request(reqwest::Method::OPTIONS, world.at(path));
        let request = request
            .header("origin", "https://inspector.example")
            .header("access-control-request-method", "POST");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 204);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
    }
}

#[tokio::test]
async fn a_registration_is_answered_with_what_holds() {
    let world = World::start(ProviderKind::Entra).await;
    let (status, registered) = world
        .register(json!({
            "client_name": "Visual Studio Code",
            "client_uri": "https://code.visualstudio.com",
            "redirect_uris": ["https://vscode.dev/redirect", "http://127.0.0.1/", "http://127.0.0.1:33418/"],
            "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_post",
            "application_type": "native",
        }))
        .await;
    assert_eq!(status, 201);
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert_eq!(
        registered["grant_types"],
        json!(["authorization_code", "refresh_token"])
    );
    assert_eq!(registered["client_id_issued_at"], 1_800_000_000);
    assert!(registered.get("client_secret").is_none());
    assert!(registered["client_id"].as_str().unwrap().len() < 1_024);
}

#[tokio::test]
async fn a_registration_that_cannot_be_is_refused_with_the_word_of_rfc_7591() {
    let world = World::start(ProviderKind::Okta).await;
    let long = format!("https://a.example/{}", "x".repeat(600));
    let many: Vec<String> = (0..11)
        .map(|at| format!("https://a.example/{at}"))
        .collect();
    for (metadata, error) in [
        (json!({}), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [] }), "invalid_redirect_uri"),
        (
            json!({ "redirect_uris": ["javascript:alert(1)"] }),
            "invalid_redirect_uri",
        ),
        (
            json!({ "redirect_uris": ["http://a.example/"] }),
            "invalid_redirect_uri",
        ),
        (
            json!({ "redirect_uris": [REDIRECT, "data:text/html,x"] }),
            "invalid_redirect_uri",
        ),
        (json!({ "redirect_uris": [long] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": many }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": "x" }), "invalid_client_metadata"),
        (json!([1]), "invalid_client_metadata"),
        (
            json!({ "redirect_uris": [REDIRECT], "grant_types": ["client_credentials"] }),
            "invalid_client_metadata",
        ),
        (
            json!({ "redirect_uris": [REDIRECT], "response_types": ["token"] }),
            "invalid_client_metadata",
        ),
    ] {
        let (status, answer) = world.register(metadata.clone()).await;
        assert_eq!(
            (status, answer["error"].as_str()),
            (400, Some(error)),
            "{metadata}"
        );
    }
}

#[tokio::test]
async fn the_operator_may_list_the_hosts_that_codes_go_to() {
    let settings = json!({ "redirect_hosts": ["vscode.dev"] });
    let world = World::start_with(ProviderKind::Okta, settings).await;
    let uris = json!([
        "https://vscode.dev/redirect",
        "https://evil.example/",
        REDIRECT
    ]);
    let (_, registered) = world.register(json!({ "redirect_uris": uris })).await;
    let kept = json!(["https://vscode.dev/redirect", REDIRECT]);
    assert_eq!(registered["redirect_uris"], kept);
    let (status, answer) = world
        .register(json!({ "redirect_uris": ["https://evil.example/"] }))
        .await;
    assert_eq!(
        (status, &answer["error"]),
        (400, &json!("invalid_redirect_uri"))
    );
}

#[tokio::test]
async fn a_code_goes_to_a_program_by_its_own_scheme_and_by_any_port_of_loopback() {
    let world = World::start(ProviderKind::Keycloak).await;
    for (registered, asked) in [
        (
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "cursor://anysphere.cursor-mcp/oauth/callback",
        ),
        ("http://127.0.0.1/", "http://127.0.0.1:9/"),
    ] {
        let client = world.client(registered).await;
        let mut browser = TestBrowser::new("http://127.0.0.1:9/");
        let further = [("redirect_uri", asked)];
        let page = browser.open(&world.authorize_url(&client, &further)).await;
        let page = browser.press(&page, "decision", "allow").await;
        assert!(page.url.as_str().starts_with(asked), "{}", page.url);
        let code = page.parameter("code").unwrap();
        let mut form = redemption(&client, &code);
        form[3] = ("redirect_uri", asked);
        let (status, tokens) = world.post("/oauth/token", &form).await;
        assert_eq!(status, 200, "{tokens}");
    }
}

#[tokio::test]
async fn any_replica_serves_the_next_request() {
    let world = World::start(ProviderKind::Auth0).await;
    let other = world.replica().await;
    let client = world.client(REDIRECT).await;
    let code = world.code(&client).await;
    let (status, tokens) = world
        .post_to(&other, "/oauth/token", &redemption(&client, &code))
        .await;
    assert_eq!(status, 200, "{tokens}");
    let (status, again) = world.redeem(&client, &code).await;
    assert_eq!(
        (status, &again["error"]),
        (400, &json!("invalid_grant")),
        "once over all replicas"
    );
}

#[tokio::test]
async fn several_sign_ins_of_one_browser_do_not_disturb_each_other() {
    let world = World::start(ProviderKind::Google).await;
    let client = world.client(REDIRECT).await;
    let mut browser = TestBrowser::new(REDIRECT);
    let first = browser
        .open(&world.authorize_url(&client, &[("state", "1")]))
        .await;
    let second = browser
        .open(&world.authorize_url(&client, &[("state", "2")]))
        .await;
    for (page, state) in [(first, "1"), (second, "2")] {
        let back = browser.press(&page, "decision", "allow").await;
        assert_eq!(back.parameter("state").as_deref(), Some(state));
        let code = back.parameter("code").unwrap();
        assert_eq!(world.redeem(&client, &code).await.0, 200);
    }
}

/// Starts a site with the metadata document of a client.
async fn document(change: impl Fn(&str) -> Value + Clone + Send + Sync + 'static) -> String {
    let handler = move |request: axum::extract::Request| {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        let document = change(&format!("http://{host}/client.json"));
        async move { document.to_string() }
    };
    let address = serve(Router::new().route("/client.json", get(handler))).await;
    format!("http://{address}/client.json")
}

fn client_metadata(url: &str) -> Value {
    json!({
        "client_id": url, "client_name": "Claude Code", "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "none",
    })
}

#[tokio::test]
async fn a_client_id_that_is_a_document_needs_no_registration() {
    let settings = json!({ "document_networks": ["127.0.0.0/8"] });
    let world = World::start_with(ProviderKind::Keycloak, settings).await;
    let client = document(client_metadata).await;
    let mut browser = TestBrowser::new(REDIRECT);
    let page = browser.open(&world.authorize_url(&client, &[])).await;
    assert!(
        page.text
            .contains("<b>Claude Code</b> and is described at <code>127.0.0.1</code>")
    );
    let back = browser.press(&page, "decision", "allow").await;
    let (status, tokens) = world
        .redeem(&client, &back.parameter("code").unwrap())
        .await;
    assert_eq!(status, 200, "{tokens}");
}

#[tokio::test]
async fn a_document_that_is_not_the_clients_own_describes_nobody() {
    let settings = json!({ "document_networks": ["127.0.0.0/8"] });
    let world = World::start_with(ProviderKind::Keycloak, settings).await;
    let with = |name: &'static str, value: Value| {
        move |url: &str| {
            let mut document = client_metadata(url);
            document[name] = value.clone();
            document
        }
    };
    let other = document(with(
        "client_id",
        json!("https://other.example/client.json"),
    ))
    .await;
    let secret = document(with(
        "token_endpoint_auth_method",
        json!("client_secret_basic"),
    ))
    .await;
    let unsafe_redirect = document(with("redirect_uris", json!(["javascript:alert(1)"]))).await;
    let large = document(with("client_name", json!("x".repeat(20_000)))).await;
    let missing = other.replace("client.json", "nothing.json");
    let root = other.replace("client.json", "");
    let dots = other.replace("client.json", "x/../client.json");
    let fragment = format!("{other}#x");
    for client in [
        other,
        secret,
        unsafe_redirect,
        large,
        missing,
        root,
        dots,
        fragment,
    ] {
        let mut browser = TestBrowser::new(REDIRECT);
        let page = browser.open(&world.authorize_url(&client, &[])).await;
        assert!(matches!(page.status, 400 | 401), "{client}: {}", page.text);
        assert!(!page.text.contains("<form"));
    }
}

#[tokio::test]
async fn a_document_is_not_fetched_from_the_operators_own_network() {
    let world = World::start(ProviderKind::Keycloak).await;
    let client = document(client_metadata).await;
    let mut browser = TestBrowser::new(REDIRECT);
    let page = browser.open(&world.authorize_url(&client, &[])).await;
    assert_eq!(page.status, 401, "{}", page.text);
}
