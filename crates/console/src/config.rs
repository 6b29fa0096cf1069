//! Configuration of the console.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wardgate_edge::{BodyLimits, ConnectionLimits, ListenerLimits};
use wardgate_egress::{ProviderSettings, ProviderSettingsError};

/// The identity provider by which people sign in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInConfig {
    /// The provider's `iss`, exactly as in its tokens. Must be one of the issuers of `auth`.
    pub issuer: String,
    /// The client id of the console at the provider.
    pub client_id: String,
    /// A file with the secret of a confidential client, or `None` for a public client.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The scopes of every authorization request. Tokens are renewed only if the provider grants `offline_access` or an
    /// equivalent.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// Additional parameters of the authorization request, such as `prompt: consent`, without which some providers
    /// issue no refresh token.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// The parameter `resource` (RFC 8707) of every request, for providers that put it into `aud`.
    #[serde(default)]
    pub resource: Option<String>,
    /// Which of the provider's tokens is sent to the gateway.
    #[serde(default)]
    pub token: UsedToken,
    /// Maximum duration of a session, in hours, from 1 to 168.
    #[serde(default = "default_session_hours")]
    pub session_hours: u8,
    /// The authorization endpoint, for a provider whose metadata is not below its issuer.
    #[serde(default)]
    pub authorization_url: Option<String>,
    /// The token endpoint, for a provider whose metadata is not below its issuer.
    #[serde(default)]
    pub token_url: Option<String>,
}

/// The kind of token that is sent to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsedToken {
    /// The access token.
    #[default]
    Access,
    /// The identity token, for a provider whose access tokens are opaque, such as Google.
    Identity,
}

/// The parameters that the console sets itself.
const OURS: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "state",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "resource",
];

impl SignInConfig {
    /// Checks the constraints that the types cannot express. `public_url` is the address to which browsers return.
    pub fn validate(&self, public_url: Option<&str>) -> Result<(), SignInConfigError> {
        self.provider().validate()?;
        if !(1..=168).contains(&self.session_hours) {
            return Err(SignInConfigError::SessionHours);
        }
        if let Some(name) = self
            .parameters
            .keys()
            .find(|it| OURS.contains(&it.as_str()))
        {
            return Err(SignInConfigError::Parameter(name.clone()));
        }
        origin(public_url).map(drop)
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

/// Returns the origin (scheme, host and port) of `public_url`.
pub(crate) fn origin(public_url: Option<&str>) -> Result<String, SignInConfigError> {
    let url = public_url.and_then(|url| url::Url::parse(url).ok());
    let url = url.ok_or(SignInConfigError::NoPublicUrl)?;
    Ok(url.origin().ascii_serialization())
}

fn default_scopes() -> Vec<String> {
    ["openid", "offline_access"].map(str::to_owned).into()
}

const fn default_session_hours() -> u8 {
    12
}

/// An invalid setting of the sign-in.
#[derive(Debug, thiserror::Error)]
pub enum SignInConfigError {
    /// A setting of the provider is invalid.
    #[error("sign_in.{0}")]
    Provider(#[from] ProviderSettingsError),
    /// `public_url` is missing, so browsers could not return from the provider.
    #[error("sign_in requires `public_url`, to which the provider redirects browsers")]
    NoPublicUrl,
    /// The parameter would be sent twice, because the console sets it itself.
    #[error("sign_in.parameters: remove `{0}`, which the console sets")]
    Parameter(String),
    /// The number of hours is out of range.
    #[error("sign_in.session_hours: must be 1 to 168")]
    SessionHours,
}

/// Limits of one request and of the connections.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpLimits {
    /// Maximum size of a request body, in bytes.
    pub body_bytes: usize,
    /// Maximum time to send the header of a request, in seconds.
    pub header_seconds: u64,
    /// Maximum time to send the body of a request, in seconds.
    pub body_seconds: u64,
    /// Maximum number of open connections. Further connections are refused, except those of probes.
    pub connections: usize,
    /// Limits of the duration of a connection and of what one client may use.
    pub listener: ListenerLimits,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 256 * 1024,
            header_seconds: 10,
            body_seconds: 30,
            connections: 1_024,
            listener: ListenerLimits::default(),
        }
    }
}

impl HttpLimits {
    /// Returns the limits of a request body.
    pub fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }

    /// Returns the limits of connections.
    pub fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }
}
