//! The client at an authorization server: registered manually, described by a metadata document of the gateway (CIMD),
//! or registered dynamically (RFC 7591), in this order of preference.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;
use wardgate_domain::About;

use super::UserGrants;
use super::start::GrantRequest;
use crate::auth::code::AuthorizationServer;
use crate::auth::{AuthError, ConnectError};
use crate::{Egress, EgressRequest};

/// Maximum time for which a dynamically registered client is used.
const KEPT: Duration = Duration::from_hours(30 * 24);

const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A client and its secret. The authentication of a configured client is in the settings.
#[derive(Serialize, Deserialize)]
pub(super) struct ClientIdentity {
    pub(super) id: String,
    pub(super) secret: Option<String>,
}

/// The response to a client registration.
#[derive(Deserialize)]
struct RegistrationResponse {
    #[serde(rename = "client_id")]
    id: String,
    #[serde(rename = "client_secret")]
    secret: Option<String>,
    /// The expiry of the secret in seconds since 1970, or 0 if it does not expire.
    #[serde(default, rename = "client_secret_expires_at")]
    expires_at: i64,
}

impl UserGrants {
    pub(super) async fn client(
        &self,
        facts: &AuthorizationServer,
        request: &GrantRequest<'_>,
    ) -> Result<ClientIdentity, ConnectError> {
        if let Some(client) = &self.settings.client {
            return Ok(ClientIdentity {
                id: client.id.clone(),
                secret: None,
            });
        }
        if let Some(url) = request.client_metadata_url
            && facts.takes_metadata_documents
        {
            return Ok(ClientIdentity {
                id: url.to_owned(),
                secret: None,
            });
        }
        let registration = facts.registration_url.as_ref().zip(facts.issuer.as_ref());
        let (url, issuer) = registration.ok_or(ConnectError::NoClient)?;
        let about = self.registration(issuer, request.redirect_uri);
        if let Some(client) = self.load_registration(&about).await? {
            return Ok(client);
        }
        let registered = self.register(url, facts, request.redirect_uri).await?;
        let forever = self.now().plus(KEPT);
        let until = match registered.expires_at {
            0 => forever,
            seconds => forever.min(wardgate_domain::Timestamp::from_seconds(seconds)),
        };
        let client = ClientIdentity {
            id: registered.id,
            secret: registered.secret,
        };
        let plain = serde_json::to_vec(&client).map_err(|_| ConnectError::Store)?;
        self.store.register_client(&about, &plain, until).await?;
        // Another replica may have registered a client first.
        Ok(self.load_registration(&about).await?.unwrap_or(client))
    }

    /// Returns the context under which a registered client is stored.
    pub(super) fn registration(&self, issuer: &str, redirect_uri: &str) -> About {
        About::new("registered client")
            .and(self.source.as_bytes())
            .and(issuer.as_bytes())
            .and(redirect_uri.as_bytes())
    }

    async fn load_registration(
        &self,
        about: &About,
    ) -> Result<Option<ClientIdentity>, ConnectError> {
        let plain = self.store.registered_client(about).await?;
        Ok(plain.and_then(|plain| serde_json::from_slice(&plain).ok()))
    }

    async fn register(
        &self,
        url: &Url,
        facts: &AuthorizationServer,
        redirect_uri: &str,
    ) -> Result<RegistrationResponse, ConnectError> {
        let offers = |method: &str| {
            let methods = facts.methods.as_ref();
            methods.is_some_and(|methods| methods.iter().any(|offered| offered == method))
        };
        // If the metadata does not list methods, a public client is what MCP servers expect.
        let method = ["none", "client_secret_basic", "client_secret_post"]
            .into_iter()
            .find(|method| offers(method))
            .unwrap_or("none");
        let client = json!({
            "client_name": "Wardgate",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "application_type": "web",
        });
        let limits = &self.limits;
        let settings = limits.toward(url, limits.timeout, MAX_ANSWER_BYTES);
        let request = EgressRequest::new(Method::POST, url.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body("application/json", client.to_string());
        let egress = Egress::open(settings).map_err(AuthError::endpoint)?;
        let response = egress.send(request).await.map_err(AuthError::endpoint)?;
        let status = response.status;
        let body: Bytes = response.body.bytes().await.map_err(AuthError::endpoint)?;
        if !status.is_success() {
            return Err(AuthError::Refused {
                status: status.as_u16(),
                code: None,
            }
            .into());
        }
        serde_json::from_slice(&body)
            .map_err(|_| AuthError::BadAnswer("is not JSON with client_id").into())
    }
}
