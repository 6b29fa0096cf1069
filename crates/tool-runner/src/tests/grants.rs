//! Tests of people's grants against an authorization server that checks every request.

mod revoke;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request as Received;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use url::Url;
use wardgate_domain::Digest;
use wardgate_egress::{
    Auth, AuthError, AuthSettings, CodeSettings, ConnectError, EgressSettings, GrantCallback,
    GrantRequest, OnBehalf, OpenAuth, Person, PrivateAddresses, ServerSettings, UserGrants,
};
use wardgate_testkit::TestClock;

use super::harness::caller;
use super::stores;
use crate::store::ToolRunnerStore;

/// Start time of the tests, in seconds since 1970.
const START: i64 = 1_800_000_000;

const BACK: &str = "https://gateway.test/connect/callback";
const DOCUMENT: &str = "https://gateway.test/connect/client.json";

/// The request that a code was issued for.
#[derive(Clone)]
struct IssuedCode {
    challenge: String,
    client_id: String,
    resource: String,
}

/// The authorization server and the service that it protects, on one port.
struct Server {
    address: SocketAddr,
    codes: Mutex<HashMap<String, IssuedCode>>,
    /// The valid refresh tokens. Each can be used once.
    refresh: Mutex<Vec<String>>,
    refreshes: AtomicUsize,
    registered: AtomicUsize,
    /// The revocation requests that the server received.
    revoked: Mutex<Vec<BTreeMap<String, String>>>,
    asked_to_refresh: AtomicUsize,
    /// Members of the metadata that a test removes or sets.
    metadata: Mutex<Value>,
    /// The issuer whose tokens the service accepts, if the service has moved to another server.
    issuer: Mutex<Option<String>>,
    /// A lock that delays the answer to a refresh.
    slow: tokio::sync::RwLock<()>,
    /// Whether the server has forgotten the clients that it registered.
    has_forgotten: AtomicBool,
}

impl Server {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            codes: Mutex::default(),
            refresh: Mutex::default(),
            refreshes: AtomicUsize::new(0),
            registered: AtomicUsize::new(0),
            revoked: Mutex::default(),
            asked_to_refresh: AtomicUsize::new(0),
            metadata: Mutex::new(json!({})),
            issuer: Mutex::default(),
            slow: tokio::sync::RwLock::default(),
            has_forgotten: AtomicBool::new(false),
        });
        let serving = Arc::clone(&server);
        let router = Router::new().fallback(async move |request| serving.serve(request).await);
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn issuer(&self) -> String {
        let moved = self.issuer.lock().unwrap().clone();
        moved.unwrap_or_else(|| self.at(""))
    }

    async fn serve(&self, request: Received) -> (StatusCode, String) {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let answer = match head.uri.path() {
            "/.well-known/oauth-protected-resource/mcp" => Ok(json!({
                "resource": self.at("/mcp"), "authorization_servers": [self.issuer()], "scopes_supported": ["read"],
            })),
            path if path.starts_with("/.well-known/oauth-authorization-server") => {
                let mut metadata = json!({
                    "issuer": self.issuer(),
                    "authorization_endpoint": self.at("/authorize?tenant=1"),
                    "token_endpoint": self.at("/token"),
                    "registration_endpoint": self.at("/register"),
                    "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": true,
                });
                for (name, value) in self.metadata.lock().unwrap().as_object().unwrap() {
                    metadata[name] = value.clone();
                }
                Ok(metadata)
            }
            "/register" => Ok(self.register(&body)),
            "/revoke" => {
                self.revoked.lock().unwrap().push(form_urlencoded(&body));
                Ok(json!({}))
            }
            "/token" => {
                let form = form_urlencoded(&body);
                if form["grant_type"] == "refresh_token" {
                    self.asked_to_refresh.fetch_add(1, Ordering::SeqCst);
                    let _released = self.slow.read().await;
                    self.refresh(&form)
                } else {
                    self.redeem(&form)
                }
            }
            _ => Err((StatusCode::UNAUTHORIZED, "invalid_token")),
        };
        match answer {
            Ok(answer) => (StatusCode::OK, answer.to_string()),
            Err((status, code)) => (status, json!({ "error": code }).to_string()),
        }
    }

    fn register(&self, body: &[u8]) -> Value {
        let client: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(client["redirect_uris"], json!([BACK]));
        assert_eq!(client["application_type"], "web");
        assert_eq!(client["token_endpoint_auth_method"], "none");
        let number = self.registered.fetch_add(1, Ordering::SeqCst) + 1;
        json!({ "client_id": format!("client-{number}") })
    }

    fn redeem(&self, form: &BTreeMap<String, String>) -> Result<Value, (StatusCode, &'static str)> {
        assert_eq!(form["grant_type"], "authorization_code");
        assert_eq!(form["redirect_uri"], BACK);
        if self.has_forgotten.load(Ordering::SeqCst) {
            return Err((StatusCode::UNAUTHORIZED, "invalid_client"));
        }
        let granted = self.codes.lock().unwrap().remove(&form["code"]);
        let granted = granted.ok_or((StatusCode::BAD_REQUEST, "invalid_grant"))?;
        let digest = Digest::compute(form["code_verifier"].as_bytes());
        assert_eq!(URL_SAFE_NO_PAD.encode(digest.as_bytes()), granted.challenge);
        assert_eq!(form["client_id"], granted.client_id);
        assert_eq!(form["resource"], granted.resource);
        Ok(self.tokens())
    }

    fn refresh(
        &self,
        form: &BTreeMap<String, String>,
    ) -> Result<Value, (StatusCode, &'static str)> {
        self.refreshes.fetch_add(1, Ordering::SeqCst);
        assert_eq!(form["resource"], self.at("/mcp"));
        let mut good = self.refresh.lock().unwrap();
        let at = good
            .iter()
            .position(|token| *token == form["refresh_token"]);
        let at = at.ok_or((StatusCode::BAD_REQUEST, "invalid_grant"))?;
        good.remove(at);
        drop(good);
        Ok(self.tokens())
    }

    fn tokens(&self) -> Value {
        let mut good = self.refresh.lock().unwrap();
        let number = self.refreshes.load(Ordering::SeqCst);
        let token = format!("canary-refresh-{number}");
        good.push(token.clone());
        json!({ "access_token": format!("canary-access-{number}"), "token_type": "Bearer", "expires_in": 600, "refresh_token": token })
    }

    /// Simulates a person who agrees, and returns the code that their browser brings back.
    fn agree(&self, url: &Url) -> String {
        assert_eq!(url.path(), "/authorize");
        let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(query["tenant"], "1");
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["redirect_uri"], BACK);
        assert_eq!(query["state"], "state-1");
        let mut codes = self.codes.lock().unwrap();
        let code = format!("code-{}", codes.len());
        let granted = IssuedCode {
            challenge: query["code_challenge"].clone(),
            client_id: query["client_id"].clone(),
            resource: query["resource"].clone(),
        };
        codes.insert(code.clone(), granted);
        code
    }
}

/// A replica of the tool-runner, reduced to its grants.
struct Replica {
    server: Arc<Server>,
    clock: TestClock,
    grants: Arc<UserGrants>,
    limits: EgressSettings,
}

/// A store of the tool-runner, and an authorization server with a clock.
struct GrantWorld {
    directory: TempDir,
    server: Arc<Server>,
    clock: TestClock,
}

impl GrantWorld {
    async fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            server: Server::start().await,
            clock: TestClock::at(START),
        }
    }

    async fn replica(&self) -> Replica {
        self.replica_for("/mcp").await
    }

    async fn store(&self) -> ToolRunnerStore {
        let store = format!("sqlite:{}/store.db", self.directory.path().display());
        stores::open_prepared(&store, self.clock.ambient()).await
    }

    async fn replica_for(&self, path: &str) -> Replica {
        let (ambient, store) = (self.clock.ambient(), self.store().await);
        let service: Url = self.server.at(path).parse().unwrap();
        let settings = CodeSettings {
            server: ServerSettings {
                service: Some(service.clone()),
                ..ServerSettings::default()
            },
            authorization_url: None,
            client: None,
            scope: None,
            resource: None,
        };
        let limits = EgressSettings::for_url(
            &service,
            [],
            PrivateAddresses::Allowed,
            Duration::from_secs(20),
            1024,
        );
        Replica {
            server: Arc::clone(&self.server),
            clock: self.clock.clone(),
            limits: limits.clone(),
            grants: Arc::new(UserGrants::open(
                "crm",
                &service,
                &settings,
                &limits,
                Arc::new(store),
                &ambient,
            )),
        }
    }
}

impl Replica {
    fn auth(&self) -> Auth {
        let settings = AuthSettings::Open(OpenAuth::PerUser(Arc::clone(&self.grants)));
        Auth::open(&settings, &self.limits, &self.clock.ambient()).unwrap()
    }

    async fn connect(&self, who: &str) {
        let (url, pending) = self.begin(who).await.unwrap();
        let code = self.server.agree(&url);
        let issuer = self.server.at("");
        self.finish(who, pending, &code, Some(&issuer))
            .await
            .unwrap();
    }

    async fn begin(&self, who: &str) -> Result<(Url, Vec<u8>), ConnectError> {
        let person = person(who);
        let started = self.grants.start(GrantRequest {
            person: &person,
            redirect_uri: BACK,
            state: "state-1",
            client_metadata_url: Some(DOCUMENT),
            scope: Some("write read"),
        });
        let started = started.await?;
        Ok((started.authorization_url, started.pending))
    }

    async fn finish(
        &self,
        who: &str,
        pending: Vec<u8>,
        code: &str,
        issuer: Option<&str>,
    ) -> Result<(), ConnectError> {
        let back = GrantCallback {
            person: &person(who),
            pending,
            code,
            issuer,
        };
        self.grants.finish(back).await
    }

    async fn call(
        &self,
        who: &str,
        rejected: Option<&HeaderValue>,
    ) -> Result<HeaderValue, AuthError> {
        let caller = caller(who);
        let granted = self
            .grants
            .authorization(Some(OnBehalf::from_caller(&caller, None)), rejected);
        Ok(granted.await?.unwrap())
    }
}

async fn authorization_of_ann(grants: Arc<UserGrants>) -> Result<Option<HeaderValue>, AuthError> {
    let ann = caller("ann");
    grants
        .authorization(Some(OnBehalf::from_caller(&ann, None)), None)
        .await
}

fn form_urlencoded(body: &[u8]) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

/// Returns the person of [`caller`].
fn person(who: &str) -> Person {
    Person {
        tenant: String::new(),
        issuer: "https://issuer.example".to_owned(),
        subject: who.to_owned(),
    }
}

fn is_unconnected(outcome: &Result<HeaderValue, AuthError>) -> bool {
    matches!(outcome, Err(AuthError::NotConnected { .. }))
}

#[tokio::test]
async fn what_one_person_granted_serves_their_calls_on_every_replica_and_nobody_elses() {
    let world = GrantWorld::new().await;
    let (one, other) = (world.replica().await, world.replica().await);
    assert!(is_unconnected(&one.call("ann", None).await));
    one.connect("ann").await;
    assert_eq!(
        other.call("ann", None).await.unwrap(),
        "Bearer canary-access-0"
    );
    assert!(is_unconnected(&one.call("ben", None).await));
    // A service at another URL is another service, even if the source has the same name.
    let moved = world.replica_for("/other").await;
    assert!(is_unconnected(&moved.call("ann", None).await));
}

#[tokio::test]
async fn tokens_are_refreshed_once_however_many_calls_and_replicas_want_them() {
    let world = GrantWorld::new().await;
    let (one, other) = (world.replica().await, world.replica().await);
    one.connect("ann").await;
    one.clock.advance(Duration::from_secs(600));
    let blocked = world.server.slow.write().await;
    let calls: Vec<_> = (0..10)
        .map(|n| {
            let grants = Arc::clone(if n % 2 == 0 {
                &one.grants
            } else {
                &other.grants
            });
            tokio::spawn(authorization_of_ann(grants))
        })
        .collect();
    // A caller that disconnects does not affect the others.
    calls[0].abort();
    drop(blocked);
    for call in calls.into_iter().skip(1) {
        let granted = call.await.unwrap().unwrap().unwrap();
        assert_eq!(granted, "Bearer canary-access-1");
    }
    assert_eq!(world.server.refreshes.load(Ordering::SeqCst), 1);
    // A token that the service rejects is renewed with the newest refresh token.
    let rejected = one.call("ann", None).await.unwrap();
    let renewed = one.call("ann", Some(&rejected)).await.unwrap();
    assert_eq!(renewed, "Bearer canary-access-2");
}

#[tokio::test]
async fn a_grant_that_the_server_takes_no_longer_is_forgotten() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    one.connect("ben").await;
    one.clock.advance(Duration::from_secs(600));
    world.server.refresh.lock().unwrap().clear();
    assert!(is_unconnected(&one.call("ann", None).await));
    assert!(is_unconnected(&one.call("ann", None).await));
    assert_eq!(world.server.refreshes.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_is_described_by_our_document_or_else_registered_once() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    for _ in 0..2 {
        let (url, _) = one.begin("ann").await.unwrap();
        assert!(url.query().unwrap().contains("client_id=client-1"));
        assert!(url.query().unwrap().contains("scope=read+write"));
    }
    assert_eq!(world.server.registered.load(Ordering::SeqCst), 1);
    *world.server.metadata.lock().unwrap() =
        json!({ "client_id_metadata_document_supported": true });
    let (url, pending) = world.replica().await.begin("ann").await.unwrap();
    assert!(
        url.query_pairs()
            .any(|pair| pair == ("client_id".into(), DOCUMENT.into()))
    );
    let code = world.server.agree(&url);
    let issuer = world.server.at("");
    one.finish("ann", pending, &code, Some(&issuer))
        .await
        .unwrap();
    assert_eq!(world.server.registered.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_one_person_brings_back_takes_the_shared_client_from_nobody() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    let issuer = world.server.at("");
    for (has_forgotten, registered) in [(false, 1), (true, 2)] {
        world
            .server
            .has_forgotten
            .store(has_forgotten, Ordering::SeqCst);
        let (_, pending) = one.begin("ann").await.unwrap();
        let refused = one.finish("ann", pending, "made-up", Some(&issuer)).await;
        assert!(matches!(refused, Err(ConnectError::Auth(_))));
        one.begin("ben").await.unwrap();
        assert_eq!(world.server.registered.load(Ordering::SeqCst), registered);
    }
}

#[tokio::test]
async fn a_server_without_pkce_or_without_a_way_to_become_its_client_is_not_used() {
    for (metadata, expected) in [
        (
            json!({ "code_challenge_methods_supported": null }),
            "no metadata",
        ),
        (
            json!({ "code_challenge_methods_supported": ["plain"] }),
            "PKCE",
        ),
        (json!({ "registration_endpoint": null }), "client_id"),
    ] {
        let world = GrantWorld::new().await;
        *world.server.metadata.lock().unwrap() = metadata.clone();
        let Err(error) = world.replica().await.begin("ann").await else {
            panic!("{metadata}");
        };
        let text = error.to_string();
        assert!(
            text.contains(expected) || text.contains("cannot be read"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn who_comes_back_with_something_else_than_they_left_with_gets_nothing() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    let issuer = world.server.at("");
    let slash = world.server.at("/");
    for (said, who) in [
        (None, "ann"),
        (Some("https://evil.test"), "ann"),
        (Some(slash.as_str()), "ann"),
        (Some(issuer.as_str()), "ben"),
    ] {
        let (url, pending) = one.begin("ann").await.unwrap();
        let code = world.server.agree(&url);
        let refused = one.finish(who, pending, &code, said).await.unwrap_err();
        assert!(
            matches!(refused, ConnectError::OtherIssuer | ConnectError::Lapsed),
            "{said:?} {who}: {refused}"
        );
        // The code was not sent to any server.
        assert!(world.server.codes.lock().unwrap().contains_key(&code));
    }
    let (url, pending) = one.begin("ann").await.unwrap();
    let code = world.server.agree(&url);
    one.clock.advance(Duration::from_secs(600));
    let late = one.finish("ann", pending, &code, Some(&issuer)).await;
    assert!(matches!(late, Err(ConnectError::Lapsed)));
    assert!(is_unconnected(&one.call("ann", None).await));
}

#[tokio::test]
async fn the_store_holds_no_token_that_can_be_read() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    one.clock.advance(Duration::from_secs(600));
    one.call("ann", None).await.unwrap();
    for file in std::fs::read_dir(world.directory.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
    }
    assert!(!format!("{:?}", one.grants).contains("canary"));
}

#[tokio::test]
async fn what_a_service_needs_besides_the_person_is_asked_for_beside_what_they_granted() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    let auth = one.auth();
    let mut headers = HeaderMap::new();
    let more = "Bearer error=insufficient_scope, scope=admin";
    headers.insert(http::header::WWW_AUTHENTICATE, more.parse().unwrap());
    let wanted = auth
        .may_do(
            Some(OnBehalf::from_caller(&caller("ann"), None)),
            StatusCode::FORBIDDEN,
            &headers,
        )
        .await
        .unwrap_err();
    let AuthError::NotConnected { scope } = wanted else {
        panic!("{wanted}");
    };
    assert_eq!(scope.as_deref(), Some("admin"));
    let described = one.grants.describe(&person("ann"), scope.as_deref()).await;
    let described = described.unwrap();
    assert_eq!(described.scope.as_deref(), Some("read admin write"));
    assert_eq!(described.server, "127.0.0.1");
}

#[tokio::test]
async fn nobody_is_asked_again_for_what_they_granted_already() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    let auth = one.auth();
    let mut headers = HeaderMap::new();
    let more = "Bearer error=insufficient_scope, scope=\"write read\"";
    headers.insert(http::header::WWW_AUTHENTICATE, more.parse().unwrap());
    let ann = caller("ann");
    let of_ann = Some(OnBehalf::from_caller(&ann, None));
    let again = auth.may_do(of_ann, StatusCode::FORBIDDEN, &headers);
    assert!(!again.await.unwrap());
}

#[tokio::test]
async fn a_service_that_trusts_another_server_now_gets_no_token_of_the_one_before() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.connect("ann").await;
    let rejected = one.call("ann", None).await.unwrap();
    let moved = world.server.at("/moved");
    world
        .server
        .issuer
        .lock()
        .unwrap()
        .clone_from(&Some(moved.clone()));
    assert!(is_unconnected(&one.call("ann", Some(&rejected)).await));
    assert_eq!(world.server.refreshes.load(Ordering::SeqCst), 0);
    let (url, _) = one.begin("ann").await.unwrap();
    let client = url.query_pairs().find(|(name, _)| name == "client_id");
    // The tool-runner is registered as a separate client at the new server.
    assert_eq!(client.unwrap().1, "client-2");
}

#[tokio::test]
async fn another_replica_hears_within_a_minute_that_the_service_trusts_another_server() {
    let world = GrantWorld::new().await;
    let one = world.replica().await;
    one.begin("ann").await.unwrap();
    *world.server.issuer.lock().unwrap() = Some(world.server.at("/moved"));
    one.begin("ann").await.unwrap();
    assert_eq!(world.server.registered.load(Ordering::SeqCst), 1);
    one.clock.advance(Duration::from_secs(60));
    one.begin("ann").await.unwrap();
    assert_eq!(world.server.registered.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refresh_token_is_asked_for_by_the_scope_that_the_server_has_for_it() {
    let world = GrantWorld::new().await;
    *world.server.metadata.lock().unwrap() =
        json!({ "scopes_supported": ["read", "offline_access"] });
    let (url, _) = world.replica().await.begin("ann").await.unwrap();
    let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(query["scope"], "read offline_access write");
    assert_eq!(query["prompt"], "consent");
}
