//! Keys that sign, and a small server of key sets.

use std::sync::{Arc, Mutex, OnceLock};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::sync::watch;

/// 2027-01-15T08:00:00Z.
pub(super) const NOW: i64 = 1_800_000_000;

/// A key pair of an issuer. Signs by aws-lc itself, not by the library that verifies.
pub(super) enum TestKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(&'static RsaKeyPair, &'static dyn RsaEncoding),
}

impl TestKey {
    pub(super) fn ed25519() -> Self {
        Self::Ed25519(Ed25519KeyPair::generate().unwrap())
    }

    pub(super) fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// Always the same key: making one takes long.
    pub(super) fn rsa() -> Self {
        Self::Rsa(Self::the_rsa_key(), &RSA_PKCS1_SHA256)
    }

    pub(super) fn rsa_pss() -> Self {
        Self::Rsa(Self::the_rsa_key(), &RSA_PSS_SHA256)
    }

    fn the_rsa_key() -> &'static RsaKeyPair {
        static KEY: OnceLock<RsaKeyPair> = OnceLock::new();
        KEY.get_or_init(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// The public key, as X.509 writes it: what an attacker would take for an HMAC secret.
    pub(super) fn public_der(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::P256(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Rsa(pair, _) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
        }
    }

    pub(super) fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": encode(pair.public_key().as_ref()) })
            }
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encode(&point[1..33]), "y": encode(&point[33..]) })
            }
            Self::Rsa(pair, _) => {
                let n = pair
                    .public_key()
                    .modulus()
                    .big_endian_without_leading_zero();
                let e = pair
                    .public_key()
                    .exponent()
                    .big_endian_without_leading_zero();
                json!({ "kty": "RSA", "kid": id, "n": encode(n), "e": encode(e) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }

    /// A token of just this header and payload, which need not be good ones.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the tables read better without ampersands"
    )]
    pub(super) fn token(&self, header: impl ToString, payload: impl ToString) -> String {
        let message = message(&header, &payload);
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", encode(&signature))
    }
}

/// The two parts that are signed.
pub(super) fn message(header: &impl ToString, payload: &impl ToString) -> String {
    format!(
        "{}.{}",
        encode(header.to_string().as_bytes()),
        encode(payload.to_string().as_bytes())
    )
}

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The text of a key set.
pub(super) fn key_set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// An HTTP server on loopback that answers every request as it was told.
pub(super) struct KeyServer {
    pub(super) url: String,
    told: Arc<KeyServerState>,
}

/// The answer of a key server, and the requests it received.
struct KeyServerState {
    answer: Mutex<(StatusCode, String)>,
    requests: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl KeyServer {
    pub(super) async fn start(status: StatusCode, body: impl Into<String>) -> Self {
        let told = Arc::new(KeyServerState {
            answer: Mutex::new((status, body.into())),
            requests: watch::Sender::new(0),
            open: watch::Sender::new(true),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let router = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&told));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, told }
    }

    pub(super) fn answer_with(&self, status: StatusCode, body: impl Into<String>) {
        *self.told.answer.lock().unwrap() = (status, body.into());
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> usize {
        *self.told.requests.borrow()
    }

    /// Waits until there were so many requests.
    pub(super) async fn requests_reach(&self, count: usize) {
        self.told
            .requests
            .subscribe()
            .wait_for(|requests| *requests >= count)
            .await
            .unwrap();
    }

    /// Lets requests wait for [`KeyServer::release`].
    pub(super) fn hold(&self) {
        self.told.open.send_replace(false);
    }

    pub(super) fn release(&self) {
        self.told.open.send_replace(true);
    }
}

async fn answer(State(told): State<Arc<KeyServerState>>) -> Response<Body> {
    told.requests.send_modify(|requests| *requests += 1);
    told.open.subscribe().wait_for(|open| *open).await.unwrap();
    let (status, body) = told.answer.lock().unwrap().clone();
    Response::builder()
        .status(status)
        .header("location", "/elsewhere")
        .body(Body::from(body))
        .unwrap()
}
