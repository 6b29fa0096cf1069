//! Tests of invalid tokens: each is refused with a challenge that leads to a valid one, and has a record.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use wardgate_domain::Ambient;
use wardgate_testkit::{System, TestApp, until};

use super::bad_bodies::request_with;
use super::bad_input::DOORS;
use super::people::doctor;
use super::refusals::{assert_says_nothing_internal, refusal, wait_for_refusals};
use crate::WARDGATE;

/// Creates tokens as the local issuer would sign them, with other claims or another header.
pub(super) struct Forge {
    key: EncodingKey,
    header: Header,
    claims: Value,
}

impl Forge {
    pub(super) fn with_key_of(app: &TestApp) -> Self {
        let pem = std::fs::read(app.data_dir().join("keys/issuer.pem")).unwrap();
        let genuine = doctor(app);
        let part = |index| {
            let part = genuine.split('.').nth(index).unwrap();
            serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        Self {
            key: EncodingKey::from_ed_pem(&pem).unwrap(),
            header: serde_json::from_value(part(0)).unwrap(),
            claims: part(1),
        }
    }

    pub(super) fn token(
        &self,
        header: impl FnOnce(&mut Header),
        claims: impl FnOnce(&mut Value),
    ) -> String {
        let (mut head, mut body) = (self.header.clone(), self.claims.clone());
        header(&mut head);
        claims(&mut body);
        jsonwebtoken::encode(&head, &body, &self.key).unwrap()
    }

    fn with(&self, claim: &str, value: Value) -> String {
        self.token(|_| {}, |claims| claims[claim] = value)
    }

    fn without(&self, claim: &str) -> String {
        let remove = |claims: &mut Value| drop(claims.as_object_mut().unwrap().remove(claim));
        self.token(|_| {}, remove)
    }

    /// Returns an unsigned token with the header and the claims.
    fn unsigned_token(&self, algorithm: &str, signature: &str) -> String {
        let header = json!({ "alg": algorithm, "typ": "at+jwt", "kid": self.header.kid });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        format!("{}.{}.{signature}", encode(&header), encode(&self.claims))
    }
}

/// Returns invalid tokens of every kind, each with the reason on record. `other` has the key of another issuer.
fn bad_tokens(app: &TestApp, other: &TestApp) -> Vec<(&'static str, String)> {
    let forge = Forge::with_key_of(app);
    let now = Ambient::system().now().as_seconds();
    let genuine = doctor(app);
    let (signed, signature) = genuine.rsplit_once('.').unwrap();
    let secret = std::fs::read(app.data_dir().join("keys/jwks.json")).unwrap();
    let mut shared = Header::new(Algorithm::HS256);
    shared.kid.clone_from(&forge.header.kid);
    let by_shared_secret =
        jsonwebtoken::encode(&shared, &forge.claims, &EncodingKey::from_secret(&secret)).unwrap();
    vec![
        ("token_malformed", "garbage".to_owned()),
        ("token_malformed", "a.b.c".to_owned()),
        ("token_malformed", signed.to_owned()),
        ("token_malformed", format!("{genuine}.{signature}")),
        ("token_too_long", "a".repeat(16 * 1024 + 1)),
        (
            "signature_invalid",
            format!(
                "{signed}.{}",
                forge.with("jti", json!("x")).rsplit_once('.').unwrap().1
            ),
        ),
        (
            "signature_invalid",
            forge.unsigned_token("EdDSA", signature),
        ),
        ("algorithm_refused", forge.unsigned_token("none", "")),
        ("algorithm_refused", forge.unsigned_token("NonE", "")),
        ("algorithm_refused", by_shared_secret),
        ("key_unknown", doctor(other)),
        (
            "key_unknown",
            forge.token(
                |header| header.kid = Some("../issuer.pem".to_owned()),
                |_| {},
            ),
        ),
        (
            "header_parameter_refused",
            forge.token(
                |header| header.jku = Some("https://evil.example".to_owned()),
                |_| {},
            ),
        ),
        (
            "type_refused",
            forge.token(|header| header.typ = Some("id+jwt".to_owned()), |_| {}),
        ),
        (
            "issuer_refused",
            forge.with("iss", json!("https://evil.example")),
        ),
        (
            "issuer_refused",
            forge.with("iss", json!("https://issuer.wardgate.internal/")),
        ),
        ("audience_refused", forge.with("aud", json!("wardgate2"))),
        ("audience_refused", forge.with("aud", json!([]))),
        ("token_expired", forge.with("exp", json!(now - 60))),
        ("token_not_yet_valid", forge.with("nbf", json!(now + 3_600))),
        ("claim_missing", forge.without("exp")),
        ("claim_missing", forge.without("aud")),
        ("claim_missing", forge.without("sub")),
        ("claim_missing", forge.without("iss")),
        ("claim_invalid", forge.with("exp", json!("tomorrow"))),
        ("claim_invalid", forge.with("sub", json!(""))),
        ("claim_invalid", forge.with("sub", json!(7))),
        (
            "claim_invalid",
            forge.with("roles", json!({ "Doctor": true })),
        ),
    ]
}

#[tokio::test]
async fn every_bad_token_is_refused_with_the_way_to_a_good_one_and_is_on_record() {
    let (app, other) = (TestApp::start(WARDGATE), TestApp::start(WARDGATE));
    let tokens = bad_tokens(&app, &other);
    let mut expected = BTreeMap::new();
    for door in DOORS {
        for (reason, token) in &tokens {
            let reply = app
                .client()
                .post(door, Some(token), &[], request_with(|_| {}))
                .await;
            assert_eq!(reply.status, 401, "{reason}");
            let challenge = reply.headers["www-authenticate"].to_str().unwrap();
            assert!(
                challenge.starts_with("Bearer resource_metadata=\""),
                "{challenge}"
            );
            assert!(
                challenge.contains(r#"error="invalid_token", error_description=""#),
                "{challenge}"
            );
            let (kind, message) = refusal(&reply);
            assert_eq!(kind, *reason);
            assert!(challenge.contains(&message), "{challenge}");
            assert!(
                !reply.body.contains("evil"),
                "a token is not repeated: {}",
                reply.body
            );
            assert_says_nothing_internal(&reply);
            *expected.entry((*reason).to_owned()).or_default() += 1;
        }
    }
    wait_for_refusals(&app, &expected).await;
    let unknown = app
        .records()
        .into_iter()
        .filter(|record| record["event"] == "outcome");
    assert_eq!(unknown.count(), 0);
}

#[tokio::test]
async fn without_a_bearer_token_nobody_is_anybody() {
    let app = TestApp::start(WARDGATE);
    let genuine = doctor(&app);
    let (basic, bearer) = (format!("Basic {genuine}"), format!("Bearer {genuine}"));
    let json = ("content-type", "application/json");
    let mut expected = BTreeMap::new();
    for door in DOORS {
        // RFC 6750 permits tokens in the query, but they end up in logs, so the gateway does not read them.
        let in_query = format!("{door}?access_token={genuine}");
        for (path, headers, reason, status) in [
            (door, vec![json], "token_missing", 401),
            (in_query.as_str(), vec![json], "token_missing", 401),
            (
                door,
                vec![json, ("authorization", "Bearer ")],
                "token_missing",
                401,
            ),
            (
                door,
                vec![json, ("cookie", bearer.as_str())],
                "token_missing",
                401,
            ),
            (
                door,
                vec![json, ("x-authorization", bearer.as_str())],
                "token_missing",
                401,
            ),
            (
                door,
                vec![json, ("authorization", basic.as_str())],
                "scheme_refused",
                401,
            ),
            (
                door,
                vec![json, ("authorization", &bearer), ("authorization", &bearer)],
                "authorization_repeated",
                400,
            ),
        ] {
            let reply = app
                .client()
                .send("POST", path, &headers, request_with(|_| {}))
                .await;
            assert_eq!(reply.status, status, "{reason}");
            *expected.entry(reason.to_owned()).or_default() += 1;
        }
    }
    wait_for_refusals(&app, &expected).await;
}

#[tokio::test]
async fn a_401_names_a_document_that_names_the_issuer() {
    let app = TestApp::start(WARDGATE);
    let reply = app
        .client()
        .post("/mcp", None, &[], request_with(|_| {}))
        .await;
    let challenge = reply.headers["www-authenticate"].to_str().unwrap();
    // Without a token the challenge has no error code (RFC 6750, section 3.1).
    assert!(!challenge.contains("error="), "{challenge}");
    let url = challenge
        .strip_prefix("Bearer resource_metadata=\"")
        .unwrap()
        .strip_suffix('"')
        .unwrap();
    let path = url
        .strip_prefix(app.client().base())
        .expect("a document of this gateway");
    for path in [path, "/.well-known/oauth-protected-resource"] {
        let reply = app.client().get(path).await;
        assert_eq!(reply.headers["content-type"], "application/json");
        let document = reply.json();
        assert_eq!(document["resource"], format!("{}/mcp", app.client().base()));
        assert_eq!(
            document["authorization_servers"],
            json!(["https://issuer.wardgate.internal"])
        );
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
    }
}

#[tokio::test]
async fn a_token_ends_when_it_says_though_it_was_just_accepted() {
    let app = TestApp::start(WARDGATE);
    let token = app.token_for("1s", "dr.yenji", "Doctor", &[]);
    let call = || {
        app.client()
            .post("/message", Some(&token), &[], request_with(|_| {}))
    };
    assert_eq!(call().await.status, 200);
    // A token that expires between its verification by the gateway and that by the policy service is refused as
    // `token_refused` first.
    until("the token ended", async || {
        let reply = call().await;
        if reply.status == 200 {
            return None;
        }
        assert_eq!(reply.status, 401);
        let (reason, message) = refusal(&reply);
        let is_expired = reason == "token_expired" && message == "the token has expired";
        assert!(
            is_expired || reason == "token_refused",
            "{reason}: {message}"
        );
        is_expired.then_some(())
    })
    .await;
}
