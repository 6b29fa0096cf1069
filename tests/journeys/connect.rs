//! Tests of a tool that acts in its caller's name, from the first call through the caller's browser to the result.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, Reply, System, TestApp, run};

use super::authorization::{AUDIENCE, AuthorizationFakes, CLIENT};
use super::clinic;
use crate::WARDGATE;

const CATALOGUE: &str = r#"
sources:
  notes:
    type: mcp
    url: "${NOTES_URL}"
    auth: { type: authorization_code }
    private: [127.0.0.0/8]
tools:
  - name: whoami
    description: Who the service takes the caller for.
    tags: [clinic]
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: mcp, source: notes, tool: whoami }
    result: { classes: { content: phi.text } }
"#;

const POLICIES: &str = r#"
@id("doctor-uses")
permit (principal in Role::"Doctor", action == Action::"call_tool", resource in Tag::"clinic");
@id("doctor-sees")
permit (principal in Role::"Doctor", action == Action::"show_clear", resource);
@id("olga-manages-tools")
permit (principal == User::"olga", action == Action::"manage_tools", resource);
"#;

/// A minimal browser that keeps cookies, returns pages and follows redirects.
pub(super) struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, String>,
}

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    status: u16,
    headers: HeaderMap,
    pub(super) text: String,
}

impl Browser {
    pub(super) fn new() -> Self {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build();
        Self {
            http: http.unwrap(),
            cookies: HashMap::new(),
        }
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Page {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = request.header("cookie", cookies.join("; "));
        let response = request.send().await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let attributes = ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"];
            assert!(attributes.iter().all(|it| cookie.contains(it)), "{cookie}");
            let (name, rest) = cookie.split_once('=').unwrap();
            assert!(name.starts_with("__Host-"));
            let value = rest.split(';').next().unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        Page {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    /// Opens a page and follows its redirects.
    pub(super) async fn open(&mut self, url: &str) -> Page {
        let mut url = Url::parse(url).unwrap();
        for _ in 0..10 {
            let page = self.send(self.http.get(url.clone())).await;
            let Some(next) = page.headers.get(LOCATION) else {
                return page;
            };
            url = url.join(next.to_str().unwrap()).unwrap();
        }
        panic!("round in a circle")
    }

    /// Submits the only form of a page.
    pub(super) async fn decide(&mut self, base: &str, page: &Page, decision: &str) -> Page {
        let token = between(&page.text, "name=\"token\" value=\"", "\"");
        let form = format!("token={token}&decision={decision}");
        self.post(base, &form, base).await
    }

    async fn post(&mut self, base: &str, form: &str, origin: &str) -> Page {
        let request = self
            .http
            .post(format!("{base}/connect/consent"))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin)
            .body(form.to_owned());
        self.send(request).await
    }
}

pub(super) fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before);
    let (_, rest) = rest.unwrap_or_else(|| panic!("no {before} in {text}"));
    rest.split(after).next().unwrap()
}

/// Writes the configuration of a gateway whose issuer is that of `fakes`.
pub(super) fn configuration(
    fakes: &AuthorizationFakes,
    catalogue: &str,
    policies: &str,
) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let issuer = fakes.at("");
    let settings = json!({
        "policy": { "policies": "policies" },
        "tool_runner": { "catalogue": "tools.yaml" },
        "gateway": {
            "auth": { "issuers": [
                { "issuer": issuer, "audience": AUDIENCE, "jwks": { "url": fakes.at("/jwks") } },
            ] },
            "sign_in": { "issuer": issuer, "client_id": CLIENT },
        },
    });
    clinic::configure(dir.path(), &settings.to_string(), catalogue, policies);
    dir
}

async fn start() -> (Arc<AuthorizationFakes>, TestApp) {
    let fakes = AuthorizationFakes::start().await;
    let url = fakes.at("/mcp");
    let environment = [("NOTES_URL", url.as_str())];
    let files = configuration(&fakes, CATALOGUE, POLICIES);
    let app = TestApp::start_example(WARDGATE, files.path(), "clinic", &environment);
    app.until_ready(true).await;
    (fakes, app)
}

/// Makes a modern call as a client that can show its user a page, or as one that cannot.
async fn call(app: &TestApp, token: &str, shows: bool, further: Value) -> Reply {
    call_at("/mcp", app, token, shows, further).await
}

/// Makes such a call at this path.
pub(super) async fn call_at(
    path: &str,
    app: &TestApp,
    token: &str,
    shows: bool,
    further: Value,
) -> Reply {
    let capabilities = if shows {
        json!({ "elicitation": { "url": {} } })
    } else {
        json!({})
    };
    let mut params = json!({
        "name": "whoami",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        },
    });
    for (name, value) in further.as_object().unwrap() {
        params[name] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "whoami"),
    ];
    let client = app.client();
    client
        .post(path, Some(token), &headers, body.to_string())
        .await
}

/// Returns the URL that the client is asked to open, and the state to return.
async fn fetch_connect_url(app: &TestApp, token: &str) -> (String, Value) {
    let result = call(app, token, true, json!({})).await.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let request = &result["inputRequests"]["connect"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "url");
    let url = request["params"]["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("{}/connect/", app.client().base())));
    let back = json!({
        "requestState": result["requestState"],
        "inputResponses": { "connect": { "action": "accept" } },
    });
    (url, back)
}

fn log_in(fakes: &AuthorizationFakes, person: &str) {
    person.clone_into(&mut fakes.login.lock().unwrap());
}

fn operate(app: &TestApp, token: &str, arguments: &[&str]) -> ProcessExit {
    let dir = app.data_dir().display().to_string();
    run(
        app.binary(),
        &[arguments, &["--data-dir", &dir]].concat(),
        &[("WARDGATE_TOKEN", token)],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_lets_a_source_act_in_their_name_in_their_browser_and_the_call_goes_on() {
    let (fakes, app) = start().await;
    let (ann, ben) = (fakes.token("ann"), fakes.token("ben"));
    let (url, back) = fetch_connect_url(&app, &ann).await;

    let mut browser = Browser::new();
    log_in(&fakes, "ann");
    let page = browser.open(&url).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.text.contains("<b>notes</b>"), "{page:?}");
    assert!(page.text.contains("<code>notes</code>"), "{page:?}");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.headers["cache-control"], "no-store");

    let base = app.client().base().to_owned();
    let leaving = browser.decide(&base, &page, "allow").await;
    assert_eq!(leaving.status, 200, "{leaving:?}");
    let next = between(&leaving.text, "href=\"", "\"").replace("&amp;", "&");
    let done = browser.open(&next).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.text.contains("Connected"), "{done:?}");

    let result = call(&app, &ann, true, back).await.result();
    assert_eq!(result["content"][0]["text"], "you are ann", "{result}");
    // The grant of one caller is not used for another, and the caller's own token was passed to nobody.
    fetch_connect_url(&app, &ben).await;
    let seen = fakes.seen.lock().unwrap().clone();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|token| token.starts_with("canary-access")));
    // No token is in the records.
    assert!(!format!("{:?}", app.records()).contains("canary"));

    // Another person with the link, which is used by now, learns that only after signing in as the right person.
    let page = Browser::new().open(&url).await;
    let mut again = Browser::new();
    let consent = again.open(&url).await;
    let used = again.decide(&base, &consent, "allow").await;
    assert_eq!((page.status, used.status), (200, 410), "{used:?}");

    let olga = fakes.token("olga");
    let list = ["tools", "connections", "-o", "jsonl"];
    let listed = operate(&app, &olga, &list).success();
    let line: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(
        (&line["source"], &line["user"]),
        (&json!("notes"), &json!("ann"))
    );
    let remove = ["tools", "disconnect", "--user", "ann"];
    assert_eq!(operate(&app, &olga, &remove).success(), "1 forgotten\n");
    fetch_connect_url(&app, &ann).await;
    let changes: Vec<_> = app
        .records()
        .into_iter()
        .filter(|record| record["actor"].is_string())
        .map(|record| (record["actor"].clone(), record["action"].clone()))
        .collect();
    let expected = [
        (json!("ann"), json!("connection.make")),
        (json!("olga"), json!("connection.list")),
        (json!("olga"), json!("connection.remove")),
    ];
    assert_eq!(changes, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_connects_a_source_for_somebody_else() {
    let (fakes, app) = start().await;
    let ann = fakes.token("ann");
    let base = app.client().base().to_owned();
    let (url, back) = fetch_connect_url(&app, &ann).await;

    // The links are exchanged: the person who signs in must be the caller.
    log_in(&fakes, "ben");
    let page = Browser::new().open(&url).await;
    assert_eq!(page.status, 403, "{page:?}");

    log_in(&fakes, "ann");
    let mut browser = Browser::new();
    let consent = browser.open(&url).await;
    // These forms come from another site, or lack the token that only the page contains.
    let token = between(&consent.text, "name=\"token\" value=\"", "\"").to_owned();
    let form = format!("token={token}&decision=allow");
    for (form, origin) in [
        (form.as_str(), "https://evil.example"),
        (form.as_str(), "null"),
        ("decision=allow", base.as_str()),
        ("token=x&decision=allow", base.as_str()),
    ] {
        let page = browser.post(&base, form, origin).await;
        assert_eq!(page.status, 403, "{form} {origin}: {page:?}");
    }
    // Without the cookie of the browser that started the flow, no step succeeds.
    for path in [
        "/connect/consent",
        "/connect/callback?code=code-0&state=x",
        "/connect/signed-in?code=code-0&state=x",
        "/connect/forged",
    ] {
        let page = Browser::new().open(&format!("{base}{path}")).await;
        assert_eq!(page.status, 410, "{path}: {page:?}");
    }
    // The state of another browser is not accepted.
    let leaving = browser.decide(&base, &consent, "allow").await;
    assert_eq!(leaving.status, 200, "{leaving:?}");
    let forged = format!("{base}/connect/callback?code=code-0&state=forged");
    assert_eq!(browser.open(&forged).await.status, 410);
    // A caller whose client declined the page gets an error. A new call asks again.
    let denied = json!({
        "requestState": back["requestState"],
        "inputResponses": { "connect": { "action": "decline" } },
    });
    let words = call(&app, &ann, true, denied).await.tool_error();
    assert!(words.contains("did not authorize"), "{words}");
    fetch_connect_url(&app, &ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_shows_no_page_is_told_what_its_user_can_do() {
    let (fakes, app) = start().await;
    let reply = call(&app, &fakes.token("ann"), false, json!({})).await;
    let words = reply.tool_error();
    let link = between(&words, "Open ", " ");
    assert!(
        link.starts_with(&format!("{}/connect/", app.client().base())),
        "{words}"
    );
    let mut browser = Browser::new();
    log_in(&fakes, "ann");
    let consent = browser.open(link).await;
    let denied = browser.decide(app.client().base(), &consent, "deny").await;
    assert!(denied.text.contains("Nothing was allowed"), "{denied:?}");
    let again = browser.open(link).await;
    let base = app.client().base().to_owned();
    assert_eq!(browser.decide(&base, &again, "allow").await.status, 410);
}
