//! The settings of the facade.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;
use url::Url;
use wardgate_domain::Ambient;
use wardgate_edge::AuthConfig;
use wardgate_egress::{ProviderClient, ProviderSettings};

use crate::Error;
use crate::preset::{Preset, is_of_openid};

/// The identity provider by which people sign in to MCP clients through the gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationConfig {
    /// The kind of the provider. The default is `oidc`, without special rules.
    #[serde(default)]
    pub preset: Preset,
    /// The issuer of the tokens that clients get. Must be one of the issuers of `auth`.
    pub issuer: String,
    /// The client id of the gateway at the provider, which is used for all MCP clients.
    pub client_id: String,
    /// A file with the secret of a confidential client, or `None` for a public client.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The scopes of every authorization request, or `None` for those of the preset.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// Scopes that are requested only if a client asks for them, for example after a 403 `insufficient_scope`.
    #[serde(default)]
    pub optional_scopes: Vec<String>,
    /// The prefix of the provider's own scopes, such as `api://CLIENT-ID/`. Clients and `gateway.scopes` use the names
    /// without it.
    #[serde(default)]
    pub scope_prefix: String,
    /// The parameter `audience` of every authorization request.
    #[serde(default)]
    pub audience: Option<String>,
    /// The parameter `resource` (RFC 8707) of every request to the provider, or `None` to send none. The `resource` of
    /// a client is never forwarded.
    #[serde(default)]
    pub resource: Option<String>,
    /// The hosts to which authorization codes of web clients may be sent by `https`, or `None` for every host to which
    /// a person consents.
    #[serde(default)]
    pub redirect_hosts: Option<Vec<String>>,
    /// The networks outside the public internet from which metadata documents of clients may be fetched. The default is
    /// none.
    #[serde(default)]
    pub document_networks: Vec<String>,
    /// The authorization endpoint, for a provider whose metadata is not below its issuer.
    #[serde(default)]
    pub authorization_url: Option<String>,
    /// The token endpoint, for a provider whose metadata is not below its issuer.
    #[serde(default)]
    pub token_url: Option<String>,
}

impl AuthorizationConfig {
    /// Checks the settings of the facade or the URL of another server's metadata, whichever is configured; both
    /// together are an error. `trusted` are the issuers whose tokens the gateway accepts.
    pub fn validate_either(
        config: Option<&Self>,
        elsewhere: Option<&str>,
        trusted: &AuthConfig,
    ) -> Result<(), Error> {
        if let Some(url) = elsewhere {
            let parsed = Url::parse(url).ok();
            if parsed.is_none_or(|url| !matches!(url.scheme(), "http" | "https")) {
                return Err(Error(format!(
                    "gateway.authorization_server_metadata: `{url}` is not the URL of a document, like https://id.example/.well-known/oauth-authorization-server"
                )));
            }
            if config.is_some() {
                return Err(Error(
                    "gateway.authorization_server_metadata: remove it; with gateway.authorization the gateway is the authorization server"
                        .to_owned(),
                ));
            }
        }
        config.map_or(Ok(()), |config| config.validate(trusted))
    }

    /// Checks the constraints that the types cannot express. The error names the setting.
    pub(crate) fn validate(&self, trusted: &AuthConfig) -> Result<(), Error> {
        let provider = self.provider().validate();
        provider.map_err(|error| wrong(error.key, &error.problem))?;
        let all = self.scopes.iter().flatten().chain(&self.optional_scopes);
        for scope in all.chain(Some(&self.scope_prefix).filter(|it| !it.is_empty())) {
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            if scope.is_empty() || !scope.bytes().all(plain) {
                return Err(wrong(
                    "scopes",
                    &format!(
                        "`{scope}` is not a scope; use visible ASCII without quotes and backslashes"
                    ),
                ));
            }
        }
        self.networks()?;
        let fits = self.check_preset();
        fits.map_err(|(key, what)| wrong(key, what))?;
        let mut issuers = trusted.issuers.iter();
        if !issuers.any(|it| it.issuer == self.issuer) {
            let what = "must be exactly one of gateway.auth.issuers";
            return Err(wrong("issuer", what));
        }
        Ok(())
    }

    /// Checks the requirements of the preset. The error is the setting and the problem.
    fn check_preset(&self) -> Result<(), (&'static str, &'static str)> {
        let issuer = self.issuer.as_str();
        match self.preset {
            Preset::Auth0 if self.audience.is_none() => Err((
                "audience",
                "set the identifier of the API at Auth0; without it access tokens cannot be verified",
            )),
            Preset::Auth0 if !issuer.ends_with('/') => {
                Err(("issuer", "Auth0's issuer ends with a slash; add it"))
            }
            Preset::Okta if !issuer.contains("/oauth2/") => Err((
                "issuer",
                "use a custom authorization server, such as https://ORG.okta.com/oauth2/default; tokens of the org authorization server \
                 cannot be verified by others",
            )),
            Preset::Entra if !issuer.ends_with("/v2.0") => Err((
                "issuer",
                "write https://login.microsoftonline.com/TENANT/v2.0, and set requestedAccessTokenVersion to 2 in the application's \
                 manifest",
            )),
            Preset::Entra if !self.has_api_scope() => Err((
                "scopes",
                "add a scope of the application, such as mcp with scope_prefix api://CLIENT-ID/; without one the tokens are for Microsoft \
                 Graph",
            )),
            Preset::Google if self.client_secret_file.is_none() => Err((
                "client_secret_file",
                "Google requires the secret of the client",
            )),
            Preset::Oidc
            | Preset::Keycloak
            | Preset::Auth0
            | Preset::Okta
            | Preset::Entra
            | Preset::Google => Ok(()),
        }
    }

    /// Returns whether every sign-in requests a scope of an API.
    fn has_api_scope(&self) -> bool {
        let scopes = self.scopes.iter().flatten();
        let mut own = scopes.filter(|scope| !is_of_openid(scope));
        own.any(|scope| scope.contains("://") || !self.scope_prefix.is_empty())
    }

    /// Parses the networks of `document_networks`.
    pub(crate) fn networks(&self) -> Result<Vec<IpNet>, Error> {
        let networks = self.document_networks.iter().map(|text| {
            let no_network = |_| {
                let what = format!("`{text}` is not a network, like 10.0.0.0/8");
                wrong("document_networks", &what)
            };
            text.parse().map_err(no_network)
        });
        networks.collect()
    }

    /// Checks the settings of the provider and reads the client secret as a start does. Sends no request.
    pub async fn check_files(&self) -> Result<(), Error> {
        self.open_provider(&Ambient::system()).await.map(drop)
    }

    /// Reads the client secret, and creates the client of the provider, which has sent no request yet.
    pub(crate) async fn open_provider(&self, ambient: &Ambient) -> Result<ProviderClient, Error> {
        let provider = ProviderClient::open(self.provider(), ambient).await;
        provider.map_err(|error| wrong(error.key, &error.problem))
    }

    /// Returns the settings of the provider.
    pub(crate) fn provider(&self) -> ProviderSettings<'_> {
        ProviderSettings {
            issuer: &self.issuer,
            client_id: &self.client_id,
            client_secret_file: self.client_secret_file.as_deref(),
            authorization_url: self.authorization_url.as_deref(),
            token_url: self.token_url.as_deref(),
        }
    }
}

fn wrong(key: &str, what: &str) -> Error {
    Error(format!("gateway.authorization.{key}: {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use wardgate_edge::{IssuerConfig, JwksSource};

    fn problem(settings: &Value) -> String {
        problem_where(settings, true)
    }

    /// Like [`problem`], with or without the issuer among the trusted ones.
    fn problem_where(settings: &Value, trusts: bool) -> String {
        let mut all = json!({ "issuer": "https://id.example", "client_id": "gateway" });
        let settings = settings.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(settings);
        let config: AuthorizationConfig = serde_json::from_value(all).unwrap();
        let keys = JwksSource::Url("https://id.example/keys".to_owned());
        let trusted = IssuerConfig::new(config.issuer.clone(), "gateway", keys);
        let issuers = if trusts { vec![trusted] } else { Vec::new() };
        let checked = config.validate(&AuthConfig::of_issuers(issuers));
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn every_setting_that_cannot_work_is_named_with_what_to_write() {
        for (settings, key) in [
            (json!({ "client_id": "" }), "client_id"),
            (json!({ "issuer": "id.example" }), "issuer"),
            (json!({ "scopes": ["a b"] }), "scopes"),
            (json!({ "document_networks": ["ten"] }), "document_networks"),
            (
                json!({ "token_url": "https://id.example/t" }),
                "authorization_url",
            ),
            (
                json!({ "preset": "auth0", "issuer": "https://a.auth0.com/" }),
                "audience",
            ),
            (
                json!({ "preset": "auth0", "issuer": "https://a.auth0.com", "audience": "x" }),
                "issuer",
            ),
            (
                json!({ "preset": "okta", "issuer": "https://a.okta.com" }),
                "issuer",
            ),
            (json!({ "preset": "entra" }), "issuer"),
            (
                json!({ "preset": "entra", "issuer": "https://e.example/t/v2.0", "scopes": ["openid", "mcp"] }),
                "scopes",
            ),
            (json!({ "preset": "google" }), "client_secret_file"),
        ] {
            let message = problem(&settings);
            let expected = format!("gateway.authorization.{key}: ");
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn an_issuer_whose_tokens_the_gateway_does_not_take_is_named() {
        let message = problem_where(&json!({}), false);
        assert!(
            message.starts_with("gateway.authorization.issuer: "),
            "{message}"
        );
    }

    #[test]
    fn what_the_guide_shows_for_each_provider_is_accepted() {
        for settings in [
            json!({}),
            json!({ "preset": "keycloak", "issuer": "https://sso.example/realms/hospital" }),
            json!({ "preset": "auth0", "issuer": "https://a.auth0.com/", "audience": "https://mcp.example/" }),
            json!({ "preset": "okta", "issuer": "https://a.okta.com/oauth2/default" }),
            json!({ "preset": "entra", "issuer": "https://login.microsoftonline.com/t/v2.0",
                    "scopes": ["openid", "offline_access", "mcp"], "scope_prefix": "api://gateway/" }),
            json!({ "preset": "google", "issuer": "https://accounts.google.com", "client_secret_file": "secret" }),
        ] {
            assert_eq!(problem(&settings), "");
        }
    }
}
