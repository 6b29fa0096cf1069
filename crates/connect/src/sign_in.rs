//! The gateway as a client of the issuer that signs in users (`OpenID` Connect Core, code flow with PKCE).

use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use wardgate_domain::{Ambient, AttributeValue, Caller};
use wardgate_edge::{AuthConfig, Authenticator, IssuerConfig};
use wardgate_egress::{CodeRequest, ConnectError, ProviderClient, ProviderSettings};

use crate::{Error, SignInConfig};

/// A claim that no token has, so that a signed-in user has no roles.
const NO_ROLES: &str = "wardgate_no_roles";

/// The sign-in of users.
pub(crate) struct SignIn {
    pub(crate) provider: ProviderClient,
    /// Verifies the identity tokens that the issuer issued for the gateway.
    identities: Authenticator,
}

/// The reason why a user is not signed in. It contains nothing that was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the issuer is not available now: {0}")]
    Issuer(#[from] ConnectError),
    #[error("the response is not from the issuer of this sign-in")]
    Foreign,
}

impl SignIn {
    /// Reads the secret, and loads the keys of the issuer but nothing else.
    pub(crate) async fn open(
        config: &SignInConfig,
        auth: &AuthConfig,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
        let (provider, trusted) = open_provider(config, auth, ambient).await?;
        // The identity tokens have the gateway as their audience, and give no rights.
        let identity = IssuerConfig {
            audience: Some(config.client_id.clone()),
            roles: None,
            tenant_claim: None,
            token_type: None,
            roles_claim: NO_ROLES.to_owned(),
            attributes: [("nonce".to_owned(), "nonce".to_owned())].into(),
            ..trusted.clone()
        };
        let identities = AuthConfig::of_issuers(vec![identity]);
        Ok(Self {
            provider,
            identities: Authenticator::new(identities, None, ambient.clone()).await?,
        })
    }

    /// Redeems the code, and returns the user who signed in. `said_issuer` is the `iss` parameter of the redirect.
    pub(crate) async fn verify_user(
        &self,
        request: CodeRequest<'_>,
        nonce: &str,
        code: &str,
        said_issuer: Option<&str>,
    ) -> Result<Arc<Caller>, SignInError> {
        self.provider.check_response(said_issuer).await?;
        let token = self.provider.redeem_code_for_id_token(request, code).await;
        let token = token.map_err(ConnectError::from)?;
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.map_err(|_| SignInError::Foreign)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
        let verified = self.identities.verify_request(&headers, &[]).await;
        let caller = verified.map_err(|_| SignInError::Foreign)?.caller;
        if caller.attributes().get("nonce") != Some(&AttributeValue::Text(nonce.to_owned())) {
            return Err(SignInError::Foreign);
        }
        Ok(caller)
    }
}

/// Reads the secret, but sends no request. Returns the client of the issuer, and the issuer's settings among those in `auth`.
pub(crate) async fn open_provider<'a>(
    config: &SignInConfig,
    auth: &'a AuthConfig,
    ambient: &Ambient,
) -> Result<(ProviderClient, &'a IssuerConfig), Error> {
    let wrong = |what: &str| Error::Config(format!("gateway.sign_in.{what}"));
    let trusted = auth.issuers.iter().find(|it| it.issuer == config.issuer);
    let trusted =
        trusted.ok_or_else(|| wrong("issuer: must be exactly one of gateway.auth.issuers"))?;
    let provider = ProviderSettings {
        issuer: &config.issuer,
        client_id: &config.client_id,
        client_secret_file: config.client_secret_file.as_deref(),
        authorization_url: config.authorization_url.as_deref(),
        token_url: config.token_url.as_deref(),
    };
    let provider = ProviderClient::open(provider, ambient).await;
    let provider = provider.map_err(|error| wrong(&error.to_string()))?;
    Ok((provider, trusted))
}
