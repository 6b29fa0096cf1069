//! Strict parsing of the three parts of a signed token (RFC 7515 §7.1), and verification of its signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use wardgate_json::parse_strict;

use super::keys::{Key, SigningAlgorithm};
use super::{TokenRefusal, TokenType};

/// Header parameters that contain or locate a key, or change the meaning of the parts (RFC 7515 §4.1, RFC 7516 §4.1,
/// RFC 7797 §3). They are refused, because keys come only from the configured issuer.
const REFUSED_PARAMETERS: [&str; 8] = ["jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip"];

/// A token whose signature has not been verified. It may only be used to find the key.
pub(super) struct UnverifiedToken<'a> {
    /// The header and payload as they were signed.
    message: &'a str,
    signature: &'a str,
    algorithm: &'static SigningAlgorithm,
    key_id: Option<String>,
    token_type: Option<String>,
    payload: Map<String, Value>,
}

/// The claims of a token whose signature is valid, or whose issuer confirmed it by introspection.
pub(super) struct VerifiedClaims(Map<String, Value>);

impl<'a> UnverifiedToken<'a> {
    /// Parses a token.
    pub(super) fn parse(token: &'a str) -> Result<Self, TokenRefusal> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenRefusal::TokenMalformed);
        };
        decode(signature)?;
        let mut header_parameters = object(header)?;
        for parameter in REFUSED_PARAMETERS {
            if header_parameters.contains_key(parameter) {
                return Err(TokenRefusal::HeaderParameterRefused(parameter));
            }
        }
        let algorithm = text(&mut header_parameters, "alg")?
            .and_then(|name| SigningAlgorithm::from_name(&name))
            .ok_or(TokenRefusal::AlgorithmRefused)?;
        Ok(Self {
            message: token.split_at(header.len() + 1 + payload.len()).0,
            signature,
            algorithm,
            key_id: text(&mut header_parameters, "kid")?,
            token_type: text(&mut header_parameters, "typ")?,
            payload: object(payload)?,
        })
    }

    /// Returns the issuer that the token claims to be from.
    pub(super) fn issuer(&self) -> Result<&str, TokenRefusal> {
        match self.payload.get("iss") {
            Some(Value::String(issuer)) => Ok(issuer),
            Some(_) => Err(TokenRefusal::invalid_claim("iss")),
            None => Err(TokenRefusal::missing_claim("iss")),
        }
    }

    /// Returns the id of the key in the header.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Refuses types other than access tokens, because an identity token or an assertion of the same issuer must not be
    /// accepted as one (RFC 8725 §3.11, RFC 9068 §4).
    pub(super) fn check_type(&self, demanded: Option<TokenType>) -> Result<(), TokenRefusal> {
        let stated = self.token_type.as_deref().map(str::to_ascii_lowercase);
        let stated = stated
            .as_deref()
            .map(|name| name.strip_prefix("application/").unwrap_or(name));
        match (stated, demanded) {
            (Some("at+jwt"), _) | (Some("jwt") | None, None) => Ok(()),
            _ => Err(TokenRefusal::TypeRefused),
        }
    }

    /// Returns the claims if the signature is valid for `key` and the only algorithm of the key.
    pub(super) fn verify(self, key: &Key) -> Result<VerifiedClaims, TokenRefusal> {
        if self.algorithm != key.algorithm() {
            return Err(TokenRefusal::AlgorithmRefused);
        }
        if !key.verifies(self.message.as_bytes(), self.signature) {
            return Err(TokenRefusal::SignatureInvalid);
        }
        Ok(VerifiedClaims(self.payload))
    }
}

impl VerifiedClaims {
    /// Creates claims from the issuer's own answer about an active token (RFC 7662 §2.2).
    pub(super) fn of_issuer(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// Returns a claim by its name, or by a path of names separated by dots. `null` counts as missing.
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        let found = self.0.get(path).or_else(|| {
            let (first, rest) = path.split_once('.')?;
            rest.split('.')
                .try_fold(self.0.get(first)?, |value, key| value.get(key))
        });
        found.filter(|value| !value.is_null())
    }
}

/// Decodes base64url without padding. Only the canonical encoding of each byte string is accepted (RFC 7515 §2).
fn decode(part: &str) -> Result<Vec<u8>, TokenRefusal> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenRefusal::TokenMalformed)
}

/// Decodes a JSON object. Duplicate keys are refused: RFC 7519 §4 allows to either refuse them or use the last one, and
/// another reader of the same token might use the first.
fn object(part: &str) -> Result<Map<String, Value>, TokenRefusal> {
    match parse_strict(&decode(part)?) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) | Err(_) => Err(TokenRefusal::TokenMalformed),
    }
}

fn text(parameters: &mut Map<String, Value>, name: &str) -> Result<Option<String>, TokenRefusal> {
    match parameters.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenRefusal::TokenMalformed),
    }
}
