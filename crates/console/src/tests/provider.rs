//! Tests of the sign-in by an identity provider.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::future::join_all;
use wardgate_domain::Clock;
use wardgate_testkit::{serve, until};

use super::*;
use crate::SignInConfig;

/// A fake provider without pages: it issues tokens for the code `good`, and renews them.
pub(super) struct FakeProvider {
    pub(super) issuer: TestIssuer,
    url: OnceLock<String>,
    clock: TestClock,
    /// The forms that the provider received, in order.
    forms: Mutex<Vec<HashMap<String, String>>>,
    answers: Mutex<Answers>,
}

/// The responses of the provider's token endpoint.
#[derive(Clone, Copy)]
struct Answers {
    status: StatusCode,
    /// The RFC 6749 error code of responses that are not successful.
    error: &'static str,
    /// Whether the provider issues a refresh token.
    renews: bool,
    /// Minimum length of the tokens, in bytes.
    bytes: usize,
}

impl FakeProvider {
    async fn start(clock: &TestClock) -> Arc<Self> {
        let provider = Arc::new(Self {
            issuer: TestIssuer::new("https://unused.example"),
            url: OnceLock::new(),
            clock: clock.clone(),
            forms: Mutex::default(),
            answers: Mutex::new(Answers {
                status: StatusCode::OK,
                error: "invalid_grant",
                renews: true,
                bytes: 0,
            }),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .with_state(Arc::clone(&provider));
        let url = format!("http://{}", serve(router).await);
        provider.url.set(url).unwrap();
        provider
    }

    pub(super) fn url(&self) -> String {
        self.url.get().unwrap().clone()
    }

    pub(super) fn config(&self) -> SignInConfig {
        let config = json!({
            "issuer": self.url(), "client_id": "console", "session_hours": 1,
            "parameters": { "prompt": "consent" },
        });
        serde_json::from_value(config).unwrap()
    }

    /// Returns the forms with this grant type.
    fn grants(&self, kind: &str) -> Vec<HashMap<String, String>> {
        let forms = self.forms.lock().unwrap();
        let of_kind =
            |form: &&HashMap<String, String>| form.get("grant_type").is_some_and(|it| it == kind);
        forms.iter().filter(of_kind).cloned().collect()
    }

    fn change(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap());
    }
}

async fn metadata(State(provider): State<Arc<FakeProvider>>) -> String {
    let url = provider.url();
    json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "revocation_endpoint": format!("{url}/revoke"),
        "end_session_endpoint": format!("{url}/end"),
        "jwks_uri": format!("{url}/keys"),
        "authorization_response_iss_parameter_supported": true,
    })
    .to_string()
}

fn parse_form(body: &str) -> HashMap<String, String> {
    let pairs = url::form_urlencoded::parse(body.as_bytes());
    pairs.into_owned().collect()
}

/// Issues tokens that are valid for five minutes.
async fn token(State(provider): State<Arc<FakeProvider>>, body: String) -> Response {
    let (form, answers) = (parse_form(&body), *provider.answers.lock().unwrap());
    let count = {
        let mut forms = provider.forms.lock().unwrap();
        forms.push(form.clone());
        forms.len()
    };
    let is_good = form["grant_type"] == "refresh_token" || form["code"] == "good";
    if answers.status != StatusCode::OK || !is_good {
        let status = if is_good {
            answers.status
        } else {
            StatusCode::BAD_REQUEST
        };
        return (status, json!({ "error": answers.error }).to_string()).into_response();
    }
    let now = provider.clock.now().as_seconds();
    let access_token = provider.issuer.token(&json!({
        "iss": provider.url(), "sub": "anna", "roles": ["Nurse"], "iat": now, "exp": now + 300,
        "jti": count.to_string(), "padding": "x".repeat(answers.bytes),
    }));
    let mut answer = json!({
        "access_token": access_token, "token_type": "Bearer", "expires_in": 300, "id_token": "a.b.c",
    });
    if answers.renews {
        answer["refresh_token"] = format!("refresh-{count}").into();
    }
    answer.to_string().into_response()
}

async fn revoke(State(provider): State<Arc<FakeProvider>>, body: String) -> StatusCode {
    provider.forms.lock().unwrap().push(parse_form(&body));
    StatusCode::OK
}

/// A console with a fake provider.
struct Stage {
    console: TestConsole,
    provider: Arc<FakeProvider>,
}

impl Stage {
    async fn new() -> Self {
        Self::at("http://localhost:8082").await
    }

    async fn at(public_url: &str) -> Self {
        let clock = TestClock::at(NOW);
        let provider = FakeProvider::start(&clock).await;
        let console = TestConsole::build(Some(public_url), [7; 32], clock, Some(&provider)).await;
        Self { console, provider }
    }

    /// Begins a sign-in. Returns the URL to which the browser is sent, and its cookie.
    async fn begin(&self) -> (url::Url, String) {
        let form = "next=%2Fconsole%2Fpolicy";
        let reply = self
            .console
            .post("/console/sign-in/provider", "", form)
            .await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        let (_, rest) = reply.body.split_once("href=\"").unwrap();
        let url = rest.split('"').next().unwrap().replace("&amp;", "&");
        (url.parse().unwrap(), reply.cookie())
    }

    /// Returns from the provider with this query.
    async fn come_back(&self, cookie: &str, query: &str) -> Reply {
        self.console
            .get(&format!("/console/signed-in?{query}"), cookie)
            .await
    }

    async fn finish(&self) -> Reply {
        let (url, cookie) = self.begin().await;
        let state = parameter(&url, "state");
        let query = format!("code=good&state={state}&iss={}", self.provider.url());
        self.come_back(&cookie, &query).await
    }

    /// Signs a person in and returns the session cookie.
    async fn sign_in(&self) -> String {
        let reply = self.finish().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        reply.cookie()
    }

    async fn is_signed_in(&self, cookie: &str) -> bool {
        let page = self.console.get("/console/policy", cookie).await;
        page.status == StatusCode::OK && page.body.contains("anna")
    }
}

fn parameter(url: &url::Url, name: &str) -> String {
    let mut pairs = url.query_pairs();
    let (_, value) = pairs.find(|(own, _)| own == name).unwrap();
    value.into_owned()
}

#[tokio::test]
async fn a_provider_signs_people_in_and_their_tokens_stay_in_the_store() {
    let stage = Stage::new().await;
    let page = stage.console.get("/console/sign-in", "").await;
    assert!(
        page.body.contains("Sign in with 127.0.0.1"),
        "{}",
        page.body
    );
    // The token is too long for a cookie.
    stage.provider.change(|answers| answers.bytes = 6_000);
    let (url, _) = stage.begin().await;
    assert_eq!(parameter(&url, "response_type"), "code");
    assert_eq!(parameter(&url, "client_id"), "console");
    assert_eq!(parameter(&url, "scope"), "openid offline_access");
    assert_eq!(parameter(&url, "code_challenge_method"), "S256");
    assert_eq!(parameter(&url, "prompt"), "consent");
    let back = parameter(&url, "redirect_uri");
    assert_eq!(back, "http://localhost:8082/console/signed-in");

    let reply = stage.finish().await;
    assert!(
        reply.body.contains("href=\"/console/policy\""),
        "{}",
        reply.body
    );
    let set = reply.header("set-cookie");
    let terms = "; Path=/console; Max-Age=3600; HttpOnly; SameSite=Strict";
    assert!(
        set.starts_with("wardgate_session=") && set.ends_with(terms),
        "{set}"
    );
    assert!(set.len() < 150, "an id alone: {set}");
    assert!(stage.is_signed_in(&reply.cookie()).await);
    let grant = stage.provider.grants("authorization_code").pop().unwrap();
    assert_eq!(grant["redirect_uri"], back);
    assert!(grant.contains_key("code_verifier"));
}

#[tokio::test]
async fn over_https_the_cookie_is_of_this_host_alone() {
    let stage = Stage::at("https://console.example").await;
    let from = [("origin", "https://console.example")];
    let begun = stage
        .console
        .post_from("/console/sign-in/provider", "", "", &from)
        .await;
    let (_, rest) = begun.body.split_once("state=").unwrap();
    let state = rest.split('&').next().unwrap();
    let set = begun.header("set-cookie");
    assert!(set.starts_with("__Host-wardgate_console_sign_in="), "{set}");
    assert!(
        set.contains("; Path=/; Secure; ") && set.ends_with("; SameSite=Lax"),
        "{set}"
    );
    let query = format!("code=good&state={state}&iss={}", stage.provider.url());
    let reply = stage.come_back(&begun.cookie(), &query).await;
    let set = reply.header("set-cookie");
    assert!(set.starts_with("__Host-wardgate_session="), "{set}");
    assert!(set.contains("; Path=/; Secure; "), "{set}");
    assert!(stage.is_signed_in(&reply.cookie()).await);
}

#[tokio::test]
async fn tokens_are_renewed_before_they_end_and_once_for_all_pages() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in().await;
    stage.console.advance(235);
    assert!(stage.is_signed_in(&cookie).await);
    assert!(stage.provider.grants("refresh_token").is_empty());
    stage.console.advance(10);
    let pages = (0..8).map(|_| stage.is_signed_in(&cookie));
    assert!(join_all(pages).await.into_iter().all(|it| it));
    let renewals = stage.provider.grants("refresh_token");
    assert_eq!(renewals.len(), 1);
    assert_eq!(renewals[0]["refresh_token"], "refresh-1");
    // The first renewed tokens have ended.
    stage.console.advance(290);
    assert!(stage.is_signed_in(&cookie).await);
    assert_eq!(
        stage.provider.grants("refresh_token")[1]["refresh_token"],
        "refresh-2"
    );
}

#[tokio::test]
async fn a_session_ends_at_last_and_says_so_before() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in().await;
    for _ in 0..(60 - 5) / 4 {
        stage.console.advance(240);
        assert!(stage.is_signed_in(&cookie).await);
    }
    let page = stage.console.get("/console/policy", &cookie).await;
    assert!(
        page.body.contains("Your session ends at 09:00 UTC"),
        "{}",
        page.body
    );
    stage.console.advance(600);
    assert!(!stage.is_signed_in(&cookie).await);
}

#[tokio::test]
async fn without_newer_tokens_a_session_ends_with_its_token() {
    let stage = Stage::new().await;
    stage.provider.change(|answers| answers.renews = false);
    let cookie = stage.sign_in().await;
    let page = stage.console.get("/console/policy", &cookie).await;
    assert!(
        page.body.contains("Your session ends at 08:05 UTC"),
        "{}",
        page.body
    );
    stage.console.advance(301);
    assert!(!stage.is_signed_in(&cookie).await);
    assert!(stage.provider.grants("refresh_token").is_empty());
}

#[tokio::test]
async fn a_provider_that_is_away_ends_no_session_and_one_that_refuses_does() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in().await;
    stage
        .provider
        .change(|answers| answers.status = StatusCode::BAD_GATEWAY);
    stage.console.advance(250);
    for _ in 0..3 {
        assert!(stage.is_signed_in(&cookie).await);
    }
    assert_eq!(
        stage.provider.grants("refresh_token").len(),
        1,
        "it is let alone"
    );
    stage.console.advance(31);
    stage
        .provider
        .change(|answers| answers.status = StatusCode::OK);
    assert!(stage.is_signed_in(&cookie).await);
    assert_eq!(stage.provider.grants("refresh_token").len(), 2);

    stage
        .provider
        .change(|answers| answers.status = StatusCode::BAD_REQUEST);
    stage.console.advance(250);
    assert!(!stage.is_signed_in(&cookie).await);
    stage
        .provider
        .change(|answers| answers.status = StatusCode::OK);
    assert!(!stage.is_signed_in(&cookie).await, "it is gone");
}

#[tokio::test]
async fn what_is_no_word_of_the_provider_on_the_session_does_not_end_it() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in().await;
    // The provider rejects the console's client secret.
    stage.provider.change(|answers| {
        answers.status = StatusCode::UNAUTHORIZED;
        answers.error = "invalid_client";
    });
    stage.console.advance(250);
    assert!(stage.is_signed_in(&cookie).await);
    stage.console.advance(60);
    let page = stage.console.get("/console/policy", &cookie).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
    stage
        .provider
        .change(|answers| answers.status = StatusCode::OK);
    stage.console.advance(31);
    assert!(stage.is_signed_in(&cookie).await);
}

#[tokio::test]
async fn who_signs_in_again_has_one_session() {
    let stage = Stage::new().await;
    let former = stage.sign_in().await;
    let begun = stage
        .console
        .post("/console/sign-in/provider", &former, "")
        .await;
    let (_, rest) = begun.body.split_once("state=").unwrap();
    let state = rest.split('&').next().unwrap();
    let query = format!("code=good&state={state}&iss={}", stage.provider.url());
    let newer = stage.come_back(&begun.cookie(), &query).await.cookie();
    assert!(stage.is_signed_in(&newer).await);
    assert!(!stage.is_signed_in(&former).await);
}

#[tokio::test]
async fn signing_out_ends_the_session_here_and_at_the_provider() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in().await;
    let reply = stage.console.post("/console/sign-out", &cookie, "").await;
    let url = stage.provider.url();
    assert!(
        reply.body.contains(&format!("{url}/end?client_id=console")),
        "{}",
        reply.body
    );
    assert!(reply.body.contains("id_token_hint=a.b.c"), "{}", reply.body);
    let cookies = reply.headers.get_all("set-cookie").iter();
    let ended = cookies.filter(|cookie| {
        cookie
            .to_str()
            .unwrap()
            .contains("=; Path=/console; Max-Age=0")
    });
    assert_eq!(ended.count(), 2);
    assert!(
        !stage.is_signed_in(&cookie).await,
        "a copy of the cookie is worth nothing"
    );
    until("the refresh token is revoked", async || {
        let forms = stage.provider.forms.lock().unwrap();
        let revoked = forms.last()?.get("token")? == "refresh-1";
        revoked.then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_comes_back_otherwise_than_they_went_is_not_signed_in() {
    let stage = Stage::new().await;
    let iss = stage.provider.url();
    let (url, cookie) = stage.begin().await;
    let state = parameter(&url, "state");
    let (_, other) = stage.begin().await;
    for (cookie, query, says) in [
        (
            "",
            format!("code=good&state={state}&iss={iss}"),
            "start again",
        ),
        (
            &*other,
            format!("code=good&state={state}&iss={iss}"),
            "start again",
        ),
        (
            &*cookie,
            format!("code=good&state=x&iss={iss}"),
            "start again",
        ),
        (
            &*cookie,
            format!("code=good&state={state}&iss=https://other.example"),
            "is not available",
        ),
        (
            &*cookie,
            format!("code=good&state={state}"),
            "is not available",
        ),
        (
            &*cookie,
            format!("code=bad&state={state}&iss={iss}"),
            "is not available",
        ),
        (
            &*cookie,
            format!("error=access_denied&state={state}&iss={iss}"),
            "did not sign you in",
        ),
    ] {
        let reply = stage.come_back(cookie, &query).await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{query}");
        assert!(reply.body.contains(says), "{query}: {}", reply.body);
        assert_eq!(reply.header("set-cookie"), "", "{query}");
    }
    stage.console.advance(601);
    let reply = stage
        .come_back(&cookie, &format!("code=good&state={state}&iss={iss}"))
        .await;
    assert!(reply.body.contains("start again"), "{}", reply.body);
    let unknown = TestConsole::new().await;
    let reply = unknown.post("/console/sign-in/provider", "", "").await;
    assert_eq!(
        reply.status,
        StatusCode::NOT_FOUND,
        "no provider is configured"
    );
}

#[test]
fn settings_that_cannot_work_say_what_to_change() {
    let problem = |change: Value, public_url: Option<&str>| {
        let mut config = json!({ "issuer": "https://id.example", "client_id": "console" });
        config
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let config: SignInConfig = serde_json::from_value(config).unwrap();
        let checked = config.validate(public_url);
        checked.map_or_else(|error| error.to_string(), |()| "none".to_owned())
    };
    let url = Some("https://console.example");
    assert_eq!(problem(json!({}), url), "none");
    for (change, url, expected) in [
        (
            json!({}),
            None,
            "sign_in requires `public_url`, to which the provider redirects browsers",
        ),
        (
            json!({ "session_hours": 0 }),
            url,
            "sign_in.session_hours: must be 1 to 168",
        ),
        (
            json!({ "parameters": { "state": "x" } }),
            url,
            "sign_in.parameters: remove `state`, which the console sets",
        ),
        (
            json!({ "client_id": "" }),
            url,
            "sign_in.client_id: is empty",
        ),
        (
            json!({ "issuer": "id" }),
            url,
            "sign_in.issuer: `id` is not an http(s) URL",
        ),
    ] {
        assert_eq!(problem(change, url), expected);
    }
}
