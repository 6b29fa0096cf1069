//! Settings of the console.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wardgate_edge::{BodyLimits, ConnectionLimits, ListenerLimits};
use wardgate_egress::{ProviderSettings, ProviderSettingsError};

/// Whom people are signed in by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInConfig {
    /// The provider's `iss`, to the letter; one of the issuers of `auth`.
    pub issuer: String,
    /// The console's name at the provider.
    pub client_id: String,
    /// A file with the secret of a confidential client. None: a public client.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// What every person is asked for. `offline_access`, where the provider has it, is what tokens are renewed by.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// Further parameters of the request that the browser takes to the provider, such as `prompt: consent`, without which
    /// some give no refresh token.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// The parameter `resource` (RFC 8707) of every request, where the provider puts it into `aud`.
    #[serde(default)]
    pub resource: Option<String>,
    /// Which of the provider's tokens the gateway gets.
    #[serde(default)]
    pub token: UsedToken,
    /// How long a session lasts at most, in hours, 1 to 168.
    #[serde(default = "default_session_hours")]
    pub session_hours: u8,
    /// Where the provider's metadata is not below its issuer: where people sign in.
    #[serde(default)]
    pub authorization_url: Option<String>,
    /// The same: where codes become tokens.
    #[serde(default)]
    pub token_url: Option<String>,
}

/// Which of a provider's tokens the gateway gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsedToken {
    /// The access token.
    #[default]
    Access,
    /// The identity token, of a provider whose access tokens are its own, such as Google.
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
    /// Checks what types alone cannot. Browsers come back to `public_url`.
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

    /// What of it is about the provider alone.
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

/// The scheme, host and port of `public_url`.
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

/// A setting of the sign-in that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignInConfigError {
    /// The provider's.
    #[error("sign_in.{0}")]
    Provider(#[from] ProviderSettingsError),
    /// Browsers would have no way back.
    #[error("sign_in needs `public_url`, where browsers come back to")]
    NoPublicUrl,
    /// It would be there twice.
    #[error("sign_in.parameters: remove `{0}`, which the console sets itself")]
    Parameter(String),
    /// Out of its range.
    #[error("sign_in.session_hours: write 1 to 168")]
    SessionHours,
}

/// What one request may cost.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpLimits {
    /// Largest body, bytes.
    pub body_bytes: usize,
    /// Seconds to send the header of a request.
    pub header_seconds: u64,
    /// Seconds to send the body of a request.
    pub body_seconds: u64,
    /// Open connections; further ones are refused, but for probes.
    pub connections: usize,
    /// How long one connection lasts, and what one client may take.
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
    /// Those of a body.
    pub fn body(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.body_bytes,
            seconds: self.body_seconds,
        }
    }

    /// Those of connections.
    pub fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            header_seconds: self.header_seconds,
            listener: self.listener,
        }
    }
}
