//! Fakes of two authorization servers and a service on one port, which check everything they receive: the issuer of the
//! callers, and the server that the service trusts.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wardgate_domain::Ambient;
use wardgate_testkit::TestKey;

/// The names of the gateway at the issuer, as a resource and as a client.
pub(super) const AUDIENCE: &str = "gateway";
pub(super) const CLIENT: &str = "gateway-pages";

/// What a code was issued for.
struct Grant {
    person: String,
    challenge: String,
    redirect_uri: String,
    client_id: String,
    nonce: Option<String>,
    resource: Option<String>,
}

/// The fakes, and the person who uses the browser.
pub(super) struct AuthorizationFakes {
    address: SocketAddr,
    key: TestKey,
    /// The person who logs in next, whoever is asked.
    pub(super) login: Mutex<String>,
    grants: Mutex<HashMap<String, Grant>>,
    /// The access tokens of the service's authorization server, each with its person.
    pub(super) tokens: Mutex<HashMap<String, String>>,
    /// The tokens with which the service was called.
    pub(super) seen: Mutex<Vec<String>>,
}

type Answer = (u16, Vec<(&'static str, String)>, Value);

impl AuthorizationFakes {
    pub(super) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fakes = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            key: TestKey::p256(),
            login: Mutex::default(),
            grants: Mutex::default(),
            tokens: Mutex::default(),
            seen: Mutex::default(),
        });
        let serving = Arc::clone(&fakes);
        let router = Router::new().fallback(async move |request| serving.serve(request).await);
        tokio::spawn(async move { axum::serve(listener, router).await });
        fakes
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns a token with which `person` calls the gateway.
    pub(super) fn token(&self, person: &str) -> String {
        self.sign_claims(json!({ "sub": person, "aud": AUDIENCE, "roles": ["Doctor"] }))
    }

    fn sign_claims(&self, mut claims: Value) -> String {
        let now = Ambient::system().now();
        claims["iss"] = self.at("").into();
        claims["exp"] = (now.as_seconds() + 600).into();
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "1" });
        self.key.token(header, claims)
    }

    async fn serve(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let url = Url::parse(&self.at(&head.uri.to_string())).unwrap();
        let form = || {
            pairs(&Url::parse(&format!("http://x/?{}", String::from_utf8_lossy(&body))).unwrap())
        };
        let bearer = head.headers.get("authorization");
        let bearer = bearer.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let (status, headers, body) = match url.path() {
            "/jwks" => self.keys(),
            "/.well-known/openid-configuration" => self.server("", &["authorize", "token"]),
            "/.well-known/oauth-authorization-server/own" => {
                self.server("/own", &["own/authorize", "own/token", "own/register"])
            }
            "/.well-known/oauth-protected-resource/mcp" => ok(json!({
                "resource": self.at("/mcp"),
                "authorization_servers": [self.at("/own")],
                "scopes_supported": ["notes"],
            })),
            "/authorize" | "/own/authorize" => self.authorize(&url),
            "/own/register" => register(&body),
            "/token" => self.sign_in(&form()),
            "/own/token" => self.grant(&form()),
            "/mcp" => self.answer(bearer, &body),
            _ => (404, Vec::new(), Value::Null),
        };
        let response = Response::builder()
            .status(status)
            .header("content-type", "application/json");
        let response = headers
            .into_iter()
            .fold(response, |response, (name, value)| {
                response.header(name, value)
            });
        response.body(body.to_string().into()).unwrap()
    }

    fn keys(&self) -> Answer {
        let mut key = self.key.jwk("1");
        key["alg"] = "ES256".into();
        key["use"] = "sig".into();
        ok(json!({ "keys": [key] }))
    }

    fn server(&self, issuer: &str, endpoints: &[&str]) -> Answer {
        let endpoint = |at: usize| endpoints.get(at).map(|path| self.at(&format!("/{path}")));
        ok(json!({
            "issuer": self.at(issuer),
            "authorization_endpoint": endpoint(0),
            "token_endpoint": endpoint(1),
            "registration_endpoint": endpoint(2),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        }))
    }

    /// Handles an authorization request. The person agrees to everything.
    fn authorize(&self, url: &Url) -> Answer {
        let query = pairs(url);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["code_challenge_method"], "S256");
        let is_own = url.path() == "/own/authorize";
        if is_own {
            assert_eq!(query["client_id"], "registered");
            assert_eq!(query["scope"], "notes");
        } else {
            assert_eq!(query["client_id"], CLIENT);
            assert_eq!(query["scope"], "openid");
        }
        let mut grants = self.grants.lock().unwrap();
        let code = format!("code-{}", grants.len());
        let grant = Grant {
            person: self.login.lock().unwrap().clone(),
            challenge: query["code_challenge"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
            client_id: query["client_id"].clone(),
            nonce: query.get("nonce").cloned(),
            resource: query.get("resource").cloned(),
        };
        let mut back = Url::parse(&grant.redirect_uri).unwrap();
        grants.insert(code.clone(), grant);
        let issuer = self.at(if is_own { "/own" } else { "" });
        back.query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", &query["state"])
            .append_pair("iss", &issuer);
        (303, vec![("location", back.into())], Value::Null)
    }

    fn redeem(&self, form: &BTreeMap<String, String>) -> Option<Grant> {
        assert_eq!(form["grant_type"], "authorization_code");
        let grant = self.grants.lock().unwrap().remove(&form["code"])?;
        let verifier = digest(&SHA256, form["code_verifier"].as_bytes());
        assert_eq!(URL_SAFE_NO_PAD.encode(verifier.as_ref()), grant.challenge);
        assert_eq!(form["redirect_uri"], grant.redirect_uri);
        assert_eq!(form["client_id"], grant.client_id);
        Some(grant)
    }

    fn sign_in(&self, form: &BTreeMap<String, String>) -> Answer {
        let Some(grant) = self.redeem(form) else {
            return (400, Vec::new(), json!({ "error": "invalid_grant" }));
        };
        let claims = json!({ "sub": grant.person, "aud": CLIENT, "nonce": grant.nonce });
        ok(
            json!({ "id_token": self.sign_claims(claims), "access_token": "x", "token_type": "Bearer" }),
        )
    }

    fn grant(&self, form: &BTreeMap<String, String>) -> Answer {
        let Some(grant) = self.redeem(form) else {
            return (400, Vec::new(), json!({ "error": "invalid_grant" }));
        };
        assert_eq!(grant.resource, Some(self.at("/mcp")));
        assert_eq!(form["resource"], self.at("/mcp"));
        let mut tokens = self.tokens.lock().unwrap();
        let token = format!("canary-access-{}", tokens.len());
        tokens.insert(token.clone(), grant.person);
        ok(
            json!({ "access_token": token, "token_type": "Bearer", "expires_in": 600, "refresh_token": "canary-refresh" }),
        )
    }

    /// Handles a request to a server of 2026-07-28, whose only tool returns the person of the token with which it was called.
    fn answer(&self, bearer: Option<&str>, body: &[u8]) -> Answer {
        let tokens = self.tokens.lock().unwrap();
        let person = bearer.and_then(|bearer| tokens.get(bearer));
        if let Some(bearer) = bearer {
            self.seen.lock().unwrap().push(bearer.to_owned());
        }
        let Some(person) = person else {
            let metadata = self.at("/.well-known/oauth-protected-resource/mcp");
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            return (401, vec![("www-authenticate", challenge)], Value::Null);
        };
        let message: Value = serde_json::from_slice(body).unwrap();
        let result = match message["method"].as_str().unwrap() {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{ "name": "whoami", "inputSchema": { "type": "object" } }],
            }),
            _ => json!({
                "resultType": "complete",
                "content": [{ "type": "text", "text": format!("you are {person}") }],
            }),
        };
        ok(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    }
}

fn ok(body: Value) -> Answer {
    (200, Vec::new(), body)
}

fn register(body: &[u8]) -> Answer {
    let client: Value = serde_json::from_slice(body).unwrap();
    let back = client["redirect_uris"][0].as_str().unwrap();
    assert!(back.ends_with("/connect/callback"), "{client}");
    assert_eq!(client["application_type"], "web");
    (201, Vec::new(), json!({ "client_id": "registered" }))
}

fn pairs(url: &Url) -> BTreeMap<String, String> {
    url.query_pairs().into_owned().collect()
}
