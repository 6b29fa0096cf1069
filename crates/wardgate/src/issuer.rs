//! The local issuer of tokens: an Ed25519 key in the data directory, for laptops and tests. A deployment configures its own
//! issuers instead.

use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use wardgate_domain::{Ambient, CallId, Digest};
use wardgate_edge::{ApiKeyConfig, ApiKeyFile, AuthConfig, IssuerConfig, JwksSource};

use crate::Failure;
use crate::config::LocalIssuer;
use crate::data_dir::{self, DataDir};

/// Claim `iss` of the local issuer's tokens.
const ISSUER: &str = "https://issuer.wardgate.internal";
/// Claim `aud` of the local issuer's tokens.
const AUDIENCE: &str = "wardgate";

/// The subject, roles, claims and lifetime of a token to issue.
#[derive(Debug)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) subject: &'a str,
    pub(crate) roles: &'a [String],
    pub(crate) claims: &'a [(String, String)],
    pub(crate) ttl: Duration,
}

/// Creates the issuer's key and an empty file of API keys if they are missing, and writes the key set.
pub(crate) fn prepare(dir: &DataDir) -> Result<(), Failure> {
    if !dir.issuer_key().exists() {
        data_dir::new_ed25519(&dir.issuer_key())?;
    }
    let key = key(dir)?;
    let set = json!({ "keys": [{
        "kty": "OKP",
        "crv": "Ed25519",
        "alg": "EdDSA",
        "use": "sig",
        "kid": kid(&key),
        "x": URL_SAFE_NO_PAD.encode(key.public_key().as_ref()),
    }] });
    let set = set.to_string();
    // A gateway that runs may read it at any time, and half of it while it is written.
    if std::fs::read_to_string(dir.jwks()).ok().as_ref() != Some(&set) {
        std::fs::write(dir.jwks(), set)?;
    }
    if !dir.api_keys().exists() {
        let none = serde_json::to_vec_pretty(&ApiKeyFile::default())?;
        data_dir::write_new(&dir.api_keys(), &none)?;
    }
    Ok(())
}

/// Returns the authentication settings with which the gateway trusts the local issuer.
pub(crate) fn trust(dir: &DataDir, local: LocalIssuer) -> AuthConfig {
    let mut issuer = IssuerConfig::new(ISSUER, AUDIENCE, JwksSource::File(dir.jwks()));
    issuer.attributes = local.attributes;
    AuthConfig {
        issuers: vec![issuer],
        api_keys: Some(ApiKeyConfig {
            file: dir.api_keys(),
        }),
    }
}

/// Issues a signed token (RFC 9068).
pub(crate) fn token(
    dir: &DataDir,
    request: &TokenRequest<'_>,
    ambient: &Ambient,
) -> Result<String, Failure> {
    let key = key(dir)?;
    let now = ambient.now();
    let mut claims = json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": request.subject,
        "iat": now.as_seconds(),
        "nbf": now.as_seconds(),
        "exp": now.plus(request.ttl).as_seconds(),
        "jti": CallId::new(ambient).to_string(),
        "roles": request.roles,
    });
    for (name, value) in request.claims {
        if !claims[name].is_null() {
            return Err(
                format!("the claim `{name}` is set by the issuer; choose another name").into(),
            );
        }
        claims[name] = value.as_str().into();
    }
    let mut header = Header::new(Algorithm::EdDSA);
    header.typ = Some("at+jwt".to_owned());
    header.kid = Some(kid(&key));
    let signing = EncodingKey::from_ed_der(&data_dir::read_pkcs8(&dir.issuer_key())?);
    Ok(jsonwebtoken::encode(&header, &claims, &signing)?)
}

fn key(dir: &DataDir) -> Result<Ed25519KeyPair, Failure> {
    let path = dir.issuer_key();
    if !path.exists() {
        return Err(format!(
            "{} has no local issuer; start `wardgate up --data-dir {0}` once, or run `wardgate certs dev --data-dir {0}`",
            dir.path().display()
        )
        .into());
    }
    let der = data_dir::read_pkcs8(&path)?;
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
        .map_err(|_| format!("{} is not an Ed25519 key", path.display()).into())
}

/// Returns a key ID that changes with the key.
fn kid(key: &Ed25519KeyPair) -> String {
    Digest::compute(key.public_key().as_ref()).to_string()[..16].to_owned()
}
