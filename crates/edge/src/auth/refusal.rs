//! The reasons why a request is not authenticated.

use http::{HeaderValue, StatusCode};
use wardgate_domain::Reason;

/// The reason why a token, or a request without a usable token, is refused.
///
/// The displayed text can be shown to the client and put into `error_description`: it never contains any part of the
/// token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The request has no `Authorization` header, or one without a token.
    #[error("send a bearer token in the Authorization header")]
    TokenMissing,
    /// The request has several `Authorization` headers.
    #[error("send exactly one Authorization header")]
    AuthorizationRepeated,
    /// The `Authorization` header contains characters that a token cannot have.
    #[error("send `Authorization: Bearer` and one token; it has letters, digits and -._~+/=")]
    AuthorizationMalformed,
    /// The `Authorization` header has another scheme.
    #[error("use the Bearer scheme in the Authorization header")]
    SchemeRefused,
    /// The token is longer than 16 KiB.
    #[error("the token is longer than 16 KiB")]
    TokenTooLong,
    /// The token is not a signed JWT: it does not have three parts, is not base64url or JSON, or has a duplicate key.
    #[error("the token is not a well-formed signed JWT")]
    TokenMalformed,
    /// The header of the token states where to find keys, or requires extensions.
    #[error("the token's header has the parameter `{0}`, which is not accepted")]
    HeaderParameterRefused(&'static str),
    /// The `typ` in the header is not that of an access token.
    #[error("the token's `typ` is not accepted; send an access token")]
    TypeRefused,
    /// The `alg` in the header is not that of the key.
    #[error("the token's `alg` is not accepted")]
    AlgorithmRefused,
    /// No key of the issuer has the token's `kid`, or the token has none and the issuer has several keys.
    #[error("the token is not signed by a current key of its issuer")]
    KeyUnknown,
    /// The issuer's keys are not available now. The token may be valid, so the client may retry.
    #[error("the issuer's keys are not available now; try again")]
    KeysUnavailable,
    /// The API key is not, or no longer, in the file of API keys.
    #[error("the API key is unknown; it may have been revoked")]
    ApiKeyUnknown,
    /// The issuer states that the token is not active.
    #[error("the token's issuer reports that it is not active; get another")]
    TokenInactive,
    /// The issuer cannot be asked about the token now. The token may be valid, so the client may retry.
    #[error("the token's introspection at its issuer failed; try again")]
    IntrospectionUnavailable,
    /// An operator revoked the token, its subject or its sign-in.
    #[error("the token was revoked; ask an operator")]
    TokenRevoked,
    /// The revocations have not been read yet. The token may be valid, so the client may retry.
    #[error("the revocations have not been read yet; try again")]
    RevocationsUnknown,
    /// The caller's roles and attributes cannot be looked up now. The token may be valid, so the client may retry.
    #[error("the roles of the token's subject cannot be looked up now; try again")]
    RightsUnavailable,
    /// The lookup of roles does not list the subject, and only listed subjects have access.
    #[error("the token's subject is not permitted to use this gateway; ask an operator")]
    CallerUnlisted,
    /// The signature is invalid.
    #[error("the token's signature is invalid")]
    SignatureInvalid,
    /// `exp` has passed.
    #[error("the token has expired")]
    TokenExpired,
    /// `nbf` or `iat` is in the future.
    #[error("the token is not valid yet")]
    TokenNotYetValid,
    /// `iss` is not a trusted issuer.
    #[error("the token's issuer is not accepted")]
    IssuerRefused,
    /// `aud` does not name this gateway.
    #[error("the token has another audience")]
    AudienceRefused,
    /// A required claim is missing.
    #[error("the token has no `{0}` claim")]
    ClaimMissing(String),
    /// A claim has the wrong type, length or characters.
    #[error("the token's `{0}` claim has an unusable value")]
    ClaimInvalid(String),
}

impl TokenRefusal {
    pub(super) fn missing_claim(claim: &str) -> Self {
        Self::ClaimMissing(claim.to_owned())
    }

    pub(super) fn invalid_claim(claim: &str) -> Self {
        Self::ClaimInvalid(claim.to_owned())
    }

    /// Returns the reason for records and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TokenMissing => Reason::TOKEN_MISSING,
            Self::AuthorizationRepeated => Reason::AUTHORIZATION_REPEATED,
            Self::AuthorizationMalformed => Reason::AUTHORIZATION_MALFORMED,
            Self::SchemeRefused => Reason::SCHEME_REFUSED,
            Self::TokenTooLong => Reason::TOKEN_TOO_LONG,
            Self::TokenMalformed => Reason::TOKEN_MALFORMED,
            Self::HeaderParameterRefused(_) => Reason::HEADER_PARAMETER_REFUSED,
            Self::TypeRefused => Reason::TYPE_REFUSED,
            Self::AlgorithmRefused => Reason::ALGORITHM_REFUSED,
            Self::KeyUnknown => Reason::KEY_UNKNOWN,
            Self::KeysUnavailable => Reason::KEYS_UNAVAILABLE,
            Self::ApiKeyUnknown => Reason::API_KEY_UNKNOWN,
            Self::TokenInactive => Reason::TOKEN_INACTIVE,
            Self::IntrospectionUnavailable => Reason::INTROSPECTION_UNAVAILABLE,
            Self::TokenRevoked => Reason::TOKEN_REVOKED,
            Self::RevocationsUnknown => Reason::REVOCATIONS_UNKNOWN,
            Self::RightsUnavailable => Reason::RIGHTS_UNAVAILABLE,
            Self::CallerUnlisted => Reason::CALLER_UNLISTED,
            Self::SignatureInvalid => Reason::SIGNATURE_INVALID,
            Self::TokenExpired => Reason::TOKEN_EXPIRED,
            Self::TokenNotYetValid => Reason::TOKEN_NOT_YET_VALID,
            Self::IssuerRefused => Reason::ISSUER_REFUSED,
            Self::AudienceRefused => Reason::AUDIENCE_REFUSED,
            Self::ClaimMissing(_) => Reason::CLAIM_MISSING,
            Self::ClaimInvalid(_) => Reason::CLAIM_INVALID,
        }
    }

    /// Returns the description for the client, suitable for `error_description` (RFC 6750 §3).
    pub fn description(&self) -> String {
        self.to_string()
    }

    /// Returns the `error` of the `WWW-Authenticate` challenge (RFC 6750 §3.1), or `None` if the client sent no bearer
    /// token or sent one that could not be checked.
    pub(super) fn challenge_error(&self) -> Option<&'static str> {
        match self {
            Self::TokenMissing
            | Self::SchemeRefused
            | Self::KeysUnavailable
            | Self::IntrospectionUnavailable
            | Self::RevocationsUnknown
            | Self::RightsUnavailable
            | Self::CallerUnlisted => None,
            Self::AuthorizationRepeated | Self::AuthorizationMalformed => Some("invalid_request"),
            _ => Some("invalid_token"),
        }
    }

    /// Returns the `WWW-Authenticate` header of the response (RFC 6750 §3, RFC 9728 §5.1). `metadata` is the URL of the
    /// protected resource's metadata, and `scope` the minimum scopes that a token needs.
    pub fn challenge(&self, metadata: Option<&str>, scope: &str) -> HeaderValue {
        let mut parameters = Vec::new();
        if let Some(metadata) = metadata {
            parameters.push(format!(r#"resource_metadata="{metadata}""#));
        }
        if !scope.is_empty() {
            parameters.push(format!(r#"scope="{scope}""#));
        }
        // A request without a token gets no error code (RFC 6750 §3.1).
        if let Some(error) = self.challenge_error() {
            let description = self.description();
            parameters.push(format!(
                r#"error="{error}", error_description="{description}""#
            ));
        }
        let challenge = format!("Bearer {}", parameters.join(", "));
        // Claim names and URLs were validated with the configuration. If the value is invalid nevertheless, plain
        // `Bearer` is sent.
        HeaderValue::try_from(challenge.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Returns the HTTP status: 401; but 400 for a malformed request, 503 if keys, revocations or roles are not
    /// available, so that the client does not discard a valid token, and 403 if no other token would help.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::AuthorizationRepeated | Self::AuthorizationMalformed => StatusCode::BAD_REQUEST,
            Self::KeysUnavailable
            | Self::IntrospectionUnavailable
            | Self::RevocationsUnknown
            | Self::RightsUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::CallerUnlisted => StatusCode::FORBIDDEN,
            _ => StatusCode::UNAUTHORIZED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_http_status_that_the_reference_names_for_its_reason() {
        for refusal in [
            TokenRefusal::TokenMissing,
            TokenRefusal::AuthorizationRepeated,
            TokenRefusal::AuthorizationMalformed,
            TokenRefusal::SchemeRefused,
            TokenRefusal::TokenTooLong,
            TokenRefusal::TokenMalformed,
            TokenRefusal::HeaderParameterRefused("jku"),
            TokenRefusal::TypeRefused,
            TokenRefusal::AlgorithmRefused,
            TokenRefusal::KeyUnknown,
            TokenRefusal::KeysUnavailable,
            TokenRefusal::ApiKeyUnknown,
            TokenRefusal::TokenInactive,
            TokenRefusal::IntrospectionUnavailable,
            TokenRefusal::TokenRevoked,
            TokenRefusal::RevocationsUnknown,
            TokenRefusal::RightsUnavailable,
            TokenRefusal::CallerUnlisted,
            TokenRefusal::SignatureInvalid,
            TokenRefusal::TokenExpired,
            TokenRefusal::TokenNotYetValid,
            TokenRefusal::IssuerRefused,
            TokenRefusal::AudienceRefused,
            TokenRefusal::missing_claim("exp"),
            TokenRefusal::invalid_claim("exp"),
        ] {
            let statuses: Vec<_> = refusal.reason().http_statuses().collect();
            assert_eq!(statuses, [refusal.status().as_u16()], "{refusal:?}");
        }
    }
}
