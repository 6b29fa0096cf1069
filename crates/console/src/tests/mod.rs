//! A console with a fake gateway, policy and record, and a minimal browser.

mod fakes;
mod pages;
mod provider;
mod record;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use wardgate_domain::OperatorAction;
use wardgate_edge::{Admission, Authenticator, EdgeClient, Origins};
use wardgate_rpc::Peer;
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{FakeAudit, FakePolicy, TestClock, TestIssuer};

use crate::{Console, ConsoleStore, CookieKey, HttpLimits, Links, ProviderSignIn, RecordLinks};
pub(crate) use fakes::FakeGateway;
use provider::FakeProvider;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// The console under test, with an issuer of tokens for it.
pub(crate) struct TestConsole {
    pub(crate) router: Router,
    pub(crate) gateway: FakeGateway,
    pub(crate) policy: Arc<FakePolicy>,
    pub(crate) audit: Arc<FakeAudit>,
    clock: TestClock,
    issuer: TestIssuer,
    _files: tempfile::TempDir,
}

/// A response, as received by the browser.
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

    /// Returns the value of a hidden field.
    pub(crate) fn field(&self, name: &str) -> String {
        let before = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&before).unwrap_or_default();
        rest.split('"').next().unwrap_or_default().to_owned()
    }

    /// Returns the cookie that the response sets, as a browser sends it back.
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
        Self::build(public_url, key, TestClock::at(NOW), None).await
    }

    async fn build(
        public_url: Option<&str>,
        key: [u8; 32],
        clock: TestClock,
        provider: Option<&FakeProvider>,
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let issuer = TestIssuer::new("https://issuer.example");
        let trusted = |url: &str, tenant: Option<&str>| {
            json!({
                "issuer": url, "audience": "wardgate", "jwks": { "file": issuer.key_set() },
                "leeway_seconds": 0, "tenant_claim": tenant, "roles": ["Nurse"], "subject_prefix": "",
            })
        };
        let mut auth = json!({ "issuers": [
            trusted("https://issuer.example", None),
            trusted("https://tenants.example", Some("tenant")),
        ] });
        if let Some(provider) = provider {
            let mut issuer = trusted(&provider.url(), None);
            issuer["jwks"]["file"] = json!(provider.issuer.key_set());
            auth["issuers"].as_array_mut().unwrap().push(issuer);
        }
        let ambient = clock.ambient();
        let auth = serde_json::from_value(auth).unwrap();
        let auth = Authenticator::new(auth, None, ambient.clone())
            .await
            .unwrap();
        let gateway = FakeGateway::default();
        let policy = FakePolicy::new(ambient.clone());
        let audit = FakeAudit::new(Peer::Console);
        let links = Links {
            gateway: EdgeClient::router(gateway.router()),
            agent: Some(EdgeClient::router(gateway.agent())),
            record: Some(RecordLinks {
                policy: policy.client(Peer::Console),
                audit: audit.client(),
            }),
        };
        let admission = Admission {
            origins: Origins::new("console", public_url, Vec::new(), Vec::new()).unwrap(),
            auth: Arc::new(auth),
            body: HttpLimits::default().body(),
        };
        let key = CookieKey::from_bytes(&key);
        let store = format!("sqlite:{}", files.path().join("console.sqlite").display());
        let database = DatabaseSettings::default();
        let store = ConsoleStore::open(&store, &database, &key, ambient.clone());
        let store = store.await.unwrap();
        let sign_in = match provider {
            Some(provider) => {
                let config = provider.config();
                Some(
                    ProviderSignIn::open(&config, public_url, &ambient)
                        .await
                        .unwrap(),
                )
            }
            None => None,
        };
        let console = Console::new(links, admission, store, sign_in, public_url, ambient);
        Self {
            router: console.router(),
            gateway,
            policy,
            audit,
            clock,
            issuer,
            _files: files,
        }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Issues a token that is valid for one hour.
    pub(crate) fn token(&self, subject: &str, more: &Value) -> String {
        let mut claims = json!({ "sub": subject, "iat": NOW, "exp": NOW + 3_600 });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        self.issuer.token(&claims)
    }

    /// Lets `subject` read the whole record.
    pub(crate) fn lets_read_all(&self, subject: &str) {
        self.policy
            .lets_operate(OperatorAction::ReadRecord, subject);
    }

    /// Lets `subject` read their own part of the record.
    pub(crate) fn lets_read_own(&self, subject: &str) {
        self.policy
            .lets_operate(OperatorAction::ReadOwnRecord, subject);
    }

    /// Signs a person in and returns the session cookie.
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

    /// Submits the form of `path` and follows the redirect.
    pub(crate) async fn call(&self, path: &str, cookie: &str, fields: &str) -> Reply {
        let sent = self.submit(path, cookie, fields).await;
        assert_eq!(sent.status, StatusCode::SEE_OTHER, "{}", sent.body);
        let page = sent.header("location").split('#').next().unwrap();
        self.get(page, cookie).await
    }

    /// Submits the form of `path`.
    pub(crate) async fn submit(&self, path: &str, cookie: &str, fields: &str) -> Reply {
        let form = self.get(path, cookie).await;
        let (key, person) = (form.field("key"), form.field("person"));
        let form = format!("key={key}&person={person}&{fields}");
        self.post(path, cookie, &form).await
    }

    /// Posts a form as a page of the console would.
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
