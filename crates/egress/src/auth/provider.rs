//! A client of an identity provider: it signs in who sits before a browser (`OpenID` Connect Core §3.1), and gets tokens
//! for other clients, which use them as they are.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use url::Url;
use wardgate_domain::{Ambient, is_loopback_host};

use super::code::{AuthorizationServer, CodeRequest, check_issuer};
use super::discovery::MetadataDiscovery;
use super::grant::{EndpointLocation, TokenEndpoint, TokenResponse};
use super::{AuthError, ClientProof, ConnectError, RegisteredClient, Secret};
use crate::{EgressSettings, NetworkSettings, PrivateAddresses};

/// Of one request to an identity provider.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A client of an identity provider that the operator names.
pub struct ProviderClient {
    issuer: String,
    client: RegisteredClient,
    provider: OnceCell<AuthorizationServer>,
    limits: EgressSettings,
    ambient: Ambient,
}

/// What a provider gave. Not shown: they are secrets.
pub struct ProviderTokens {
    /// A bearer token, opaque or a JWT.
    pub access_token: String,
    /// `OpenID` Connect Core §2, where the scope `openid` was granted.
    pub id_token: Option<String>,
    /// RFC 6749 §1.5; a provider that does not replace it may leave it out of the answer to a refresh.
    pub refresh_token: Option<String>,
    /// What was granted, where the provider says so, separated by spaces.
    pub scope: Option<String>,
    /// How long the access token lasts, where the provider says so.
    pub lifetime: Option<Duration>,
}

/// What an operator says of an identity provider.
#[derive(Debug, Clone, Copy)]
pub struct ProviderSettings<'a> {
    /// The provider's `iss`, to the letter.
    pub issuer: &'a str,
    /// Our name there.
    pub client_id: &'a str,
    /// A file with the secret of a confidential client. None: a public client.
    pub client_secret_file: Option<&'a Path>,
    /// Where browsers go, of a provider whose metadata does not say so.
    pub authorization_url: Option<&'a str>,
    /// The same: where codes become tokens.
    pub token_url: Option<&'a str>,
}

/// A setting of an identity provider that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ProviderSettingsError {
    /// Which one.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl ProviderSettings<'_> {
    /// Where browsers go and where codes become tokens, if the settings say so.
    fn endpoints(self) -> Result<Option<(Url, Url)>, ProviderSettingsError> {
        match (self.authorization_url, self.token_url) {
            (None, None) => Ok(None),
            (Some(authorization), Some(token)) => Ok(Some((
                http_url("authorization_url", authorization)?,
                http_url("token_url", token)?,
            ))),
            _ => Err(ProviderSettingsError {
                key: "authorization_url",
                problem: "and token_url belong together: write both or neither".to_owned(),
            }),
        }
    }

    /// Checks what types alone cannot, and reads nothing.
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

    /// Where people sign in, as a page names it.
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
                ClientProof::Secret(Secret::from(read.trim_end_matches(['\r', '\n']).to_owned()))
            }
        };
        let id = self.client_id.to_owned();
        Ok(RegisteredClient { id, proof })
    }
}

/// Secrets, codes and tokens go there: by `https`, or to this very machine.
fn http_url(key: &'static str, text: &str) -> Result<Url, ProviderSettingsError> {
    let wrong = |problem: &str| ProviderSettingsError {
        key,
        problem: format!("`{text}` {problem}"),
    };
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| wrong("is no http(s) URL"))?;
    if url.scheme() == "http" && !url.host_str().is_some_and(is_loopback_host) {
        return Err(wrong("is plain http to another machine; use https"));
    }
    Ok(url)
}

impl ProviderClient {
    /// Checks the settings and reads the secret; asks the provider for nothing yet.
    pub async fn open(
        settings: ProviderSettings<'_>,
        ambient: &Ambient,
    ) -> Result<Self, ProviderSettingsError> {
        settings.validate()?;
        let issuer = settings.issuer;
        let configured = settings.endpoints()?.map(|(authorization_url, token_url)| {
            AuthorizationServer::configured(Some(issuer.to_owned()), authorization_url, token_url)
        });
        Ok(Self {
            issuer: issuer.to_owned(),
            client: settings.client().await?,
            provider: OnceCell::new_with(configured),
            // Such a provider is often in a network of the operator's own.
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

    /// Where the browser goes; `state` comes back with the code. `further` are parameters such as `scope`.
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

    /// Checks that it was this provider who sent the browser back (RFC 9207): `said_issuer` is the `iss` it came with.
    pub async fn check_response(&self, said_issuer: Option<&str>) -> Result<(), ConnectError> {
        let provider = self.provider().await?;
        check_issuer(said_issuer, Some(&self.issuer), provider.names_itself)
    }

    /// The tokens that the code is good for. `further` are parameters such as `resource`.
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

    /// The identity token that the code is good for, not verified yet. An access token is not asked for.
    pub async fn redeem_code_for_id_token(
        &self,
        request: CodeRequest<'_>,
        code: &str,
    ) -> Result<String, AuthError> {
        let provider = self.provider().await?;
        let endpoint = self.endpoint(&provider.token_url, provider)?;
        let response = endpoint.tell(&request.form(code)).await?;
        let response: Value = serde_json::from_slice(&response).unwrap_or_default();
        let token = response["id_token"].as_str();
        let token = token.ok_or(AuthError::BadAnswer("is no JSON with id_token"))?;
        Ok(token.to_owned())
    }

    /// Newer tokens (RFC 6749 §6).
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

    /// Where a browser goes to end its session at the provider too (`OpenID` Connect RP-Initiated Logout 1.0 §2), which
    /// sends it back to `back`. None where the provider names no such page.
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

    /// Has the provider end what was granted (RFC 7009). One that names no endpoint for that keeps it until it expires.
    pub async fn revoke(&self, refresh_token: &str) -> Result<(), AuthError> {
        let provider = self.provider().await?;
        let Some(url) = &provider.revocation_url else {
            return Ok(());
        };
        let form = [
            ("token", refresh_token),
            ("token_type_hint", "refresh_token"),
        ];
        self.endpoint(url, provider)?.tell(&form).await.map(drop)
    }

    async fn request_tokens(&self, form: &[(&str, &str)]) -> Result<ProviderTokens, AuthError> {
        let provider = self.provider().await?;
        let endpoint = self.endpoint(&provider.token_url, provider)?;
        let response = endpoint.ask(form).await?;
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
            AuthorizationServer::found(finder.of_issuer(&self.issuer).await?)
        };
        // With the wait for others who look for it, so that a provider that is away holds up nobody for longer.
        let found = timeout(REQUEST_LIMIT, self.provider.get_or_try_init(|| look));
        let late = AuthError::NotFound("its metadata cannot be had now");
        found.await.unwrap_or(Err(late))
    }
}
