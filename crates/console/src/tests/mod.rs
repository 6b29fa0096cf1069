//! A console with a gateway, a policy and a record that do as they are told, and a browser of few words.

mod fakes;
mod pages;
mod record;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use wardgate_edge::{Admission, Authenticator, EdgeClient, Origins};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::TestClock;

use crate::{Console, CookieKey, HttpLimits, Links, ResultStore};
pub(crate) use fakes::{FakeGateway, FakeRecord};

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// The console under test, with an issuer of tokens for it.
pub(crate) struct TestConsole {
    pub(crate) router: Router,
    pub(crate) gateway: FakeGateway,
    pub(crate) record: FakeRecord,
    clock: TestClock,
    pair: Ed25519KeyPair,
    _keys: tempfile::TempDir,
}

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The value of a hidden field.
    pub(crate) fn field(&self, name: &str) -> String {
        let before = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&before).unwrap_or_default();
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    /// The cookie that it sets, as the browser sends it back.
    pub(crate) fn cookie(&self) -> String {
        let set = self.header("set-cookie");
        set.split(';').next().unwrap_or_default().to_owned()
    }
}

impl TestConsole {
    pub(crate) async fn new() -> Self {
        Self::with(None, [7; 32]).await
    }

    pub(crate) async fn with(public_url: Option<&str>, key: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let keys = tempfile::tempdir().unwrap();
        let file = keys.path().join("jwks.json");
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let jwks = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x }] });
        std::fs::write(&file, jwks.to_string()).unwrap();
        let issuer = |issuer: &str, tenant: Option<&str>| {
            json!({
                "issuer": issuer, "audience": "wardgate", "jwks": { "file": file },
                "leeway_seconds": 0, "tenant_claim": tenant, "roles": ["Nurse"],
            })
        };
        let auth = json!({ "issuers": [
            issuer("https://issuer.example", None),
            issuer("https://tenants.example", Some("tenant")),
        ] });
        let clock = TestClock::at(NOW);
        let ambient = clock.ambient();
        let auth = serde_json::from_value(auth).unwrap();
        let auth = Authenticator::new(auth, None, ambient.clone())
            .await
            .unwrap();
        let (gateway, record) = (FakeGateway::default(), FakeRecord::default());
        let links = Links {
            gateway: EdgeClient::router(gateway.router()),
            agent: Some(EdgeClient::router(gateway.agent())),
            record: Some(record.links()),
        };
        let admission = Admission {
            origins: Origins::new("console", public_url, Vec::new(), Vec::new()).unwrap(),
            auth: Arc::new(auth),
            body: HttpLimits::default().body(),
        };
        let key = CookieKey::from_bytes(&key);
        let store = format!("sqlite:{}", keys.path().join("console.sqlite").display());
        let database = DatabaseSettings::default();
        let results = ResultStore::open(&store, &database, &key, ambient.clone());
        let results = results.await.unwrap();
        let console = Console::new(links, admission, key, results, public_url, ambient);
        Self {
            router: console.router(),
            gateway,
            record,
            clock,
            pair,
            _keys: keys,
        }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// A token of an hour.
    pub(crate) fn token(&self, subject: &str, more: &Value) -> String {
        let mut claims = json!({
            "iss": "https://issuer.example", "aud": "wardgate", "sub": subject, "iat": NOW, "exp": NOW + 3_600,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(&json!({ "alg": "EdDSA", "kid": "1", "typ": "JWT" }));
        let message = format!("{head}.{}", part(&claims));
        let signature = self.pair.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// Signs somebody in, and gives their cookie.
    pub(crate) async fn sign_in(&self, subject: &str) -> String {
        let token = self.token(subject, &json!({ "roles": ["Nurse"] }));
        let reply = self
            .post("/console/sign-in", "", &format!("token={token}"))
            .await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.body);
        reply.cookie()
    }

    pub(crate) async fn get(&self, path: &str, cookie: &str) -> Reply {
        let request = Request::get(path).header(header::COOKIE, cookie);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Fills in the form of `path`, sends it, and goes where that leads.
    pub(crate) async fn call(&self, path: &str, cookie: &str, fields: &str) -> Reply {
        let sent = self.submit(path, cookie, fields).await;
        assert_eq!(sent.status, StatusCode::SEE_OTHER, "{}", sent.body);
        let page = sent.header("location").split('#').next().unwrap();
        self.get(page, cookie).await
    }

    /// Fills in the form of `path` and sends it.
    pub(crate) async fn submit(&self, path: &str, cookie: &str, fields: &str) -> Reply {
        let form = self.get(path, cookie).await;
        let (key, person) = (form.field("key"), form.field("person"));
        let form = format!("key={key}&person={person}&{fields}");
        self.post(path, cookie, &form).await
    }

    /// A form of our own page.
    pub(crate) async fn post(&self, path: &str, cookie: &str, form: &str) -> Reply {
        let from = [
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://localhost:8082"),
        ];
        self.post_from(path, cookie, form, &from).await
    }

    pub(crate) async fn post_from(
        &self,
        path: &str,
        cookie: &str,
        form: &str,
        from: &[(&str, &str)],
    ) -> Reply {
        let mut request = Request::builder().method(Method::POST).uri(path);
        for (name, value) in from {
            request = request.header(*name, *value);
        }
        let request = request
            .header(header::COOKIE, cookie)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(form.to_owned())).unwrap())
            .await
    }

    pub(crate) async fn send(&self, mut request: Request<Body>) -> Reply {
        let host = request.headers_mut().entry(header::HOST);
        host.or_insert("localhost:8082".parse().unwrap());
        let peer: SocketAddr = "192.0.2.7:1234".parse().unwrap();
        request.extensions_mut().insert(peer);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status,
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }
}
