//! Enterprise-managed authorization: the identity provider decides which service the caller may use (ID-JAG, SEP-990).
//!
//! ```text
//!   caller's token ─ token exchange at the identity provider ─▶ ID-JAG ─ jwt-bearer at the service's server ─▶ token
//! ```

use super::client::OAuthClient;
use super::server::{TOKEN_EXCHANGE, TokenEndpointClient};
use super::token::AccessToken;
use super::{AuthError, CallerToken};
use crate::{EgressError, EgressSettings};
use wardgate_domain::Ambient;

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The two clients that enterprise-managed authorization needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnterpriseSettings {
    /// The client at the authorization server of the service.
    pub client: OAuthClient,
    /// The client at the identity provider, which exchanges the caller's token for a grant.
    pub identity_provider: OAuthClient,
    /// The type of the caller's token.
    pub subject: SubjectToken,
}

/// The type under which the identity provider knows the caller's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubjectToken {
    /// An access token (RFC 8693 §3).
    #[default]
    AccessToken,
    /// An ID token (RFC 8693 §3).
    IdToken,
}

impl SubjectToken {
    fn as_str(self) -> &'static str {
        match self {
            Self::AccessToken => super::grant::ACCESS_TOKEN,
            Self::IdToken => "urn:ietf:params:oauth:token-type:id_token",
        }
    }
}

/// The clients of the two authorization servers.
pub(super) struct EnterpriseAuthorization {
    service: TokenEndpointClient,
    identity_provider: TokenEndpointClient,
    subject: SubjectToken,
}

impl EnterpriseAuthorization {
    pub(super) fn open(
        settings: &EnterpriseSettings,
        limits: &EgressSettings,
        ambient: &Ambient,
    ) -> Result<Self, EgressError> {
        Ok(Self {
            service: TokenEndpointClient::open(&settings.client, limits, ambient)?,
            identity_provider: TokenEndpointClient::open(
                &settings.identity_provider,
                limits,
                ambient,
            )?,
            subject: settings.subject,
        })
    }

    pub(super) fn ambient(&self) -> &Ambient {
        self.service.ambient()
    }

    pub(super) fn may_widen(&self) -> bool {
        self.service.may_widen()
    }

    /// Requests a token that represents the caller. It is not used for longer than the caller's own token.
    pub(super) async fn token(
        &self,
        caller: CallerToken<'_>,
        wider: String,
    ) -> Result<AccessToken, AuthError> {
        let found = self.service.resolve().await?;
        let audience = found.audience.as_deref().or(found.issuer.as_deref());
        let audience = audience.ok_or(AuthError::NotFound(
            "the issuer, which is the audience of the ID-JAG, is not known",
        ))?;
        let (resource, scope) = (found.resource.as_deref(), found.scope(&wider));
        let grant = self.grant(caller, audience, resource, scope.as_deref());
        let grant = grant.await?;
        let mut form = vec![("grant_type", JWT_BEARER), ("assertion", grant.as_str())];
        form.extend(scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(resource.map(|resource| ("resource", resource)));
        let longest = caller.expires_at.since(self.ambient().now());
        let granted = found.endpoint.access_token(&form, Some(longest)).await;
        self.service.forget_if_refused(granted).await
    }

    /// Requests the identity provider's grant for the caller to use the service. A grant is used once, so it is not
    /// cached.
    async fn grant(
        &self,
        caller: CallerToken<'_>,
        audience: &str,
        resource: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, AuthError> {
        let provider = self.identity_provider.resolve().await?;
        let mut form = vec![
            ("grant_type", TOKEN_EXCHANGE),
            ("requested_token_type", ID_JAG),
            ("audience", audience),
            ("subject_token", caller.token),
            ("subject_token_type", self.subject.as_str()),
        ];
        form.extend(resource.map(|resource| ("resource", resource)));
        form.extend(scope.map(|scope| ("scope", scope)));
        let granted = provider.endpoint.request_token(&form).await;
        let granted = self.identity_provider.forget_if_refused(granted).await?;
        // An ID-JAG is not an access token and must not be sent as one.
        if granted.issued_token_type.as_deref() != Some(ID_JAG) {
            return Err(AuthError::BadAnswer("is not an ID-JAG"));
        }
        Ok(granted.access_token)
    }
}
