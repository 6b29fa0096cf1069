//! A client of an identity provider: it signs in browser users (`OpenID` Connect Core §3.1), and gets tokens that other
//! clients use directly.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use url::Url;
use wardgate_domain::{Ambient, is_loopback_host};
use wardgate_telemetry::{SecretKind, record_secret_file};

use super::code::{AuthorizationServer, CodeRequest, check_issuer};
use super::discovery::MetadataDiscovery;
use super::grant::{EndpointLocation, TokenEndpoint, TokenResponse};
use super::{AuthError, ClientProof, ConnectError, RegisteredClient, Secret};
use crate::{EgressSettings, NetworkSettings, PrivateAddresses};

/// Maximum time of one request to an identity provider.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A client of an identity provider that the operator configured.
pub struct ProviderClient {
    issuer: String,
    client: RegisteredClient,
    provider: OnceCell<AuthorizationServer>,
    limits: EgressSettings,
    ambient: Ambient,
}

/// The tokens that a provider issued. The type does not implement `Debug`, because they are secrets.
pub struct ProviderTokens {
    /// A bearer token, opaque or a JWT.
    pub access_token: String,
    /// The identity token (`OpenID` Connect Core §2), if the scope `openid` was granted.
    pub id_token: Option<String>,
    /// The refresh token (RFC 6749 §1.5). A provider that does not rotate it may omit it from the response to a
    /// refresh.
    pub refresh_token: Option<String>,
    /// The granted scopes, separated by spaces, if the provider states them.
    pub scope: Option<String>,
    /// The lifetime of the access token, if the provider states it.
    pub lifetime: Option<Duration>,
}

/// The configuration of an identity provider.
#[derive(Debug, Clone, Copy)]
pub struct ProviderSettings<'a> {
    /// The provider's `iss`, exactly as in its tokens.
    pub issuer: &'a str,
    /// The client id at the provider.
    pub client_id: &'a str,
    /// A file with the secret of a confidential client, or `None` for a public client.
    pub client_secret_file: Option<&'a Path>,
    /// The authorization endpoint, for a provider whose metadata is not used.
    pub authorization_url: Option<&'a str>,
    /// The token endpoint, for a provider whose metadata is not used.
    pub token_url: Option<&'a str>,
}

/// An invalid setting of an identity provider.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ProviderSettingsError {
    /// The name of the setting.
    pub key: &'static str,
    /// What is wrong with the value.
    pub problem: String,
}

impl ProviderSettings<'_> {
    /// Returns the authorization endpoint and the token endpoint, if they are configured.
    fn endpoints(self) -> Result<Option<(Url, Url)>, ProviderSettingsError> {
        match (self.authorization_url, self.token_url) {
            (None, None) => Ok(None),
            (Some(authorization), Some(token)) => Ok(Some((
                http_url("authorization_url", authorization)?,
                http_url("token_url", token)?,
            ))),
            _ => Err(ProviderSettingsError {
                key: "authorization_url",
                problem: "and token_url require each other: set both or neither".to_owned(),
            }),
        }
    }

    /// Checks the constraints that the types cannot express. Reads no files.
    pub fn validate(self) -> Result<(), ProviderSettingsError> {
        http_url("issuer", self.issuer)?;
        if self.client_id.is_empty() {
            return Err(ProviderSettingsError {
                key: "client_id",
                problem: "is empty".to_owned(),
            });
        }
        self.endpoints().map(drop)
    }

    /// Returns the host where people sign in, to be shown on a page.
    pub fn host(self) -> String {
        let url = Url::parse(self.authorization_url.unwrap_or(self.issuer)).ok();
        let host = url.as_ref().and_then(Url::host_str);
        host.unwrap_or_default().to_owned()
    }

    async fn client(self) -> Result<RegisteredClient, ProviderSettingsError> {
        let proof = match self.client_secret_file {
            None => ClientProof::Nothing,
            Some(file) => {
                let read = tokio::fs::read_to_string(file).await;
                let read = read.map_err(|error| ProviderSettingsError {
                    key: "client_secret_file",
                    problem: format!("{} cannot be read: {error}", file.display()),
                })?;
                record_secret_file(SecretKind::Credential, file);
                ClientProof::Secret(Secret::from(read.trim_end_matches(['\r', '\n']).to_owned()))
            }
        };
        let id = self.client_id.to_owned();
        Ok(RegisteredClient { id, proof })
    }
}

/// Parses a URL to which secrets, codes and tokens are sent: it must be `https`, or the local machine.
fn http_url(key: &'static str, text: &str) -> Result<Url, ProviderSettingsError> {
    let wrong = |problem: &str| ProviderSettingsError {
        key,
        problem: format!("`{text}` {problem}"),
    };
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| wrong("is not an http(s) URL"))?;
    if url.scheme() == "http" && !url.host_str().is_some_and(is_loopback_host) {
        return Err(wrong("is plain http to another machine; use https"));
    }
    Ok(url)
}

impl ProviderClient {
    /// Checks the settings and reads the client secret, but sends no request to the provider yet.
    pub async fn open(
        settings: ProviderSettings<'_>,
        ambient: &Ambient,
    ) -> Result<Self, ProviderSettingsError> {
        settings.validate()?;
        let issuer = settings.issuer;
        let configured = settings.endpoints()?.map(|(authorization_url, token_url)| {
            AuthorizationServer::from_endpoints(
                Some(issuer.to_owned()),
                authorization_url,
                token_url,
            )
        });
        Ok(Self {
            issuer: issuer.to_owned(),
            client: settings.client().await?,
            provider: OnceCell::new_with(configured),
            // Such a provider is often in a private network of the operator.
            limits: EgressSettings {
                hosts: Vec::new(),
                private: PrivateAddresses::Allowed,
                network: NetworkSettings::default(),
                timeout: REQUEST_LIMIT,
                max_response_bytes: 0,
            },
            ambient: ambient.clone(),
        })
    }

    /// Returns the URL to which the browser is sent. `state` is returned with the code, and `further` are parameters
    /// such as `scope`.
    pub async fn authorization_url(
        &self,
        request: CodeRequest<'_>,
        state: &str,
        further: &[(&str, &str)],
    ) -> Result<Url, ConnectError> {
        let provider = self.provider().await?;
        let further = further.iter().copied();
        Ok(request.url(&provider.authorization_url, &self.client.id, state, further))
    }

    /// Checks that the authorization response came from this provider (RFC 9207). `said_issuer` is the `iss` of the
    /// response.
    pub async fn check_response(&self, said_issuer: Option<&str>) -> Result<(), ConnectError> {
        let provider = self.provider().await?;
        check_issuer(said_issuer, Some(&self.issuer), provider.names_itself)
    }

    /// Exchanges the code for tokens. `further` are parameters such as `resource`.
    pub async fn redeem_code(
        &self,
        request: CodeRequest<'_>,
        code: &str,
        further: &[(&str, &str)],
    ) -> Result<ProviderTokens, AuthError> {
        let mut form = request.form(code);
        form.extend(further);
        self.request_tokens(&form).await
    }

    /// Exchanges the code for an identity token, which is not verified yet. The response need not contain an access
    /// token.
    pub async fn redeem_code_for_id_token(
        &self,
        request: CodeRequest<'_>,
        code: &str,
    ) -> Result<String, AuthError> {
        let provider = self.provider().await?;
        let endpoint = self.endpoint(&provider.token_url, provider)?;
        let response = endpoint.send_form(&request.form(code)).await?;
        let response: Value = serde_json::from_slice(&response).unwrap_or_default();
        let token = response["id_token"].as_str();
        let token = token.ok_or(AuthError::BadAnswer("is not JSON with id_token"))?;
        Ok(token.to_owned())
    }

    /// Requests new tokens with a refresh token (RFC 6749 §6).
    pub async fn refresh(
        &self,
        refresh_token: &str,
        further: &[(&str, &str)],
    ) -> Result<ProviderTokens, AuthError> {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token),
        ];
        form.extend(further);
        self.request_tokens(&form).await
    }

    /// Returns the URL to which a browser is sent to end its session at the provider (`OpenID` Connect RP-Initiated
    /// Logout 1.0 §2), from where it returns to `back`. Returns `None` if the provider has no such endpoint.
    pub async fn end_session_url(
        &self,
        id_token: Option<&str>,
        back: &str,
    ) -> Result<Option<Url>, AuthError> {
        let Some(mut url) = self.provider().await?.end_session_url.clone() else {
            return Ok(None);
        };
        url.query_pairs_mut()
            .append_pair("client_id", &self.client.id)
            .append_pair("post_logout_redirect_uri", back)
            .extend_pairs(id_token.map(|token| ("id_token_hint", token)));
        Ok(Some(url))
    }

    /// Revokes a refresh token (RFC 7009). If the provider has no revocation endpoint, the token remains valid until it
    /// expires.
    pub async fn revoke(&self, refresh_token: &str) -> Result<(), AuthError> {
        let provider = self.provider().await?;
        let Some(url) = &provider.revocation_url else {
            return Ok(());
        };
        let form = [
            ("token", refresh_token),
            ("token_type_hint", "refresh_token"),
        ];
        self.endpoint(url, provider)?
            .send_form(&form)
            .await
            .map(drop)
    }

    async fn request_tokens(&self, form: &[(&str, &str)]) -> Result<ProviderTokens, AuthError> {
        let provider = self.provider().await?;
        let endpoint = self.endpoint(&provider.token_url, provider)?;
        let response = endpoint.request_token(form).await?;
        response.check_bearer()?;
        let lifetime = response.stated_lifetime()?;
        let TokenResponse {
            access_token,
            id_token,
            refresh_token,
            scope,
            ..
        } = response;
        Ok(ProviderTokens {
            access_token,
            id_token,
            refresh_token,
            scope,
            lifetime,
        })
    }

    fn endpoint(
        &self,
        url: &Url,
        provider: &AuthorizationServer,
    ) -> Result<TokenEndpoint, AuthError> {
        let place = EndpointLocation {
            url,
            issuer: Some(&self.issuer),
            methods: provider.methods.as_deref(),
        };
        let RegisteredClient { id, proof } = &self.client;
        TokenEndpoint::open(&place, id, proof, &self.limits, &self.ambient)
            .map_err(AuthError::endpoint)
    }

    async fn provider(&self) -> Result<&AuthorizationServer, AuthError> {
        let look = async {
            let finder = MetadataDiscovery::new(&self.limits);
            AuthorizationServer::from_metadata(finder.of_issuer(&self.issuer).await?)
        };
        // The timeout includes the wait for concurrent discoveries, so that an unavailable provider delays no request
        // for longer.
        let found = timeout(REQUEST_LIMIT, self.provider.get_or_try_init(|| look));
        let late = AuthError::NotFound("its metadata is not available now");
        found.await.unwrap_or(Err(late))
    }
}
