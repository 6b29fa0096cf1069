//! The special rules of common identity providers.

use serde::{Deserialize, Serialize};

/// An identity provider with special rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Any `OpenID` Connect provider whose access tokens are JWTs.
    #[default]
    Oidc,
    /// Keycloak: one realm is one issuer. It ignores `resource`; a mapper of a client scope sets `aud`.
    Keycloak,
    /// Auth0: without `audience` its access tokens are for Auth0 itself and cannot be verified by others.
    Auth0,
    /// Okta: only a custom authorization server (`/oauth2/{id}`) issues tokens that others can verify.
    Okta,
    /// Microsoft Entra ID: it refuses `resource` (AADSTS9010010), and prefixes scopes with their application.
    Entra,
    /// Google: its access tokens are opaque, so clients use the identity token. It has no scope for refresh tokens.
    Google,
}

impl Preset {
    /// Returns the scopes of every authorization request, unless `scopes` is set.
    pub(crate) fn scopes(self) -> &'static [&'static str] {
        match self {
            // Keycloak issues refresh tokens for the person's session; with `offline_access` they would outlive it.
            Self::Oidc | Self::Keycloak => &["openid"],
            Self::Auth0 | Self::Okta | Self::Entra => &["openid", "offline_access"],
            Self::Google => &["openid", "email"],
        }
    }

    /// Returns additional parameters of every authorization request with this scope.
    pub(crate) fn parameters(self, scope: &str) -> &'static [(&'static str, &'static str)] {
        let offline = scope.split(' ').any(|it| it == "offline_access");
        match self {
            // Without the prompt there is no offline access: `OpenID` Connect Core §11.
            Self::Oidc if offline => &[("prompt", "consent")],
            // Google issues refresh tokens only with `access_type`, and without the prompt only once per consent.
            Self::Google => &[("access_type", "offline"), ("prompt", "consent")],
            _ => &[],
        }
    }

    /// Returns whether clients use the identity token, because only the provider can read its access tokens.
    pub(crate) fn uses_id_token(self) -> bool {
        self == Self::Google
    }
}

/// The scopes of `OpenID` Connect Core §5.4 and §11, which have no prefix at any provider.
const OF_OPENID: [&str; 6] = [
    "openid",
    "profile",
    "email",
    "address",
    "phone",
    "offline_access",
];

pub(crate) fn is_of_openid(scope: &str) -> bool {
    OF_OPENID.contains(&scope)
}
