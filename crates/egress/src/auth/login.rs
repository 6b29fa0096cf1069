//! The sign-in of a person at a command line: the authorization code flow with a loopback redirect (RFC 8252) or, if no
//! browser is available, the device flow (RFC 8628).
//!
//! ```text
//!   gateway ─ RFC 9728 ─▶ issuer ─ RFC 8414 ─▶ client id: configured, or registered (RFC 7591)
//!        ├── authorization_url ─▶ browser ─▶ http://127.0.0.1:PORT/ ─▶ redeem
//!        └── start_device ─▶ the person enters a code ─▶ poll_device
//! ```

use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;
use wardgate_domain::Ambient;

use super::code::{CodeRequest, check_issuer};
use super::discovery::{MetadataDiscovery, check_scheme};
use super::grant::{EndpointLocation, TokenEndpoint, TokenResponse};
use super::{AuthError, ClientProof};
use crate::{Egress, EgressRequest, EgressSettings, NetworkSettings, PrivateAddresses};

/// Maximum time of one request to a gateway or a provider.
const LIMIT: Duration = Duration::from_secs(15);
const MAX_DOCUMENT_BYTES: usize = 64 * 1024;
/// Interval between two polls in seconds, unless the server states another one (RFC 8628 §3.2). Also the increment for
/// `slow_down`.
const INTERVAL: u64 = 5;
const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The provider and the client with which a person signs in to one gateway. It is stored with the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginServer {
    /// The issuer of the provider, exactly as the provider spells it.
    pub issuer: String,
    /// The resource for which the tokens are issued (RFC 8707).
    pub resource: String,
    /// The requested scopes, separated by spaces.
    pub scope: Option<String>,
    /// The client id at the provider.
    pub client_id: String,
    authorization_url: Option<Url>,
    token_url: Url,
    device_url: Option<Url>,
    names_itself: bool,
}

/// The tokens of a person who signed in.
#[derive(Debug, Clone)]
pub struct LoginTokens {
    /// The access token, which is sent with every request.
    pub access_token: String,
    /// The lifetime of the access token.
    pub lifetime: Duration,
    /// The refresh token, or `None` if the person has to sign in again when the access token expires.
    pub refresh_token: Option<String>,
}

/// The code that a person enters on another device (RFC 8628 §3.2).
#[derive(Debug, Clone, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of RFC 8628")]
pub struct DeviceCode {
    device_code: String,
    /// The code to enter.
    pub user_code: String,
    /// The URL of the page where the code is entered.
    pub verification_uri: String,
    /// The URL of the same page with the code included, if the server returned it.
    pub verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default = "interval")]
    interval: u64,
}

fn interval() -> u64 {
    INTERVAL
}

/// A client that signs in at the provider of one gateway.
pub struct LoginClient {
    server: LoginServer,
    endpoint: TokenEndpoint,
}

fn limits() -> EgressSettings {
    // The person names the gateway, which is often in a private network.
    EgressSettings {
        hosts: Vec::new(),
        private: PrivateAddresses::Allowed,
        network: NetworkSettings::default(),
        timeout: LIMIT,
        max_response_bytes: 0,
    }
}

impl LoginClient {
    /// Discovers the provider of the gateway at `service`. If `client_id` is `None`, registers a client with
    /// `redirect_uri`.
    pub async fn discover(
        service: &Url,
        client_id: Option<String>,
        scope: Option<String>,
        redirect_uri: &str,
        ambient: &Ambient,
    ) -> Result<Self, AuthError> {
        let finder = MetadataDiscovery::new(&limits());
        let protected = finder.of_service(service).await?;
        let metadata = finder.of_issuer(&protected.issuer).await?;
        let client_id = match (client_id, &metadata.registration_endpoint) {
            (Some(id), _) => id,
            (None, Some(endpoint)) => register(&endpoint.0, redirect_uri).await?,
            (None, None) => {
                return Err(AuthError::NotFound(
                    "it does not register clients; specify one with --client-id",
                ));
            }
        };
        let device_url = metadata.device_authorization_endpoint.map(|url| url.0);
        if let Some(url) = &device_url {
            check_scheme(url, service)?;
        }
        Self::with_server(
            LoginServer {
                issuer: metadata.issuer,
                resource: protected.resource,
                scope: scope.or(protected.scope),
                client_id,
                authorization_url: metadata.authorization_endpoint.map(|url| url.0),
                token_url: metadata.token_endpoint.0,
                device_url,
                names_itself: metadata.authorization_response_iss_parameter_supported,
            },
            ambient,
        )
    }

    /// Creates a client for a provider that was discovered before.
    pub fn with_server(server: LoginServer, ambient: &Ambient) -> Result<Self, AuthError> {
        let place = EndpointLocation {
            url: &server.token_url,
            issuer: Some(&server.issuer),
            methods: None,
        };
        let (id, proof) = (&server.client_id, ClientProof::Nothing);
        let endpoint = TokenEndpoint::open(&place, id, &proof, &limits(), ambient);
        Ok(Self {
            endpoint: endpoint.map_err(AuthError::endpoint)?,
            server,
        })
    }

    /// Returns the provider and the client, to be stored.
    pub fn server(&self) -> &LoginServer {
        &self.server
    }

    /// Returns the URL to which the browser is sent, or `None` if the provider has no authorization endpoint.
    pub fn authorization_url(&self, request: CodeRequest<'_>, state: &str) -> Option<Url> {
        let endpoint = self.server.authorization_url.as_ref()?;
        Some(request.url(endpoint, &self.server.client_id, state, self.terms()))
    }

    /// Exchanges the code for tokens. `said_issuer` is the `iss` of the authorization response.
    pub async fn redeem(
        &self,
        request: CodeRequest<'_>,
        code: &str,
        said_issuer: Option<&str>,
    ) -> Result<LoginTokens, AuthError> {
        let LoginServer {
            issuer,
            names_itself,
            ..
        } = &self.server;
        check_issuer(said_issuer, Some(issuer), *names_itself)
            .map_err(|_| AuthError::BadAnswer("came from another issuer"))?;
        let mut form = request.form(code);
        form.push(("resource", self.server.resource.as_str()));
        tokens(self.endpoint.request_token(&form).await?)
    }

    /// Requests new tokens with a refresh token.
    pub async fn refresh(&self, refresh_token: &str) -> Result<LoginTokens, AuthError> {
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token),
            ("resource", self.server.resource.as_str()),
        ];
        let mut tokens = tokens(self.endpoint.request_token(&form).await?)?;
        // A server that does not rotate the refresh token may omit it (RFC 6749 §6).
        let kept = || refresh_token.to_owned();
        tokens.refresh_token = Some(tokens.refresh_token.unwrap_or_else(kept));
        Ok(tokens)
    }

    /// Requests a code for the device flow, or returns `None` if the provider does not support it.
    pub async fn start_device(&self) -> Result<Option<DeviceCode>, AuthError> {
        let Some(url) = &self.server.device_url else {
            return Ok(None);
        };
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.append_pair("client_id", &self.server.client_id)
            .extend_pairs(self.terms());
        let request = EgressRequest::new(Method::POST, url.clone())
            .body("application/x-www-form-urlencoded", body.finish());
        let code = exchange(url, request).await?;
        let code = serde_json::from_slice(&code);
        code.map(Some)
            .map_err(|_| AuthError::BadAnswer("is not JSON with device_code and user_code"))
    }

    /// Polls at the server's interval until the person has entered the code.
    pub async fn poll_device(&self, code: &DeviceCode) -> Result<LoginTokens, AuthError> {
        let form = [
            ("grant_type", DEVICE_CODE),
            ("device_code", code.device_code.as_str()),
        ];
        let mut pause = Duration::from_secs(code.interval.max(1));
        let waiting = async {
            loop {
                tokio::time::sleep(pause).await;
                match self.endpoint.request_token(&form).await {
                    Ok(response) => return tokens(response),
                    Err(AuthError::Refused {
                        code: Some("authorization_pending"),
                        ..
                    }) => {}
                    Err(AuthError::Refused {
                        code: Some("slow_down"),
                        ..
                    }) => pause += Duration::from_secs(INTERVAL),
                    Err(error) => return Err(error),
                }
            }
        };
        let limit = Duration::from_secs(code.expires_in);
        let ended = tokio::time::timeout(limit, waiting).await;
        ended.unwrap_or(Err(AuthError::Refused {
            status: 400,
            code: Some("expired_token"),
        }))
    }

    /// Returns the parameters that every authorization request has in addition.
    fn terms(&self) -> Vec<(&str, &str)> {
        let scope = self.server.scope.as_deref().map(|scope| ("scope", scope));
        let resource = ("resource", self.server.resource.as_str());
        scope.into_iter().chain([resource]).collect()
    }
}

fn tokens(response: TokenResponse) -> Result<LoginTokens, AuthError> {
    response.check_bearer()?;
    Ok(LoginTokens {
        lifetime: response.lifetime()?,
        access_token: response.access_token,
        refresh_token: response.refresh_token,
    })
}

/// Registers a public client (RFC 7591) and returns its id.
async fn register(url: &Url, redirect_uri: &str) -> Result<String, AuthError> {
    #[derive(Deserialize)]
    struct Registration {
        client_id: String,
    }
    let client = json!({
        "client_name": "wardgate",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token", DEVICE_CODE],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    let request =
        EgressRequest::new(Method::POST, url.clone()).body("application/json", client.to_string());
    let answer = exchange(url, request).await?;
    let Registration { client_id } = serde_json::from_slice(&answer)
        .map_err(|_| AuthError::BadAnswer("to the registration is not JSON with client_id"))?;
    Ok(client_id)
}

async fn exchange(url: &Url, request: EgressRequest) -> Result<bytes::Bytes, AuthError> {
    let settings = limits().toward(url, LIMIT, MAX_DOCUMENT_BYTES);
    let egress = Egress::open(settings).map_err(AuthError::endpoint)?;
    let request = request.header(ACCEPT, HeaderValue::from_static("application/json"));
    let response = egress.send(request).await.map_err(AuthError::endpoint)?;
    let status = response.status;
    let body = response.body.bytes().await.map_err(AuthError::endpoint)?;
    if status.is_success() {
        Ok(body)
    } else {
        Err(AuthError::Refused {
            status: status.as_u16(),
            code: None,
        })
    }
}
