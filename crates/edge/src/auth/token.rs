//! A token's three parts (RFC 7515 §7.1), taken strictly, and its signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use wardgate_json::parse_strict;

use super::keys::{Key, SigningAlgorithm};
use super::{TokenRefusal, TokenType};

/// Header parameters that bring or locate a key, or change what the parts mean (RFC 7515 §4.1, RFC 7516 §4.1,
/// RFC 7797 §3). Keys come from the configured issuer alone.
const REFUSED_PARAMETERS: [&str; 8] = ["jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip"];

/// A token whose signature nobody has checked: good for finding the key, and for nothing else.
pub(super) struct UnverifiedToken<'a> {
    /// Header and payload as signed.
    message: &'a str,
    signature: &'a str,
    algorithm: &'static SigningAlgorithm,
    key_id: Option<String>,
    token_type: Option<String>,
    payload: Map<String, Value>,
}

/// The claims of a token whose signature fits, or that its issuer told.
pub(super) struct VerifiedClaims(Map<String, Value>);

impl<'a> UnverifiedToken<'a> {
    /// Takes a token apart.
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
            .and_then(|name| SigningAlgorithm::named(&name))
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

    /// The issuer it claims to be from.
    pub(super) fn issuer(&self) -> Result<&str, TokenRefusal> {
        match self.payload.get("iss") {
            Some(Value::String(issuer)) => Ok(issuer),
            Some(_) => Err(TokenRefusal::invalid("iss")),
            None => Err(TokenRefusal::missing("iss")),
        }
    }

    /// The id of its key, as the header names it.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Refuses other types than access tokens: an identity token or an assertion of the same issuer must not
    /// pass for one (RFC 8725 §3.11, RFC 9068 §4).
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

    /// The claims, if the signature is that of `key` by the one algorithm the key is for.
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
    /// What the issuer itself says of a token that is active (RFC 7662 §2.2).
    pub(super) fn of_issuer(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// A claim by its name, or by a path with dots; `null` is no claim.
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        let found = self.0.get(path).or_else(|| {
            let (first, rest) = path.split_once('.')?;
            rest.split('.')
                .try_fold(self.0.get(first)?, |value, key| value.get(key))
        });
        found.filter(|value| !value.is_null())
    }
}

/// Base64url without padding, and only the one spelling of each byte string (RFC 7515 §2).
fn decode(part: &str) -> Result<Vec<u8>, TokenRefusal> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenRefusal::TokenMalformed)
}

/// RFC 7519 §4 leaves the choice between refusing a claim given twice and keeping the last; another reader of the same
/// token may keep the first, so it is refused.
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
