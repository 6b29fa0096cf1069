//! An issuer with token introspection (RFC 7662).

use std::sync::Mutex;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wardgate_testkit::serve;

use super::*;

/// An introspection endpoint that sends the same configurable response to every request.
struct FakeEndpoint {
    answer: Mutex<(StatusCode, String)>,
    /// The authorization headers and bodies of the requests.
    requests: Mutex<Vec<(String, String)>>,
}

/// An issuer with such an endpoint, and an authenticator that uses it.
struct AskedIssuer {
    endpoint: Arc<FakeEndpoint>,
    clock: TestClock,
    authenticator: Authenticator,
    secret: tempfile::NamedTempFile,
}

async fn answer(
    State(endpoint): State<Arc<FakeEndpoint>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let authorization = headers[AUTHORIZATION].to_str().unwrap().to_owned();
    endpoint
        .requests
        .lock()
        .unwrap()
        .push((authorization, body));
    endpoint.answer.lock().unwrap().clone().into_response()
}

fn active() -> Value {
    let mut answer = claims();
    answer["active"] = true.into();
    answer["token_type"] = "Bearer".into();
    answer
}

impl AskedIssuer {
    async fn start() -> Self {
        let endpoint = Arc::new(FakeEndpoint {
            answer: Mutex::new((StatusCode::OK, active().to_string())),
            requests: Mutex::default(),
        });
        let router = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&endpoint));
        let url = format!("http://{}/introspect", serve(router).await);
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&secret, "s3:cr%t\n").unwrap();
        let mut issuer = file_issuer(Path::new("unused"));
        issuer.jwks = None;
        issuer.introspection = Some(IntrospectionConfig {
            url,
            client_id: "ward gate".to_owned(),
            client_secret_file: secret.path().to_owned(),
            cache_seconds: 10,
        });
        let clock = TestClock::at(NOW);
        let authenticator = authenticator(issuer, &clock).await.unwrap();
        Self {
            endpoint,
            clock,
            authenticator,
            secret,
        }
    }

    fn answer_with(&self, status: StatusCode, body: &(impl ToString + ?Sized)) {
        *self.endpoint.answer.lock().unwrap() = (status, body.to_string());
    }

    fn questions(&self) -> usize {
        self.endpoint.requests.lock().unwrap().len()
    }

    async fn reason(&self, token: &str) -> &'static str {
        let caller = self.authenticator.caller(token).await;
        caller.map_or_else(|refusal| refusal.reason().as_str(), |_| "accepted")
    }
}

#[tokio::test]
async fn an_opaque_token_makes_the_caller_that_its_issuer_describes() {
    let issuer = AskedIssuer::start().await;
    let caller = issuer.authenticator.caller("opaque-1").await.unwrap();
    assert_eq!(caller.issuer(), ISSUER);
    assert_eq!(caller.subject(), "dr.yenji");
    assert_eq!(caller.roles(), ["Doctor"]);
    let requests = issuer.endpoint.requests.lock().unwrap().clone();
    let basic = STANDARD.encode("ward+gate:s3%3Acr%25t");
    let form = "token=opaque-1&token_type_hint=access_token";
    assert_eq!(requests, [(format!("Basic {basic}"), form.to_owned())]);
    let ready = issuer.authenticator.readiness().borrow().clone();
    assert_eq!(ready, Readiness::Ready, "there are no keys to wait for");
}

#[tokio::test]
async fn an_answer_is_good_for_as_long_as_configured_and_no_longer() {
    let issuer = AskedIssuer::start().await;
    assert_eq!(issuer.reason("opaque-1").await, "accepted");
    issuer.answer_with(StatusCode::OK, &json!({ "active": false }));
    issuer.clock.set(NOW + 9);
    assert_eq!(issuer.reason("opaque-1").await, "accepted");
    assert_eq!(issuer.questions(), 1);
    issuer.clock.set(NOW + 10);
    assert_eq!(issuer.reason("opaque-1").await, "token_inactive");
    issuer.clock.set(NOW + 19);
    assert_eq!(issuer.reason("opaque-1").await, "token_inactive");
    assert_eq!(issuer.questions(), 2, "that it is not active is known");
    issuer.clock.set(NOW + 20);
    issuer.answer_with(StatusCode::OK, &active());
    assert_eq!(issuer.reason("opaque-1").await, "accepted");
}

#[tokio::test]
async fn a_jwt_of_such_an_issuer_is_asked_about_too_and_a_forged_one_gains_nothing() {
    let issuer = AskedIssuer::start().await;
    let key = TestKey::ed25519();
    assert_eq!(issuer.reason(&good(&key, "k")).await, "accepted");
    issuer.answer_with(StatusCode::OK, &json!({ "active": false }));
    let forged = key.token(header("EdDSA", "k"), claims_with("sub", "somebody"));
    assert_eq!(issuer.reason(&forged).await, "token_inactive");
    let other = key.token(
        header("EdDSA", "k"),
        claims_with("iss", "https://other.example"),
    );
    assert_eq!(issuer.reason(&other).await, "issuer_refused");
    assert_eq!(issuer.questions(), 2);
}

#[tokio::test]
async fn answers_that_are_of_another_issuer_audience_kind_or_time_are_refused() {
    let issuer = AskedIssuer::start().await;
    let changes = [
        ("iss", json!("https://other.example"), "issuer_refused"),
        ("aud", json!("another"), "audience_refused"),
        ("aud", Value::Null, "claim_missing"),
        ("exp", Value::Null, "claim_missing"),
        ("exp", json!(NOW - 60), "token_expired"),
        ("nbf", json!(NOW + 60), "token_not_yet_valid"),
        ("sub", Value::Null, "claim_missing"),
        ("token_type", json!("refresh_token"), "type_refused"),
        ("token_use", json!("id"), "type_refused"),
        ("active", json!("true"), "token_inactive"),
        ("active", json!(1), "token_inactive"),
    ];
    for (index, (member, value, expected)) in changes.into_iter().enumerate() {
        let mut answer = active();
        answer[member] = value;
        issuer.answer_with(StatusCode::OK, &answer);
        let reason = issuer.reason(&format!("opaque-{index}")).await;
        assert_eq!(reason, expected, "{answer}");
    }
}

#[tokio::test]
async fn an_issuer_that_cannot_be_asked_is_no_fault_of_the_token() {
    let issuer = AskedIssuer::start().await;
    let long = "x".repeat(1024 * 1024 + 1);
    for (status, body) in [
        (StatusCode::UNAUTHORIZED, "{}"),
        (StatusCode::FOUND, "{}"),
        (StatusCode::OK, "[]"),
        (StatusCode::OK, r#"{"active":false,"active":true}"#),
        (StatusCode::OK, "not a JSON"),
        (StatusCode::OK, &*long),
    ] {
        issuer.answer_with(status, body);
        let refusal = issuer.authenticator.caller("opaque").await.unwrap_err();
        assert_eq!(refusal, TokenRefusal::IntrospectionUnavailable);
        assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    issuer.answer_with(StatusCode::OK, &active());
    assert_eq!(issuer.reason("opaque").await, "accepted");
    std::fs::remove_file(&issuer.secret).unwrap();
    assert_eq!(issuer.reason("another").await, "introspection_unavailable");
}
