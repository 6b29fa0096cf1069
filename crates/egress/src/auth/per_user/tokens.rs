//! The tokens of one grant and what is needed to refresh them. The types do not implement `Debug`.

use std::time::Duration;

use http::HeaderValue;
use serde::{Deserialize, Serialize};
use url::Url;
use wardgate_domain::{Ambient, Timestamp};

use super::{StoreUnavailable, UserGrants};
use crate::auth::client::ClientProof;
use crate::auth::grant::{EndpointLocation, TokenEndpoint, TokenResponse};
use crate::auth::{AuthError, ConnectError, Secret, bearer};

/// Maximum time before its expiry from which on a token is not used any more.
const LONGEST_MARGIN: Duration = Duration::from_secs(30);

/// Tokens and their version in the store.
pub(super) struct HeldTokens {
    pub(super) tokens: Tokens,
    pub(super) version: i64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) at: Registration,
    #[serde(rename = "client")]
    pub(super) client_id: String,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) use_until_micros: i64,
    pub(super) resource: Option<String>,
    /// The scopes that were requested from the person.
    pub(super) scope: Option<String>,
}

/// The server that issued the tokens, and its registration of the client.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Registration {
    pub(super) issuer: Option<String>,
    pub(super) token_url: String,
    pub(super) methods: Option<Vec<String>>,
    /// The secret of a dynamically registered client.
    pub(super) secret: Option<String>,
}

impl Tokens {
    /// Creates the tokens from the response to a request that was sent at `asked_at`.
    pub(super) fn new(
        granted: TokenResponse,
        at: Registration,
        client_id: String,
        resource: Option<String>,
        scope: Option<String>,
        asked_at: Timestamp,
    ) -> Result<Self, AuthError> {
        granted.check_bearer()?;
        let lifetime = granted.lifetime()?;
        let margin = (lifetime / 10).min(LONGEST_MARGIN);
        let tokens = Self {
            at,
            client_id,
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            use_until_micros: asked_at.plus(lifetime.saturating_sub(margin)).as_micros(),
            resource,
            scope,
        };
        // Tokens that cannot be sent in a header are not stored.
        tokens.authorization()?;
        Ok(tokens)
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Serializes the tokens. This cannot fail, because all keys are strings.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn authorization(&self) -> Result<HeaderValue, AuthError> {
        bearer(&self.access_token)
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        now < Timestamp::from_micros(self.use_until_micros)
    }

    /// Requests new tokens. If the server returns no new refresh token, the old one remains in use.
    pub(super) async fn refresh(
        &self,
        endpoint: &TokenEndpoint,
        ambient: &Ambient,
    ) -> Result<Self, AuthError> {
        let asked_at = ambient.now();
        let refresh_token = self.refresh_token.as_deref().unwrap_or_default();
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token),
        ];
        form.extend(
            self.resource
                .as_deref()
                .map(|resource| ("resource", resource)),
        );
        let granted = endpoint.request_token(&form).await?;
        let (at, client_id) = (self.at.clone(), self.client_id.clone());
        let (resource, scope) = (self.resource.clone(), self.scope.clone());
        let mut tokens = Self::new(granted, at, client_id, resource, scope, asked_at)?;
        if tokens.refresh_token.is_none() {
            tokens.refresh_token.clone_from(&self.refresh_token);
        }
        Ok(tokens)
    }
}

impl UserGrants {
    /// Returns the endpoint that issued the tokens.
    pub(super) fn endpoint_of(&self, tokens: &Tokens) -> Result<TokenEndpoint, AuthError> {
        self.endpoint(&tokens.at, &tokens.client_id)
    }

    pub(super) fn endpoint(
        &self,
        at: &Registration,
        client_id: &str,
    ) -> Result<TokenEndpoint, AuthError> {
        let url =
            Url::parse(&at.token_url).map_err(|_| AuthError::NotFound("its URL is not valid"))?;
        self.endpoint_at(&url, at, client_id)
    }

    /// Returns another endpoint of the same server, for the same client.
    pub(super) fn endpoint_at(
        &self,
        url: &Url,
        at: &Registration,
        client_id: &str,
    ) -> Result<TokenEndpoint, AuthError> {
        let proof = match (&self.settings.client, &at.secret) {
            (Some(client), _) => client.proof.clone(),
            (None, Some(secret)) => ClientProof::Secret(Secret::from(secret.clone())),
            (None, None) => ClientProof::Nothing,
        };
        let place = EndpointLocation {
            url,
            issuer: at.issuer.as_deref(),
            methods: at.methods.as_deref(),
        };
        TokenEndpoint::open(&place, client_id, &proof, &self.limits, &self.ambient)
            .map_err(AuthError::endpoint)
    }
}

impl From<StoreUnavailable> for ConnectError {
    fn from(StoreUnavailable: StoreUnavailable) -> Self {
        Self::Store
    }
}
