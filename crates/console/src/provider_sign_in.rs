//! The console as a client of an identity provider: `OpenID` Connect Core §3.1, the code flow with PKCE.

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

/// Where the provider sends browsers back to.
pub(crate) const SIGNED_IN: &str = "/console/signed-in";

/// How long somebody who signs out waits for the provider's metadata.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// Newer tokens are fetched so long before the former ones end; a quarter of their life, if that is shorter.
const EARLY: Duration = Duration::from_mins(1);

/// The console as a client of an identity provider.
pub struct ProviderSignIn {
    pub(crate) client: ProviderClient,
    /// Where people sign in, as the page names it.
    pub(crate) host: String,
    pub(crate) scope: String,
    pub(crate) parameters: BTreeMap<String, String>,
    resource: Option<String>,
    used: UsedToken,
    pub(crate) lasting: Duration,
    origin: String,
}

/// Why nobody was signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("the sign-in was begun in another browser, or more than ten minutes ago; begin again")]
    Lapsed,
    #[error("the provider did not sign you in")]
    Declined,
    #[error("the provider cannot be reached or used now; try again")]
    Provider,
    #[error("the provider's token is not accepted here: {0}")]
    Token(String),
    #[error("the provider's token cannot be verified now: {0}")]
    TokenUnverified(String),
    #[error("the session cannot be kept now; try again")]
    Store(#[from] StoreError),
}

impl ProviderSignIn {
    /// Checks the settings and reads the secret; asks the provider for nothing yet. Browsers come back to `public_url`.
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

    /// The tokens of an answer as a session has them, once the one that the gateway gets is verified as it would. What the
    /// answer leaves out stays as in `former`.
    pub(crate) async fn usable(
        &self,
        auth: &Authenticator,
        answer: ProviderTokens,
        former: Option<&SessionTokens>,
        now: Timestamp,
    ) -> Result<SessionTokens, SignInError> {
        let token = match self.used {
            UsedToken::Access => Some(answer.access_token),
            // A refresh need not give another one (OpenID Connect Core §12.2).
            UsedToken::Identity => {
                let former = former.map(|former| former.token.clone());
                answer.id_token.clone().or(former)
            }
        };
        let token = token.ok_or_else(|| SignInError::Token("there is none".to_owned()))?;
        let caller = SessionToken::new(&token, None).verify(auth).await;
        let caller = caller.map_err(|refusal| match refusal {
            // Keys that are not there yet are no fault of the token.
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

    /// Newer tokens for a refresh token.
    pub(crate) async fn refresh(&self, refresh_token: &str) -> Result<ProviderTokens, AuthError> {
        let further: Vec<_> = self.resource().into_iter().collect();
        self.client.refresh(refresh_token, &further).await
    }

    /// Gives back what was granted, without waiting for it.
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

    /// Where the browser goes to end its session at the provider too, if that is known soon enough.
    /// The provider leads it back to the page at `path`.
    pub(crate) async fn leave(&self, tokens: &SessionTokens, path: &str) -> Option<Response> {
        let back = format!("{}{path}", self.origin);
        let url = self
            .client
            .end_session_url(tokens.id_token.as_deref(), &back);
        let url = tokio::time::timeout(LEAVE_LIMIT, url).await;
        Some(leave_page(url.ok()?.ok()??.as_str()))
    }
}
