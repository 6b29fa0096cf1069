//! What is particular to the identity providers that people have.

use serde::{Deserialize, Serialize};

use crate::config::AuthorizationConfig;

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

    /// What the settings lack for this provider: the key, and what to write.
    pub(crate) fn check(
        self,
        config: &AuthorizationConfig,
    ) -> Result<(), (&'static str, &'static str)> {
        let issuer = config.issuer.as_str();
        match self {
            Self::Auth0 if config.audience.is_none() => Err((
                "audience",
                "write the identifier of the API at Auth0; without it access tokens cannot be verified",
            )),
            Self::Auth0 if !issuer.ends_with('/') => {
                Err(("issuer", "Auth0's issuer ends with a slash; add it"))
            }
            Self::Okta if !issuer.contains("/oauth2/") => Err((
                "issuer",
                "name a custom authorization server, such as https://ORG.okta.com/oauth2/default; tokens of the org's own cannot be verified by others",
            )),
            Self::Entra if !issuer.ends_with("/v2.0") => Err((
                "issuer",
                "write https://login.microsoftonline.com/TENANT/v2.0, and let the application's manifest have requestedAccessTokenVersion 2",
            )),
            Self::Entra if !has_api_scope(config) => Err((
                "scopes",
                "name a scope of the application, such as mcp with scope_prefix api://CLIENT-ID/; without one the tokens are for Microsoft Graph",
            )),
            Self::Google if config.client_secret_file.is_none() => Err((
                "client_secret_file",
                "Google gives tokens only to a client with its secret",
            )),
            Self::Oidc | Self::Keycloak | Self::Auth0 | Self::Okta | Self::Entra | Self::Google => {
                Ok(())
            }
        }
    }
}

/// Whether every sign-in asks for a scope of an API.
fn has_api_scope(config: &AuthorizationConfig) -> bool {
    let scopes = config.scopes.iter().flatten();
    let mut own = scopes.filter(|scope| !crate::scopes::is_of_openid(scope));
    own.any(|scope| scope.contains("://") || !config.scope_prefix.is_empty())
}
