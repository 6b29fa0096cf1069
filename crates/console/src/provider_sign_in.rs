//! The console as a client of an identity provider: the authorization code flow of `OpenID` Connect Core §3.1 with
//! PKCE.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_edge::{Authenticator, TokenRefusal, leave_page};
use wardgate_egress::{AuthError, ProviderClient, ProviderTokens};

use crate::config::{SignInConfig, SignInConfigError, UsedToken, origin};
use crate::session::SessionToken;
use crate::store::StoreError;
use crate::stored_session::SessionTokens;

/// The path to which the provider redirects browsers.
pub(crate) const SIGNED_IN: &str = "/console/signed-in";

/// Maximum time that a sign-out waits for the provider's metadata.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// Time before the end of a token at which it is renewed, or a quarter of the token's lifetime if that is shorter.
const EARLY: Duration = Duration::from_mins(1);

/// The console as a client of an identity provider.
pub struct ProviderSignIn {
    pub(crate) client: ProviderClient,
    /// The host of the provider, as shown on the page to sign in.
    pub(crate) host: String,
    pub(crate) scope: String,
    pub(crate) parameters: BTreeMap<String, String>,
    resource: Option<String>,
    used: UsedToken,
    pub(crate) lasting: Duration,
    origin: String,
}

/// The reason why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error(
        "the sign-in was started in another browser, or more than ten minutes ago; start again"
    )]
    Lapsed,
    #[error("the provider did not sign you in")]
    Declined,
    #[error("the provider is not available now; try again")]
    Provider,
    #[error("the provider's token is not accepted: {0}")]
    Token(String),
    #[error("the provider's token cannot be verified now: {0}")]
    TokenUnverified(String),
    #[error("the session cannot be stored now; try again")]
    Store(#[from] StoreError),
}

impl ProviderSignIn {
    /// Checks the settings and reads the client secret, but sends no request to the provider yet. `public_url` is the
    /// address to which browsers return.
    pub async fn open(
        config: &SignInConfig,
        public_url: Option<&str>,
        ambient: &Ambient,
    ) -> Result<Self, SignInConfigError> {
        config.validate(public_url)?;
        let settings = config.provider();
        Ok(Self {
            client: ProviderClient::open(settings, ambient).await?,
            host: settings.host(),
            scope: config.scopes.join(" "),
            parameters: config.parameters.clone(),
            resource: config.resource.clone(),
            used: config.token,
            lasting: Duration::from_hours(config.session_hours.into()),
            origin: origin(public_url)?,
        })
    }

    pub(crate) fn redirect_uri(&self) -> String {
        format!("{}{SIGNED_IN}", self.origin)
    }

    pub(crate) fn resource(&self) -> Option<(&str, &str)> {
        Some(("resource", self.resource.as_deref()?))
    }

    /// Converts the provider's response to the tokens of a session, after it verified the token for the gateway like
    /// the gateway does. Tokens that the response omits are taken from `former`.
    pub(crate) async fn usable(
        &self,
        auth: &Authenticator,
        answer: ProviderTokens,
        former: Option<&SessionTokens>,
        now: Timestamp,
    ) -> Result<SessionTokens, SignInError> {
        let token = match self.used {
            UsedToken::Access => Some(answer.access_token),
            // A refresh response may omit the identity token (OpenID Connect Core §12.2).
            UsedToken::Identity => {
                let former = former.map(|former| former.token.clone());
                answer.id_token.clone().or(former)
            }
        };
        let token =
            token.ok_or_else(|| SignInError::Token("the provider returned no token".to_owned()))?;
        let caller = SessionToken::new(&token, None).verify(auth).await;
        let caller = caller.map_err(|refusal| match refusal {
            // If a key is not known yet, the token is not necessarily invalid.
            TokenRefusal::KeyUnknown => SignInError::TokenUnverified(refusal.description()),
            refusal if refusal.status().is_server_error() => {
                SignInError::TokenUnverified(refusal.description())
            }
            refusal => SignInError::Token(refusal.description()),
        })?;
        let ends_at = caller.expires_at();
        let is_same = former.is_some_and(|former| former.token == token);
        let early = if is_same {
            Duration::ZERO
        } else {
            EARLY.min(ends_at.since(now) / 4)
        };
        let refresh_token = former.and_then(|former| former.refresh_token.clone());
        let id_token = former.and_then(|former| former.id_token.clone());
        Ok(SessionTokens {
            token,
            refresh_token: answer.refresh_token.or(refresh_token),
            id_token: answer.id_token.or(id_token),
            renew_at_micros: ends_at.minus(early).as_micros(),
            ends_at_micros: ends_at.as_micros(),
        })
    }

    /// Requests new tokens with a refresh token.
    pub(crate) async fn refresh(&self, refresh_token: &str) -> Result<ProviderTokens, AuthError> {
        let further: Vec<_> = self.resource().into_iter().collect();
        self.client.refresh(refresh_token, &further).await
    }

    /// Revokes the refresh token in the background.
    pub(crate) fn revoke(self: &Arc<Self>, tokens: &SessionTokens) {
        let Some(refresh_token) = tokens.refresh_token.clone() else {
            return;
        };
        let sign_in = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = sign_in.client.revoke(&refresh_token).await {
                tracing::warn!(%error, "a refresh token was not revoked");
            }
        });
    }

    /// Returns a page that leads the browser to the provider to end its session there, or `None` if the provider's
    /// end-session URL is not known in time. The provider then redirects the browser to `path`.
    pub(crate) async fn leave(&self, tokens: &SessionTokens, path: &str) -> Option<Response> {
        let back = format!("{}{path}", self.origin);
        let url = self
            .client
            .end_session_url(tokens.id_token.as_deref(), &back);
        let url = tokio::time::timeout(LEAVE_LIMIT, url).await;
        Some(leave_page(url.ok()?.ok()??.as_str()))
    }
}
