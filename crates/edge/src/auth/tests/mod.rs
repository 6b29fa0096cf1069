//! Tests of authentication by topic, with a token issuer for tests.

mod api_keys;
mod cache;
mod discovery;
mod introspection;
mod keys;
mod lookup;
mod refused;
mod resources;
mod revocation;
mod rotation;
mod tokens;

use std::path::Path;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};
use serde_json::{Value, json};
use wardgate_domain::AttributeValue;
use wardgate_testkit::{TestClock, TestKey, base64url, key_set, token_message};

use super::testing::{KeyServer, NOW};
use super::*;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "wardgate";

fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "dr.yenji",
        "iat": NOW - 60,
        "nbf": NOW - 60,
        "exp": NOW + 600,
        "jti": "t-1",
        "roles": ["Doctor"],
    })
}

fn claims_with(name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[name] = value.into();
    claims
}

fn claims_without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn header(algorithm: &str, key: &str) -> Value {
    json!({ "alg": algorithm, "typ": "JWT", "kid": key })
}

fn header_with(name: &str, value: impl Into<Value>) -> Value {
    let mut header = header("EdDSA", "ed");
    header[name] = value.into();
    header
}

/// An issuer with a key of each type, in a file.
struct Issuer {
    ed: TestKey,
    ec: TestKey,
    rsa: TestKey,
    clock: TestClock,
    authenticator: Authenticator,
    _keys: tempfile::NamedTempFile,
}

impl Issuer {
    async fn new() -> Self {
        Self::with_rules(|_| ()).await
    }

    async fn with_rules(change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let (ed, ec, rsa) = (TestKey::ed25519(), TestKey::p256(), TestKey::rsa());
        let mut pss = rsa.jwk("pss");
        pss["alg"] = "PS256".into();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            &file,
            key_set(&[ed.jwk("ed"), ec.jwk("ec"), rsa.jwk("rsa"), pss]),
        )
        .unwrap();
        let mut config = file_issuer(file.path());
        change(&mut config);
        let clock = TestClock::at(NOW);
        let authenticator = authenticator(config, &clock).await.unwrap();
        Self {
            ed,
            ec,
            rsa,
            clock,
            authenticator,
            _keys: file,
        }
    }

    fn token(&self, claims: impl ToString) -> String {
        self.ed.token(header("EdDSA", "ed"), claims)
    }

    async fn caller_of(&self, claims: impl ToString) -> Result<Arc<Caller>, TokenRefusal> {
        self.authenticator.caller(&self.token(claims)).await
    }

    async fn reason(&self, token: &str) -> &'static str {
        self.authenticator
            .caller(token)
            .await
            .map_or_else(|refusal| refusal.reason().as_str(), |_| "accepted")
    }
}

impl Authenticator {
    /// Returns the caller of a token for the whole gateway.
    async fn caller(&self, token: &str) -> Result<Arc<Caller>, TokenRefusal> {
        self.verify(token, &[])
            .await
            .map(|verified| verified.caller)
    }
}

fn file_issuer(path: &Path) -> IssuerConfig {
    IssuerConfig::new(ISSUER, AUDIENCE, JwksSource::File(path.to_owned()))
}

fn url_issuer(server: &KeyServer) -> IssuerConfig {
    IssuerConfig::new(ISSUER, AUDIENCE, JwksSource::Url(server.url.clone()))
}

async fn authenticator(config: IssuerConfig, clock: &TestClock) -> Result<Authenticator, Error> {
    Authenticator::new(AuthConfig::of_issuers(vec![config]), None, clock.ambient()).await
}

/// Starts a server of a key set, and creates an authenticator that uses its keys.
async fn start_key_server(keys: &[Value]) -> (KeyServer, Arc<Authenticator>) {
    let server = KeyServer::start(StatusCode::OK, key_set(keys)).await;
    let authenticator = authenticator(url_issuer(&server), &TestClock::at(NOW)).await;
    (server, Arc::new(authenticator.unwrap()))
}

/// Returns a valid token that is signed by `key`.
fn good(key: &TestKey, id: &str) -> String {
    key.token(header("EdDSA", id), claims())
}
