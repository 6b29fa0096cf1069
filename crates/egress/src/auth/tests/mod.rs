//! Tests of credentials with a small token endpoint and a service that checks them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use futures::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;
use wardgate_testkit::TestClock;

use super::*;
use crate::{ClientSettings, EgressClient, EgressRequest, PrivateAddresses};

mod assertion;
mod discovery;
mod enterprise;
mod step_up;

const START: i64 = 1_800_000_000;

/// A request that the token endpoint received.
struct TokenRequest {
    authorization: String,
    form: BTreeMap<String, String>,
}

/// The configured responses of the token endpoint and the service, and the requests they received.
struct World {
    clock: TestClock,
    address: SocketAddr,
    /// Status and body of the token endpoint; `{n}` in a text is the number of the request.
    answer: Mutex<(StatusCode, Value)>,
    asked: Mutex<Vec<TokenRequest>>,
    /// The `Authorization` headers that the service received.
    seen: Mutex<Vec<String>>,
    /// The number of requests that the service still rejects with 401.
    rejections: AtomicUsize,
}

impl World {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let granted =
            json!({"access_token": "token-{n}", "token_type": "Bearer", "expires_in": 600});
        let world = Arc::new(Self {
            clock: TestClock::at(START),
            address: listener.local_addr().unwrap(),
            answer: Mutex::new((StatusCode::OK, granted)),
            asked: Mutex::default(),
            seen: Mutex::default(),
            rejections: AtomicUsize::new(0),
        });
        let (endpoint, service) = (Arc::clone(&world), Arc::clone(&world));
        let router = Router::new()
            .route(
                "/token",
                post(async move |headers, body| endpoint.grant(&headers, &body)),
            )
            .route("/", get(async move |headers| service.serve(&headers)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        world
    }

    fn grant(&self, headers: &HeaderMap, body: &Bytes) -> (StatusCode, String) {
        assert_eq!(headers[CONTENT_TYPE], "application/x-www-form-urlencoded");
        let mut asked = self.asked.lock().unwrap();
        asked.push(TokenRequest {
            authorization: authorization_of(headers),
            form: form_urlencoded(body),
        });
        let (status, answer) = self.answer.lock().unwrap().clone();
        let body = answer.to_string().replace("{n}", &asked.len().to_string());
        (status, body)
    }

    fn serve(&self, headers: &HeaderMap) -> StatusCode {
        self.seen.lock().unwrap().push(authorization_of(headers));
        let left = self
            .rejections
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if left.is_ok() {
            StatusCode::UNAUTHORIZED
        } else {
            StatusCode::OK
        }
    }

    fn answer(&self, status: StatusCode, body: Value) {
        *self.answer.lock().unwrap() = (status, body);
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn oauth(&self) -> OAuthClient {
        OAuthClient {
            server: ServerSettings {
                token_url: Some(self.token_url()),
                ..ServerSettings::default()
            },
            resource: None,
            client_id: "run ner:1".to_owned(),
            proof: ClientProof::Secret(Secret::from("p+ss&w%rd".to_owned())),
            scope: Some("read write".to_owned()),
            audience: Some("https://api.test".to_owned()),
        }
    }

    fn token_url(&self) -> Url {
        format!("http://{}/token", self.address).parse().unwrap()
    }

    fn client(&self, auth: AuthSettings) -> EgressClient {
        let ambient = self.clock.ambient();
        EgressClient::open(&self.settings(auth), &ambient).unwrap()
    }

    fn settings(&self, auth: AuthSettings) -> ClientSettings {
        ClientSettings {
            egress: EgressSettings::for_url(
                &self.url(),
                [],
                PrivateAddresses::Allowed,
                Duration::from_secs(20),
                1024,
            ),
            headers: HeaderMap::new(),
            auth,
        }
    }

    fn url(&self) -> Url {
        format!("http://{}/", self.address).parse().unwrap()
    }

    async fn call(
        &self,
        client: &EgressClient,
        caller: Option<OnBehalf<'_>>,
    ) -> Result<StatusCode, EgressError> {
        let request = EgressRequest::new(Method::GET, self.url());
        let response = client.send(request, caller).await?;
        Ok(response.status)
    }

    fn take_authorization_headers(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    fn token_request_count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn authorization_of(headers: &HeaderMap) -> String {
    headers
        .get(AUTHORIZATION)
        .map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

fn form_urlencoded(body: &Bytes) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

fn token(token: &str, lifetime: i64) -> OnBehalf<'_> {
    OnBehalf {
        tenant: "",
        issuer: "https://issuer.test",
        subject: token,
        token: Some(CallerToken {
            token,
            expires_at: Timestamp::from_seconds(START + lifetime),
        }),
    }
}

#[tokio::test]
async fn fixed_credentials_are_sent_as_they_are() {
    let world = World::start().await;
    let secret = |text: &str| Secret::from(text.to_owned());
    for (auth, header) in [
        (AuthSettings::None, ""),
        (
            AuthSettings::Bearer {
                token: secret("abc"),
            },
            "Bearer abc",
        ),
        (
            AuthSettings::Basic {
                username: "Aladdin".to_owned(),
                password: secret("open sesame"),
            },
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        ),
    ] {
        world.rejections.store(1, Ordering::SeqCst);
        let status = world.call(&world.client(auth), None).await.unwrap();
        // A retry with the same credentials would fail as well.
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert_eq!(world.take_authorization_headers(), [header]);
    }
}

#[tokio::test]
async fn secrets_are_never_shown() {
    let world = World::start().await;
    let canary = || Secret::from("canary".to_owned());
    let oauth = || OAuthClient {
        proof: ClientProof::Secret(canary()),
        ..world.oauth()
    };
    for auth in [
        AuthSettings::Bearer { token: canary() },
        AuthSettings::Basic {
            username: "u".to_owned(),
            password: canary(),
        },
        AuthSettings::ClientCredentials(oauth()),
        AuthSettings::TokenExchange(oauth()),
    ] {
        let mut settings = world.settings(auth);
        let key = http::HeaderName::from_static("x-api-key");
        settings.headers.insert(key, "canary".parse().unwrap());
        let shown = format!("{settings:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("x-api-key"), "{shown}");
    }
    assert!(!format!("{:?}", bearer("canary").unwrap()).contains("canary"));
}

#[tokio::test]
async fn a_line_break_in_a_credential_is_refused() {
    let world = World::start().await;
    let token = Secret::from("a\r\nx-admin: 1".to_owned());
    let settings = world.settings(AuthSettings::Bearer { token });
    let refused = EgressClient::open(&settings, &Ambient::system())
        .err()
        .unwrap();
    assert!(matches!(refused, EgressError::Auth(AuthError::NotAHeader)));
}

#[tokio::test]
async fn a_token_of_our_own_is_asked_for_as_rfc_6749_says() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    world
        .call(&client, Some(token("callers-own", 600)))
        .await
        .unwrap();
    assert_eq!(world.take_authorization_headers(), ["Bearer token-1"]);
    let asked = world.asked.lock().unwrap();
    // base64("run+ner%3A1:p%2Bss%26w%25rd")
    assert_eq!(
        asked[0].authorization,
        "Basic cnVuK25lciUzQTE6cCUyQnNzJTI2dyUyNXJk"
    );
    let form = [
        ("audience", "https://api.test"),
        ("grant_type", "client_credentials"),
        ("scope", "read write"),
    ];
    let form = form.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(asked[0].form, BTreeMap::from(form));
}

#[tokio::test]
async fn a_token_is_kept_until_shortly_before_it_expires() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    world.call(&client, None).await.unwrap();
    // 600 s minus the maximum margin of 30 s.
    world.pass(569);
    world.call(&client, None).await.unwrap();
    assert_eq!(world.token_request_count(), 1);
    world.pass(1);
    world.call(&client, None).await.unwrap();
    assert_eq!(world.token_request_count(), 2);

    for (expires_in, kept) in [(json!(20), 18), (json!("100"), 90), (Value::Null, 54)] {
        let granted =
            json!({"access_token": "t", "token_type": "bearer", "expires_in": expires_in});
        world.answer(StatusCode::OK, granted);
        world.pass(10_000);
        let before = world.token_request_count();
        world.call(&client, None).await.unwrap();
        world.pass(kept - 1);
        world.call(&client, None).await.unwrap();
        assert_eq!(world.token_request_count(), before + 1, "{expires_in}");
        world.pass(1);
        world.call(&client, None).await.unwrap();
        assert_eq!(world.token_request_count(), before + 2, "{expires_in}");
    }
}

#[tokio::test]
async fn many_calls_at_once_ask_for_one_token() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    let calls = (0..50).map(|_| world.call(&client, None));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(world.token_request_count(), 1);
    assert_eq!(world.take_authorization_headers(), ["Bearer token-1"; 50]);
}

#[tokio::test]
async fn many_calls_at_once_share_one_failure_and_the_next_asks_again() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    world.answer(
        StatusCode::BAD_REQUEST,
        json!({"error": "invalid_scope", "error_description": "canary"}),
    );
    let calls = (0..50).map(|_| world.call(&client, None));
    for outcome in join_all(calls).await {
        let error = outcome.unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "the token endpoint responded with status 400 (invalid_scope)"
        );
    }
    assert_eq!(world.token_request_count(), 1);
    assert!(world.call(&client, None).await.is_err());
    assert_eq!(world.token_request_count(), 2);
    assert!(world.take_authorization_headers().is_empty());
}

#[tokio::test]
async fn a_call_that_gives_up_while_it_asks_leaves_the_next_one_free_to_ask() {
    let world = World::start().await;
    let cell = TokenCell::default();
    let ambient = world.clock.ambient();
    let never = cell.get(&ambient, None, |_| std::future::pending());
    assert!(
        tokio::time::timeout(Duration::from_millis(20), never)
            .await
            .is_err()
    );
    let granted = cell.get(&ambient, None, async |_| {
        let hour = Duration::from_hours(1);
        Ok(token::AccessToken::new(
            bearer("t").unwrap(),
            ambient.now(),
            hour,
        ))
    });
    assert_eq!(granted.await.unwrap(), "Bearer t");
}

#[tokio::test]
async fn a_401_is_tried_once_more_with_a_new_token() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    world.rejections.store(1, Ordering::SeqCst);
    assert_eq!(world.call(&client, None).await.unwrap(), StatusCode::OK);
    assert_eq!(
        world.take_authorization_headers(),
        ["Bearer token-1", "Bearer token-2"]
    );

    world.rejections.store(9, Ordering::SeqCst);
    let status = world.call(&client, None).await.unwrap();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        world.take_authorization_headers(),
        ["Bearer token-2", "Bearer token-3"]
    );
}

#[tokio::test]
async fn the_callers_token_is_exchanged_and_never_sent_on() {
    let world = World::start().await;
    let client = world.client(AuthSettings::TokenExchange(world.oauth()));
    let (ann, ben) = (token("canary-ann", 6_000), token("canary-ben", 6_000));
    for caller in [ann, ann, ben, ann] {
        world.call(&client, Some(caller)).await.unwrap();
    }
    let tokens = [1, 1, 2, 1].map(|n| format!("Bearer token-{n}"));
    assert_eq!(world.take_authorization_headers(), tokens);
    let asked = world.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    let form = [
        ("audience", "https://api.test"),
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("requested_token_type", ACCESS_TOKEN),
        ("scope", "read write"),
        ("subject_token", "canary-ben"),
        ("subject_token_type", ACCESS_TOKEN),
    ];
    let form = form.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(asked[1].form, BTreeMap::from(form));
}

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

#[tokio::test]
async fn an_exchanged_token_is_kept_no_longer_than_the_callers_own() {
    let world = World::start().await;
    let client = world.client(AuthSettings::TokenExchange(world.oauth()));
    let short = token("short", 100);
    world.call(&client, Some(short)).await.unwrap();
    world.pass(89);
    world.call(&client, Some(short)).await.unwrap();
    assert_eq!(world.token_request_count(), 1);
    world.pass(1);
    world.call(&client, Some(short)).await.unwrap();
    assert_eq!(world.token_request_count(), 2);
}

#[tokio::test]
async fn without_the_callers_token_nothing_is_sent() {
    let world = World::start().await;
    let client = world.client(AuthSettings::TokenExchange(world.oauth()));
    let error = world.call(&client, None).await.unwrap_err();
    assert!(matches!(error, EgressError::Auth(AuthError::NoCallerToken)));
    assert_eq!(world.token_request_count(), 0);
    assert!(world.take_authorization_headers().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_no_bearer_token_is_refused() {
    let world = World::start().await;
    let client = world.client(AuthSettings::ClientCredentials(world.oauth()));
    for answer in [
        json!({}),
        json!([]),
        json!({"access_token": "t"}),
        json!({"access_token": 7, "token_type": "Bearer"}),
        json!({"access_token": "", "token_type": "Bearer"}),
        json!({"access_token": "canary", "token_type": "DPoP"}),
        json!({"access_token": "canary", "token_type": "Bearer", "expires_in": -1}),
        json!({"access_token": "canary", "token_type": "Bearer", "expires_in": "soon"}),
        json!({"access_token": "canary", "token_type": "Bearer",
               "issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}),
        json!({"access_token": "canary\r\nx-admin: 1", "token_type": "Bearer"}),
        json!({"access_token": "c".repeat(100_000), "token_type": "Bearer"}),
    ] {
        world.answer(StatusCode::OK, answer.clone());
        let error = world.call(&client, None).await.unwrap_err();
        assert!(
            matches!(
                error,
                EgressError::Auth(
                    AuthError::BadAnswer(_) | AuthError::NotAHeader | AuthError::Endpoint(_)
                )
            ),
            "{answer}: {error}"
        );
        assert!(!error.to_string().contains("canary"), "{error}");
    }
    assert!(world.take_authorization_headers().is_empty());
}

#[tokio::test]
async fn the_token_endpoint_is_behind_the_same_guard() {
    let world = World::start().await;
    let mut settings = world.settings(AuthSettings::ClientCredentials(OAuthClient {
        server: ServerSettings {
            token_url: Some("http://169.254.169.254/token".parse().unwrap()),
            ..ServerSettings::default()
        },
        ..world.oauth()
    }));
    settings.egress.private = PrivateAddresses::Listed(vec!["127.0.0.0/8".parse().unwrap()]);
    let client = EgressClient::open(&settings, &Ambient::system()).unwrap();
    let error = world.call(&client, None).await.unwrap_err();
    let EgressError::Auth(AuthError::Endpoint(cause)) = error else {
        panic!("{error}");
    };
    assert!(matches!(*cause, EgressError::AddressRefused(_)), "{cause}");
}
