//! Tests of the sign-in sequences of Claude Code, Cursor and VS Code with each preset, as recorded from the requests of
//! these clients: discovery, registration, the browser, tokens, a call, refreshed tokens, more scopes.

use std::sync::Arc;

use reqwest::Url;
use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_domain::{Ambient, Digest};
use wardgate_testkit::{
    FakeIdentityProvider, ProviderKind, Reply, System, TestApp, TestBrowser, base64url,
};

use super::clinic;
use crate::WARDGATE;

const CATALOGUE: &str = r#"
sources:
  clinic: { type: sqlite, url: "${CLINIC_URL}" }
tools:
  - name: reads
    description: Anybody may.
    tags: [clinic]
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: sql, source: clinic, statement: "SELECT 'fine' AS answer" }
    result: { classes: { answer: public } }
  - name: opens
    description: Needs more scope.
    tags: [clinic, vault]
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: sql, source: clinic, statement: "SELECT 'opened' AS answer" }
    result: { classes: { answer: public } }
"#;

/// The tokens of Google have no roles, but the domain of the account.
const POLICIES: &str = r#"
@id("doctor-uses")
permit (principal in Role::"Doctor", action == Action::"call_tool", resource in Tag::"clinic");
@id("doctor-sees")
permit (principal in Role::"Doctor", action == Action::"show_clear", resource);
@id("hospital-uses")
permit (principal in Role::"hospital.example", action == Action::"call_tool", resource in Tag::"clinic");
@id("hospital-sees")
permit (principal in Role::"hospital.example", action == Action::"show_clear", resource);
"#;

/// The behavior of one of today's clients.
struct ClientScript {
    /// The body of its registration request.
    registration: Value,
    /// The redirect URI that it uses.
    redirect_uri: &'static str,
    /// Whether it sends `resource` in both requests.
    names_resource: bool,
    /// The protocol version of its calls, or an empty string for the version without sessions.
    version: &'static str,
}

fn claude_code() -> ClientScript {
    ClientScript {
        registration: json!({
            "client_name": "Claude Code (hospital)",
            "redirect_uris": ["http://localhost:3118/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }),
        redirect_uri: "http://localhost:3118/callback",
        names_resource: false,
        version: "2025-06-18",
    }
}

fn cursor() -> ClientScript {
    ClientScript {
        registration: json!({
            "client_name": "Cursor",
            "redirect_uris": [
                "cursor://anysphere.cursor-mcp/oauth/callback",
                "https://www.cursor.com/agents/mcp/oauth/callback",
                "http://localhost:8787/callback",
            ],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }),
        redirect_uri: "cursor://anysphere.cursor-mcp/oauth/callback",
        names_resource: true,
        version: "2025-11-25",
    }
}

fn vs_code() -> ClientScript {
    ClientScript {
        registration: json!({
            "client_name": "Visual Studio Code",
            "client_uri": "https://code.visualstudio.com",
            "redirect_uris": [
                "https://insiders.vscode.dev/redirect",
                "https://vscode.dev/redirect",
                "http://127.0.0.1/",
                "http://127.0.0.1:33418/",
            ],
            "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
        }),
        // The client could not bind the port that it registered first.
        redirect_uri: "http://127.0.0.1:9/",
        names_resource: true,
        version: "",
    }
}

/// Starts a system whose users have accounts at a provider, and returns them with the directory of its database.
async fn start(kind: ProviderKind) -> (Arc<FakeIdentityProvider>, TestApp, TempDir) {
    let provider = FakeIdentityProvider::start(kind, Ambient::system()).await;
    let files = tempfile::tempdir().unwrap();
    let mut settings = json!({
        "policy": { "policies": "policies" },
        "tool_runner": { "catalogue": "tools.yaml" },
        "gateway": {
            "auth": { "issuers": [provider.trust()] },
            "authorization": provider.authorization(files.path()),
        },
    });
    settings["gateway"]["authorization"]["client_secret_file"] = "provider.secret".into();
    if provider.has_scopes() {
        settings["gateway"]["scopes"] =
            json!({ "required": ["mcp"], "tags": { "vault": ["mcp.write"] } });
    }
    clinic::configure(files.path(), &settings.to_string(), CATALOGUE, POLICIES);
    let database = files.path().join("clinic.sqlite");
    std::fs::write(&database, "").unwrap();
    let url = format!("sqlite:{}", database.display());
    let app = TestApp::start_example(WARDGATE, files.path(), "clinic", &[("CLINIC_URL", &url)]);
    app.until_ready(true).await;
    provider.allow_redirect(&format!("{}/oauth/callback", app.client().base()));
    (provider, app, files)
}

/// A client that signs in.
struct SignedInClient<'a> {
    script: ClientScript,
    app: &'a TestApp,
    metadata: Value,
    id: String,
    resource: String,
    tokens: Value,
}

/// Returns a parameter of a challenge (RFC 9110 §11.2).
fn challenge_parameter(reply: &Reply, name: &str) -> Option<String> {
    let challenge = reply.headers.get("www-authenticate")?.to_str().ok()?;
    let (_, rest) = challenge.split_once(&format!("{name}=\""))?;
    rest.split('"').next().map(ToOwned::to_owned)
}

fn path_of(url: &str) -> String {
    Url::parse(url).unwrap().path().to_owned()
}

fn encode_form(form: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://x/", form).unwrap();
    url.query().unwrap_or_default().to_owned()
}

impl<'a> SignedInClient<'a> {
    /// Signs in, from the first request without a token to the first tokens.
    async fn sign_in(script: ClientScript, app: &'a TestApp) -> Self {
        let client = app.client();
        let first = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } },
        });
        let refused = client.post("/mcp", None, &[], first.to_string()).await;
        assert_eq!(refused.status, 401);
        let resource = challenge_parameter(&refused, "resource_metadata").unwrap();
        let scope = challenge_parameter(&refused, "scope");
        let resource = client.get(&path_of(&resource)).await.json();
        let server = resource["authorization_servers"][0].as_str().unwrap();
        assert_eq!(
            server,
            client.base(),
            "clients go to the facade, not to the provider"
        );
        let metadata = client
            .get("/.well-known/oauth-authorization-server")
            .await
            .json();
        assert_eq!(metadata["issuer"], server, "RFC 8414 §3.3");
        let register = path_of(metadata["registration_endpoint"].as_str().unwrap());
        let registered = client
            .post(&register, None, &[], script.registration.to_string())
            .await;
        assert_eq!(registered.status, 201, "{}", registered.body);
        let mut signed_in = Self {
            id: registered.json()["client_id"].as_str().unwrap().to_owned(),
            resource: resource["resource"].as_str().unwrap().to_owned(),
            script,
            app,
            metadata,
            tokens: Value::Null,
        };
        signed_in.authorize(scope.as_deref()).await;
        signed_in
    }

    /// Requests an authorization for this scope, which the user grants in their browser.
    async fn authorize(&mut self, scope: Option<&str>) {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = base64url(Digest::compute(verifier.as_bytes()).as_bytes());
        let state = "ey/lnTwSm9FUcQN/Qds+=";
        let mut request = vec![
            ("response_type", "code"),
            ("client_id", &self.id),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("redirect_uri", self.script.redirect_uri),
            ("state", state),
        ];
        request.extend(scope.map(|scope| ("scope", scope)));
        if self.script.names_resource {
            request.push(("resource", &self.resource));
        }
        let endpoint = self.metadata["authorization_endpoint"].as_str().unwrap();
        let mut browser = TestBrowser::new(self.script.redirect_uri);
        let page = browser
            .open(&format!("{endpoint}?{}", encode_form(&request)))
            .await;
        assert!(
            page.text
                .contains(self.script.registration["client_name"].as_str().unwrap())
        );
        let back = browser.press(&page, "decision", "allow").await;
        assert!(
            back.url.as_str().starts_with(self.script.redirect_uri),
            "{} {}",
            back.url,
            back.text
        );
        assert_eq!(
            back.parameter("state").as_deref(),
            Some(state),
            "to the letter"
        );
        assert_eq!(
            back.parameter("iss").as_deref(),
            Some(self.app.client().base())
        );
        let code = back
            .parameter("code")
            .unwrap_or_else(|| panic!("no code at {}", back.url));
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &self.id),
            ("code", &code),
            ("code_verifier", verifier),
            ("redirect_uri", self.script.redirect_uri),
        ];
        if self.script.names_resource {
            form.push(("resource", &self.resource));
        }
        self.tokens = self.request_tokens(&form).await;
    }

    async fn request_tokens(&self, form: &[(&str, &str)]) -> Value {
        let endpoint = path_of(self.metadata["token_endpoint"].as_str().unwrap());
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let reply = self
            .app
            .client()
            .send("POST", &endpoint, &headers, encode_form(form))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.headers["cache-control"], "no-store");
        reply.json()
    }

    async fn refresh(&mut self) {
        let held = self.tokens["refresh_token"].as_str().unwrap().to_owned();
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", &self.id),
            ("refresh_token", &held),
        ];
        let newer = self.request_tokens(&form).await;
        assert_ne!(newer["refresh_token"], self.tokens["refresh_token"]);
        self.tokens = newer;
    }

    async fn call(&self, tool: &str) -> Reply {
        let token = self.tokens["access_token"].as_str().unwrap();
        let params = json!({ "name": tool, "arguments": {} });
        let client = self.app.client();
        match self.script.version {
            "" => client.modern(token, "tools/call", params).await,
            version => client.legacy(token, version, "tools/call", params).await,
        }
    }
}

async fn replay_every_client(kind: ProviderKind) {
    let (provider, app, _files) = start(kind).await;
    for script in [claude_code(), cursor(), vs_code()] {
        let mut client = SignedInClient::sign_in(script, &app).await;
        assert_eq!(
            client.call("reads").await.rows(),
            [json!({ "answer": "fine" })]
        );
        client.refresh().await;
        assert_eq!(
            client.call("reads").await.rows(),
            [json!({ "answer": "fine" })]
        );
        let lacking = client.call("opens").await;
        if provider.has_scopes() {
            assert_eq!(lacking.status, 403, "{}", lacking.body);
            let needed = challenge_parameter(&lacking, "scope").unwrap();
            client.authorize(Some(&needed)).await;
            let opened = client.call("opens").await;
            assert_eq!(opened.rows(), [json!({ "answer": "opened" })]);
            client.refresh().await;
        }
        assert_eq!(
            client.call("opens").await.rows(),
            [json!({ "answer": "opened" })]
        );
    }
    for request in provider
        .requests("authorize")
        .iter()
        .chain(&provider.requests("token"))
    {
        assert_eq!(
            request.get("resource"),
            None,
            "what clients send of it stays here"
        );
    }
    let users: Vec<_> = app.records().iter().map(|it| it["user"].clone()).collect();
    assert!(
        users.contains(&json!("ann")),
        "calls are on record as the person's: {users:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_today_sign_in_with_keycloak() {
    replay_every_client(ProviderKind::Keycloak).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_today_sign_in_with_auth0() {
    replay_every_client(ProviderKind::Auth0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_today_sign_in_with_okta() {
    replay_every_client(ProviderKind::Okta).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_today_sign_in_with_entra() {
    replay_every_client(ProviderKind::Entra).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_today_sign_in_with_google() {
    replay_every_client(ProviderKind::Google).await;
}
