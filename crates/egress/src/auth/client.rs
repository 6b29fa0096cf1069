//! A client of an authorization server: where that is, what the client is called, how it shows who it is.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use url::Url;
use wardgate_domain::Ambient;

use super::{AuthError, Secret};

/// How long an assertion is good for, in seconds: it is used at once.
const ASSERTION_LIFETIME: i64 = 60;

/// A client of an OAuth authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthClient {
    /// Where tokens are asked for.
    pub server: ServerSettings,
    /// By which the server knows us.
    pub client_id: String,
    /// That it is us.
    pub proof: ClientProof,
    /// Asked for with every token, separated by spaces.
    pub scope: Option<String>,
    /// Asked for with every token (RFC 8693 §2.1).
    pub audience: Option<String>,
    /// RFC 8707; none: the service's own name, where that was asked for.
    pub resource: Option<String>,
}

/// Where an authorization server is. What is configured is never asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSettings {
    /// Without it the metadata of the issuer says where that is (RFC 8414).
    pub token_url: Option<Url>,
    /// Its name, to the letter. Without it the service says who it is (RFC 9728).
    pub issuer: Option<String>,
    /// The service that the tokens are for.
    pub service: Option<Url>,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientProof {
    /// `client_secret_basic`, or `client_secret_post` where the server's metadata has only that.
    Secret(Secret),
    /// `private_key_jwt` (RFC 7523 §2.2): a short assertion, signed anew for each request.
    Key {
        /// What signs it.
        key: ClientKey,
        /// What `aud` says; none: the issuer where it is known, else the URL of the token endpoint.
        audience: Option<String>,
    },
    /// A public client has nothing to show.
    Nothing,
}

/// The private key a client signs its assertions with.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey {
    pem: Secret,
    algorithm: Algorithm,
    key_id: Option<String>,
}

/// Text that is no private key, or none that signs so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no private key in PEM for ES256 (P-256), RS256 (RSA) or EdDSA (Ed25519)")]
pub struct NotAKey;

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: String,
    iat: i64,
    exp: i64,
}

impl ClientKey {
    /// The algorithm is the key's own: each kind of key has one.
    pub fn read(pem: Secret, key_id: Option<String>) -> Result<Self, NotAKey> {
        const KINDS: [Algorithm; 3] = [Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA];
        let is_its = |algorithm: &Algorithm| {
            let key = encoding_key(&pem, *algorithm);
            // A key of another curve is found out by its first signature only.
            key.is_ok_and(|key| jsonwebtoken::encode(&Header::new(*algorithm), &(), &key).is_ok())
        };
        let algorithm = KINDS.into_iter().find(is_its).ok_or(NotAKey)?;
        Ok(Self {
            pem,
            algorithm,
            key_id,
        })
    }

    /// Shows `audience` that whoever sends it is the client `client_id`.
    pub(super) fn assertion(
        &self,
        client_id: &str,
        audience: &str,
        ambient: &Ambient,
    ) -> Result<String, AuthError> {
        let now = ambient.now().as_seconds();
        let claims = Claims {
            iss: client_id,
            sub: client_id,
            aud: audience,
            jti: URL_SAFE_NO_PAD.encode(ambient.random::<16>()),
            iat: now,
            exp: now + ASSERTION_LIFETIME,
        };
        let mut header = Header::new(self.algorithm);
        header.kid.clone_from(&self.key_id);
        let key = encoding_key(&self.pem, self.algorithm).map_err(|_| AuthError::NotSigned)?;
        jsonwebtoken::encode(&header, &claims, &key).map_err(|_| AuthError::NotSigned)
    }
}

fn encoding_key(
    pem: &Secret,
    algorithm: Algorithm,
) -> Result<EncodingKey, jsonwebtoken::errors::Error> {
    let pem = pem.expose().as_bytes();
    match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(pem),
        Algorithm::RS256 => EncodingKey::from_rsa_pem(pem),
        _ => EncodingKey::from_ed_pem(pem),
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey")
            .field("algorithm", &self.algorithm)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}
