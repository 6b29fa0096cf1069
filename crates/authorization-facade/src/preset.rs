//! What is particular to the identity providers that people have.

use serde::{Deserialize, Serialize};

/// An identity provider with its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Any provider of `OpenID` Connect that gives JWTs as access tokens.
    #[default]
    Oidc,
    /// Keycloak: one realm is one issuer. It looks at no `resource`; what `aud` says is a mapper of a client scope.
    Keycloak,
    /// Auth0: without `audience` its access tokens are for Auth0 itself and cannot be read by others.
    Auth0,
    /// Okta: only a custom authorization server (`/oauth2/{id}`) gives tokens that others may verify.
    Okta,
    /// Microsoft Entra ID: it refuses `resource` (AADSTS9010010), and names scopes by the application that they are of.
    Entra,
    /// Google: its access tokens are opaque, so clients call with the identity token; it has no scope for refresh tokens.
    Google,
}

impl Preset {
    /// What every person is asked for, unless `scopes` says so.
    pub(crate) fn scopes(self) -> &'static [&'static str] {
        match self {
            // Keycloak gives refresh tokens as long as the person's session lasts; `offline_access` would outlive it.
            Self::Oidc | Self::Keycloak => &["openid"],
            Self::Auth0 | Self::Okta | Self::Entra => &["openid", "offline_access"],
            Self::Google => &["openid", "email"],
        }
    }

    /// Parameters of every authorization request for this scope.
    pub(crate) fn parameters(self, scope: &str) -> &'static [(&'static str, &'static str)] {
        let offline = scope.split(' ').any(|it| it == "offline_access");
        match self {
            // `OpenID` Connect Core §11: no offline access without it.
            Self::Oidc if offline => &[("prompt", "consent")],
            // Refresh tokens come with both only; the second because they come once per consent otherwise.
            Self::Google => &[("access_type", "offline"), ("prompt", "consent")],
            _ => &[],
        }
    }

    /// Whether clients call with the identity token: for a provider whose access tokens only it can read.
    pub(crate) fn uses_id_token(self) -> bool {
        self == Self::Google
    }
}

/// Scopes of `OpenID` Connect Core §5.4 and §11, which no provider writes with a prefix.
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
