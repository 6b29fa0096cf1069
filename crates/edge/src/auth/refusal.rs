//! Why a request has no caller.

use http::{HeaderValue, StatusCode};
use wardgate_domain::Reason;

/// Why a token, or a request without a usable one, is refused.
///
/// Its text is safe to show the client and to put into `error_description`: it never holds any of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The request has no `Authorization` header, or one without a token.
    #[error("send a bearer token in the Authorization header")]
    TokenMissing,
    /// The request has several `Authorization` headers.
    #[error("send exactly one Authorization header")]
    AuthorizationRepeated,
    /// The `Authorization` header holds what no token is written with.
    #[error("send `Authorization: Bearer` and one token; it has letters, digits and -._~+/=")]
    AuthorizationMalformed,
    /// The `Authorization` header is of another scheme.
    #[error("use the Bearer scheme in the Authorization header")]
    SchemeRefused,
    /// The token is longer than 16 KiB.
    #[error("the token is longer than 16 KiB")]
    TokenTooLong,
    /// Not a signed JWT: not three parts, not base64url, not JSON, a key twice.
    #[error("the token is not a well-formed signed JWT")]
    TokenMalformed,
    /// The header says where to find keys, or asks for extensions.
    #[error("the token's header has the parameter `{0}`, which is not accepted")]
    HeaderParameterRefused(&'static str),
    /// The header's `typ` is not that of an access token.
    #[error("the token's `typ` is not accepted; send an access token")]
    TypeRefused,
    /// The header's `alg` is not the one its key is for.
    #[error("the token's `alg` is not accepted")]
    AlgorithmRefused,
    /// No key of the issuer has the token's `kid`, or the token names none and the issuer has several.
    #[error("the token is not signed by a current key of its issuer")]
    KeyUnknown,
    /// The issuer's keys cannot be had now. Not the token's fault: the client may try again.
    #[error("the issuer's keys are not available now; try again")]
    KeysUnavailable,
    /// The API key is in no file of such, or no longer.
    #[error("the API key is not known; it may have been revoked")]
    ApiKeyUnknown,
    /// The issuer says that the token is not active.
    #[error("the token's issuer says that it is not active; get another")]
    TokenInactive,
    /// The issuer cannot be asked about the token now. Not the token's fault: the client may try again.
    #[error("the token's issuer cannot be asked about it now; try again")]
    IntrospectionUnavailable,
    /// An operator revoked the token, its subject or its sign-in.
    #[error("the token was revoked; ask an operator")]
    TokenRevoked,
    /// What was revoked has not been read yet. Not the token's fault: the client may try again.
    #[error("which tokens were revoked is not known now; try again")]
    RevocationsUnknown,
    /// The caller's roles and attributes cannot be looked up now. Not the token's fault: the client may try again.
    #[error("the roles of the token's subject cannot be looked up now; try again")]
    RightsUnavailable,
    /// Nobody of that subject is where roles are looked up, and only those who are may come in.
    #[error("the token's subject is not among those who may come in; ask an operator")]
    CallerUnlisted,
    /// The signature does not fit.
    #[error("the token's signature is invalid")]
    SignatureInvalid,
    /// `exp` has passed.
    #[error("the token has expired")]
    TokenExpired,
    /// `nbf` or `iat` lies in the future.
    #[error("the token is not valid yet")]
    TokenNotYetValid,
    /// `iss` is not a trusted issuer.
    #[error("the token's issuer is not accepted")]
    IssuerRefused,
    /// `aud` does not name this gateway.
    #[error("the token is not meant for this audience")]
    AudienceRefused,
    /// A claim that is needed is absent.
    #[error("the token has no `{0}` claim")]
    ClaimMissing(String),
    /// A claim has the wrong type, length or characters.
    #[error("the token's `{0}` claim has an unusable value")]
    ClaimInvalid(String),
}

impl TokenRefusal {
    pub(super) fn missing(claim: &str) -> Self {
        Self::ClaimMissing(claim.to_owned())
    }

    pub(super) fn invalid(claim: &str) -> Self {
        Self::ClaimInvalid(claim.to_owned())
    }

    /// The word for records and metrics.
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

    /// What the client should mend; fit for `error_description` (RFC 6750 §3).
    pub fn description(&self) -> String {
        self.to_string()
    }

    /// The `error` of the `WWW-Authenticate` challenge (RFC 6750 §3.1); none where the client sent no
    /// bearer token, or sent one that nobody could check.
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

    /// The `WWW-Authenticate` header of the answer (RFC 6750 §3, RFC 9728 §5.1); `metadata` is the URL of the
    /// protected resource's metadata, `scope` what a token needs at least.
    pub fn challenge(&self, metadata: Option<&str>, scope: &str) -> HeaderValue {
        let mut parameters = Vec::new();
        if let Some(metadata) = metadata {
            parameters.push(format!(r#"resource_metadata="{metadata}""#));
        }
        if !scope.is_empty() {
            parameters.push(format!(r#"scope="{scope}""#));
        }
        // Without a token there is nothing wrong with one (RFC 6750 §3.1).
        if let Some(error) = self.challenge_error() {
            let description = self.description();
            parameters.push(format!(
                r#"error="{error}", error_description="{description}""#
            ));
        }
        let challenge = format!("Bearer {}", parameters.join(", "));
        // Claim names and URLs are checked when they are configured; plain `Bearer` is what is left of a bad one.
        HeaderValue::try_from(challenge.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// The HTTP status: 401, but 400 for a malformed request, 503 where keys or roles are lacking, lest a client throw a good
    /// token away, and 403 where no other token would help.
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
            TokenRefusal::missing("exp"),
            TokenRefusal::invalid("exp"),
        ] {
            let statuses: Vec<_> = refusal.reason().http_statuses().collect();
            assert_eq!(statuses, [refusal.status().as_u16()], "{refusal:?}");
        }
    }
}
