//! A client of an authorization server: its server, its id and its authentication.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use url::Url;
use wardgate_domain::Ambient;

use super::{AuthError, Secret};

/// Lifetime of a client assertion, in seconds. It can be short, because an assertion is used at once.
const ASSERTION_LIFETIME: i64 = 60;

/// A client of an OAuth authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthClient {
    /// The authorization server that issues the tokens.
    pub server: ServerSettings,
    /// The client id at the server.
    pub client_id: String,
    /// How the client authenticates.
    pub proof: ClientProof,
    /// The scopes of every token request, separated by spaces.
    pub scope: Option<String>,
    /// The `audience` of every token request (RFC 8693 §2.1).
    pub audience: Option<String>,
    /// The `resource` of every token request (RFC 8707), or `None` for the one that discovery found.
    pub resource: Option<String>,
}

/// The location of an authorization server. Configured values are used without discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSettings {
    /// The token endpoint, or `None` if it is taken from the metadata of the issuer (RFC 8414).
    pub token_url: Option<Url>,
    /// The issuer, exactly as the server spells it, or `None` if the service names it (RFC 9728).
    pub issuer: Option<String>,
    /// The URL of the service for which the tokens are issued.
    pub service: Option<Url>,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientProof {
    /// `client_secret_basic`, or `client_secret_post` if the server's metadata lists only that of the two.
    Secret(Secret),
    /// `private_key_jwt` (RFC 7523 §2.2): a short-lived assertion, signed anew for each request.
    Key {
        /// The key that signs the assertion.
        key: ClientKey,
        /// The `aud` of the assertion, or `None` for the issuer if it is known, else the URL of the token endpoint.
        audience: Option<String>,
    },
    /// No authentication, for a public client.
    Nothing,
}

/// The private key with which a client signs its assertions.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey {
    pem: Secret,
    algorithm: Algorithm,
    key_id: Option<String>,
}

/// The text is not a private key in a supported format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a PEM private key for ES256 (P-256), RS256 (RSA) or EdDSA (Ed25519)")]
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
    /// Reads a private key in PEM. The algorithm is derived from the kind of the key.
    pub fn from_pem(pem: Secret, key_id: Option<String>) -> Result<Self, NotAKey> {
        const KINDS: [Algorithm; 3] = [Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA];
        let is_its = |algorithm: &Algorithm| {
            let key = encoding_key(&pem, *algorithm);
            // Only signing reveals whether a key belongs to another curve.
            key.is_ok_and(|key| jsonwebtoken::encode(&Header::new(*algorithm), &(), &key).is_ok())
        };
        let algorithm = KINDS.into_iter().find(is_its).ok_or(NotAKey)?;
        Ok(Self {
            pem,
            algorithm,
            key_id,
        })
    }

    /// Returns an assertion that proves to `audience` that the sender is the client `client_id`.
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
