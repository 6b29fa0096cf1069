//! Sign-in by an identity provider: `OpenID` Connect Core §3.1, the code flow with PKCE.
//!
//! ```text
//!  form ─▶ begin: state and verifier in a sealed cookie ─▶ the provider's pages
//!                                                             │ code
//!  page ◀─ cookie with an id ◀─ stored session ◀─ tokens ◀─ finish: state, issuer, token verified as the gateway would
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Timestamp, is_same_secret};
use wardgate_edge::{Authenticator, TokenRefusal, leave_page};
use wardgate_egress::{AuthError, CodeRequest, ProviderClient, ProviderTokens};

use crate::Console;
use crate::config::{SignInConfig, SignInConfigError, UsedToken, origin};
use crate::cookies::HostCookie;
use crate::http::PageResult;
use crate::page_request::PageRequest;
use crate::problem::Problem;
use crate::session::{self, SessionToken};
use crate::sign_in::{self, HOME, SIGN_IN, own};
use crate::store::StoreError;
use crate::stored_session::{self, SessionId, SessionTokens};

/// Where the provider sends browsers back to.
pub(crate) const SIGNED_IN: &str = "/console/signed-in";

/// How long somebody may take to sign in.
const PATIENCE: Duration = Duration::from_mins(10);
/// The cookie of a sign-in that was begun. It has to come along when the provider, another site, leads back.
const PENDING: HostCookie = HostCookie {
    secure_name: "__Host-wardgate_console_sign_in",
    name: "wardgate_console_sign_in",
    path: SIGNED_IN,
    same_site: "Lax",
};
/// What is sealed in it.
const SEALED: &str = "wardgate console sign-in 1";

/// How long somebody who signs out waits for the provider's metadata.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// Newer tokens are fetched so long before the former ones end; a quarter of their life, if that is shorter.
const EARLY: Duration = Duration::from_mins(1);
/// The console as a client of an identity provider.
pub struct ProviderSignIn {
    client: ProviderClient,
    /// Where people sign in, as the page names it.
    pub(crate) host: String,
    scope: String,
    parameters: BTreeMap<String, String>,
    resource: Option<String>,
    used: UsedToken,
    lasting: Duration,
    origin: String,
}

/// A sign-in that was begun, as far as it has to be known again when the browser comes back.
#[derive(Serialize, Deserialize)]
struct PendingSignIn {
    state: String,
    verifier: String,
    next: Option<String>,
    /// The session that the new one takes the place of. Its cookie does not come along when the provider leads back.
    former: Option<SessionId>,
    begun_micros: i64,
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

    fn redirect_uri(&self) -> String {
        format!("{}{SIGNED_IN}", self.origin)
    }

    fn resource(&self) -> Option<(&str, &str)> {
        Some(("resource", self.resource.as_deref()?))
    }

    /// Sends a browser to the provider.
    async fn begin(
        &self,
        console: &Console,
        former: Option<SessionId>,
        next: Option<&str>,
    ) -> Result<Response, SignInError> {
        let ambient = &console.ambient;
        let pending = PendingSignIn {
            state: ambient.random_text(),
            verifier: ambient.random_text(),
            next: next.map(ToOwned::to_owned),
            former,
            begun_micros: ambient.now().as_micros(),
        };
        let redirect_uri = self.redirect_uri();
        let request = CodeRequest {
            redirect_uri: &redirect_uri,
            verifier: &pending.verifier,
        };
        let further: Vec<_> = [("scope", &*self.scope)]
            .into_iter()
            .chain(self.resource())
            .chain(
                self.parameters
                    .iter()
                    .map(|(name, value)| (&**name, &**value)),
            )
            .collect();
        let url = self
            .client
            .authorization_url(request, &pending.state, &further)
            .await
            .map_err(|error| provider_failure(&error))?;
        let mut response = leave_page(url.as_str());
        let cookie = pending.cookie(console).ok_or(SignInError::Provider)?;
        response.headers_mut().insert(header::SET_COOKIE, cookie);
        Ok(response)
    }

    /// Begins the session of whoever came back from the provider, and gives where they wanted to go.
    async fn finish(
        &self,
        console: &Console,
        page_request: &PageRequest,
    ) -> Result<Response, SignInError> {
        let query = page_request.query().map_err(|_| SignInError::Lapsed)?;
        let headers = &page_request.parts.headers;
        let pending = PendingSignIn::of_request(console, headers).ok_or(SignInError::Lapsed)?;
        let state = query.get("state").unwrap_or_default();
        if !is_same_secret(state, &pending.state) {
            return Err(SignInError::Lapsed);
        }
        let provider_failure = |error| provider_failure(&error);
        let told_issuer = self.client.check_response(query.get("iss"));
        told_issuer.await.map_err(provider_failure)?;
        let code = query.get("code").ok_or(SignInError::Declined)?;
        let redirect_uri = self.redirect_uri();
        let request = CodeRequest {
            redirect_uri: &redirect_uri,
            verifier: &pending.verifier,
        };
        let further: Vec<_> = self.resource().into_iter().collect();
        let tokens = self.client.redeem_code(request, code, &further).await;
        let tokens = tokens.map_err(|error| provider_failure(error.into()))?;
        let now = console.ambient.now();
        let tokens = self
            .usable(&console.admission.auth, tokens, None, now)
            .await?;
        // Without newer tokens the session ends with the one there is.
        let whole = now.plus(self.lasting);
        let expires_at = match tokens.refresh_token {
            Some(_) => whole,
            None => whole.min(Timestamp::from_micros(tokens.ends_at_micros)),
        };
        let id = SessionId::new(&console.ambient);
        console.store.add_session(&id, &tokens, expires_at).await?;
        if let Some(former) = &pending.former {
            console.end_session(former).await;
        }
        // The cookie does not go along where another site leads, so the browser is led on by a page of ours.
        let next = own(pending.next.as_deref()).unwrap_or(HOME);
        let mut response = leave_page(next);
        let cookies = [
            id.cookie(expires_at.since(now), console.is_secure()),
            session::end(console.is_secure()),
            PendingSignIn::end(console),
        ];
        for cookie in cookies.into_iter().flatten() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(response)
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
    fn revoke(self: &Arc<Self>, tokens: &SessionTokens) {
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
    async fn leave(&self, tokens: &SessionTokens) -> Option<Response> {
        let back = format!("{}{SIGN_IN}", self.origin);
        let url = self
            .client
            .end_session_url(tokens.id_token.as_deref(), &back);
        let url = tokio::time::timeout(LEAVE_LIMIT, url).await;
        Some(leave_page(url.ok()?.ok()??.as_str()))
    }
}

impl PendingSignIn {
    fn cookie(&self, console: &Console) -> Option<HeaderValue> {
        let text = serde_json::to_vec(self).ok()?;
        let sealed = console
            .store
            .key
            .sessions
            .seal(&About::new(SEALED), &text, &console.ambient);
        let value = URL_SAFE_NO_PAD.encode(sealed.ok()?);
        PENDING.set(&value, PATIENCE, console.is_secure())
    }

    fn end(console: &Console) -> Option<HeaderValue> {
        PENDING.end(console.is_secure())
    }

    fn of_request(console: &Console, headers: &HeaderMap) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD
            .decode(PENDING.find(headers, console.is_secure())?)
            .ok()?;
        let text = console
            .store
            .key
            .sessions
            .open(&About::new(SEALED), sealed)
            .ok()?;
        let pending: Self = serde_json::from_slice(&text).ok()?;
        let begun = Timestamp::from_micros(pending.begun_micros);
        (console.ambient.now().since(begun) < PATIENCE).then_some(pending)
    }
}

fn provider_failure(error: &wardgate_egress::ConnectError) -> SignInError {
    tracing::warn!(%error, "a provider signed nobody in");
    SignInError::Provider
}

/// `POST /console/sign-in/provider`
pub(crate) async fn begin(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    let sign_in = console.sign_in.as_ref().ok_or(Problem::Unknown)?;
    let fields = page_request.form()?;
    let next = own(fields.get("next"));
    let former = SessionId::of_request(&page_request.parts.headers, console.is_secure());
    let begun = sign_in.begin(&console, former, next).await;
    Ok(begun.unwrap_or_else(|error| sign_in::refused(&console, next, &error.to_string())))
}

/// `GET /console/signed-in`
pub(crate) async fn finish(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    let sign_in = console.sign_in.as_ref().ok_or(Problem::Unknown)?;
    let finished = sign_in.finish(&console, &page_request).await;
    Ok(finished.unwrap_or_else(|error| sign_in::refused(&console, None, &error.to_string())))
}

impl Console {
    /// The session that a request has: the token to call with, and when the session ends, if not with the token.
    pub(crate) async fn resume(
        &self,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> Result<Option<(SessionToken, Option<Timestamp>)>, Problem> {
        let id = SessionId::of_request(headers, self.is_secure());
        if let (Some(sign_in), Some(id)) = (&self.sign_in, id) {
            let stored = sign_in.resume(self, &id).await;
            if let Some(stored) = stored.map_err(|_| Problem::NoSessions)? {
                let token = SessionToken::new(&stored.tokens.token, peer);
                return Ok(Some((token, Some(stored.expires_at))));
            }
        }
        let token = session::resume(&self.store.key, headers, peer);
        Ok(token.map(|token| (token, None)))
    }

    /// Ends a stored session here, and gives back what its provider granted; its tokens, if they could be read. A failure is
    /// told where it happens: who signs out has their cookie taken away all the same.
    async fn end_session(&self, id: &SessionId) -> Option<SessionTokens> {
        let stored = self.store.find_session(id).await;
        let _ = self.store.remove_session(id).await;
        let tokens = stored.ok()??.tokens;
        self.sign_in.as_ref()?.revoke(&tokens);
        Some(tokens)
    }

    /// Ends the stored session that a request has, and gives where the browser goes to end it at the provider too.
    pub(crate) async fn end_stored_session(&self, headers: &HeaderMap) -> Option<Response> {
        let sign_in = self.sign_in.as_ref()?;
        let id = SessionId::of_request(headers, self.is_secure())?;
        let tokens = self.end_session(&id).await?;
        sign_in.leave(&tokens).await
    }

    /// The headers that take every cookie of a session away.
    pub(crate) fn ended_cookies(&self) -> impl Iterator<Item = HeaderValue> {
        let ended = [
            session::end(self.is_secure()),
            stored_session::end(self.is_secure()),
        ];
        ended.into_iter().flatten()
    }
}
