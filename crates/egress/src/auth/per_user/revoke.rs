//! The end of a grant: revokes the tokens at the authorization server (RFC 7009).
//!
//! The tokens are removed from the store beforehand, so a failure does not keep them usable here. If the server has no
//! revocation endpoint, the tokens remain valid there until they expire.

use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use super::Person;
use super::UserGrants;
use super::tokens::Tokens;
use crate::auth::AuthError;
use crate::auth::discovery::MetadataDiscovery;

/// Maximum time of a revocation.
const LIMIT: Duration = Duration::from_secs(5);

/// The grant of one person to a source, to be revoked.
pub struct Grant(Tokens);

/// The reason why a grant was not revoked.
#[derive(Debug, thiserror::Error)]
enum RevocationError {
    #[error("the authorization server has no revocation endpoint (`revocation_endpoint`)")]
    NoEndpoint,
    #[error("the authorization server did not answer in time")]
    Late,
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl Grant {
    pub(super) fn from_tokens(tokens: Tokens) -> Self {
        Self(tokens)
    }
}

impl UserGrants {
    /// Returns the person's grant, or `None` if there is none or it cannot be read.
    pub async fn grant(&self, person: &Person) -> Option<Grant> {
        let kept = self.load_tokens(person).await.ok().flatten();
        kept.map(|kept| Grant(kept.tokens))
    }

    /// Revokes the grant at its server. A failure is logged, so that the operator can revoke the grant manually.
    pub async fn revoke(&self, grant: Grant) {
        let revoked = timeout(LIMIT, self.take_back(&grant.0)).await;
        if let Err(error) = revoked.unwrap_or(Err(RevocationError::Late)) {
            warn!(
                source = self.source,
                %error,
                "a user's grant was deleted here, but not revoked at its authorization server"
            );
        }
    }

    async fn take_back(&self, tokens: &Tokens) -> Result<(), RevocationError> {
        let issuer = tokens.at.issuer.as_deref();
        let issuer = issuer.ok_or(RevocationError::NoEndpoint)?;
        let metadata = MetadataDiscovery::new(&self.limits)
            .of_issuer(issuer)
            .await?;
        let url = metadata.revocation_endpoint;
        let url = url.ok_or(RevocationError::NoEndpoint)?.0;
        let endpoint = self.endpoint_at(&url, &tokens.at, &tokens.client_id)?;
        if let Some(token) = &tokens.refresh_token {
            let form = [("token", &**token), ("token_type_hint", "refresh_token")];
            endpoint.send_form(&form).await?;
        }
        // Not every server revokes the access token together with the refresh token.
        let token = &*tokens.access_token;
        let form = [("token", token), ("token_type_hint", "access_token")];
        match endpoint.send_form(&form).await {
            // Not every server can revoke access tokens: RFC 7009 §2.2.1.
            Err(AuthError::Refused { status: 400, .. }) if tokens.refresh_token.is_some() => Ok(()),
            told => Ok(told.map(drop)?),
        }
    }
}
