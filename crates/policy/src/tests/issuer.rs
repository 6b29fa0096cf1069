//! An issuer whose tokens the service under test accepts; of the public crates alone, so that every kind of test can use
//! it.

use std::path::PathBuf;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_domain::{AttributeValue, Caller, Timestamp};
use wardgate_edge::{AuthConfig, IssuerConfig, JwksSource};

/// A key and its published key set.
pub(crate) struct Issuer {
    key: Ed25519KeyPair,
    dir: TempDir,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let key = Ed25519KeyPair::generate().unwrap();
        let x = encode(key.public_key().as_ref());
        let dir = tempfile::tempdir().unwrap();
        let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x }] });
        std::fs::write(dir.path().join("jwks.json"), set.to_string()).unwrap();
        Self { key, dir }
    }

    fn key_set(&self) -> PathBuf {
        self.dir.path().join("jwks.json")
    }

    /// Trusts it, with the attributes that callers of tests have.
    pub(crate) fn trusted(&self) -> AuthConfig {
        let keys = JwksSource::File(self.key_set());
        let mut issuer = IssuerConfig::new("https://issuer.example", "wardgate", keys);
        issuer.leeway_seconds = 0;
        for name in ["ward", "patient_id"] {
            issuer.attributes.insert(name.to_owned(), name.to_owned());
        }
        AuthConfig {
            issuers: vec![issuer],
        }
    }

    /// A token that says what is known of `caller`, good until `ends`.
    pub(crate) fn token(&self, caller: &Caller, ends: Timestamp) -> String {
        let mut claims = json!({
            "iss": caller.issuer(),
            "aud": "wardgate",
            "sub": caller.subject(),
            "roles": caller.roles(),
            "jti": caller.token_id(),
            "exp": ends.as_seconds(),
        });
        for (name, value) in caller.attributes() {
            claims[name] = match value {
                AttributeValue::Text(text) => json!(text),
                AttributeValue::Integer(number) => json!(number),
                AttributeValue::Boolean(truth) => json!(truth),
                AttributeValue::List(items) => json!(items),
            };
        }
        let header = json!({ "alg": "EdDSA", "kid": "k" });
        let part = |value: &Value| encode(value.to_string().as_bytes());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = encode(self.key.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
