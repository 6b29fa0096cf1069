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
use wardgate_edge::{Authenticator, leave_page};
use wardgate_egress::{AuthError, CodeRequest, ProviderClient, ProviderTokens};

use crate::Console;
use crate::config::{SignInConfig, SignInConfigError, UsedToken, origin};
use crate::http::PageResult;
use crate::page_request::PageRequest;
use crate::problem::Problem;
use crate::session::{self, SessionToken, only_cookie, secret_header};
use crate::sign_in::{self, HOME, SIGN_IN, own};
use crate::store::StoreError;
use crate::stored_session::{self, SessionId, SessionTokens, StoredSession};

/// Where the provider sends browsers back to.
pub(crate) const SIGNED_IN: &str = "/console/signed-in";

/// How long somebody may take to sign in.
const PATIENCE: Duration = Duration::from_mins(10);
/// The cookie of a sign-in that was begun.
const PENDING: &str = "wardgate_console_sign_in";
/// What is sealed in it.
const SEALED: &str = "wardgate console sign-in 1";

/// Newer tokens are fetched so long before the former ones end; a quarter of their life, if that is shorter.
const EARLY: Duration = Duration::from_mins(1);
/// How long one replica alone may renew the tokens of a session; as long nobody asks a provider again that is away.
const CLAIM: Duration = Duration::from_secs(15);
/// Between two looks whether another replica has renewed them.
const PAUSE: Duration = Duration::from_millis(100);

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
    begun_micros: i64,
}

/// Why nobody was signed in.
#[derive(Debug, thiserror::Error)]
enum SignInError {
    #[error("the sign-in was begun in another browser, or more than ten minutes ago; begin again")]
    Lapsed,
    #[error("the provider did not sign you in")]
    Declined,
    #[error("the provider cannot be reached or used now; try again")]
    Provider,
    #[error("the provider's token is not accepted here: {0}")]
    Token(String),
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
    async fn begin(&self, console: &Console, next: Option<&str>) -> Result<Response, SignInError> {
        let ambient = &console.ambient;
        let pending = PendingSignIn {
            state: ambient.random_text(),
            verifier: ambient.random_text(),
            next: next.map(ToOwned::to_owned),
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
        let (tokens, ends_at) = self
            .usable(&console.admission.auth, tokens, None, now)
            .await?;
        // Without newer tokens the session ends with the one there is.
        let whole = now.plus(self.lasting);
        let expires_at = match tokens.refresh_token {
            Some(_) => whole,
            None => whole.min(ends_at),
        };
        let id = SessionId::new(&console.ambient);
        console.store.add_session(&id, &tokens, expires_at).await?;
        if let Some(former) = SessionId::of_request(headers, console.is_secure()) {
            console.store.remove_session(&former).await?;
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

    /// The tokens of an answer as a session has them, once the one that the gateway gets is verified as it would; and when
    /// that one ends. What the answer leaves out stays as in `former`.
    async fn usable(
        &self,
        auth: &Authenticator,
        answer: ProviderTokens,
        former: Option<SessionTokens>,
        now: Timestamp,
    ) -> Result<(SessionTokens, Timestamp), SignInError> {
        let token = match self.used {
            UsedToken::Access => Some(answer.access_token),
            UsedToken::Identity => answer.id_token.clone(),
        };
        let token = token.ok_or_else(|| SignInError::Token("there is none".to_owned()))?;
        let caller = SessionToken::new(&token, None).verify(auth).await;
        let caller = caller.map_err(|refusal| SignInError::Token(refusal.description()))?;
        let ends_at = caller.expires_at();
        let early = EARLY.min(ends_at.since(now) / 4);
        let (refresh_token, id_token) = match former {
            Some(former) => (former.refresh_token, former.id_token),
            None => (None, None),
        };
        let tokens = SessionTokens {
            token,
            refresh_token: answer.refresh_token.or(refresh_token),
            id_token: answer.id_token.or(id_token),
            renew_at_micros: ends_at.minus(early).as_micros(),
            ends_at_micros: ends_at.as_micros(),
        };
        Ok((tokens, ends_at))
    }

    /// The session of this id, with newer tokens where the former ones end soon. None: it ended.
    pub(crate) async fn resume(
        &self,
        console: &Console,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        let Some(stored) = console.store.find_session(id).await? else {
            return Ok(None);
        };
        let now = console.ambient.now().as_micros();
        match &stored.tokens.refresh_token {
            Some(refresh_token) if stored.tokens.renew_at_micros <= now => {
                let refresh_token = refresh_token.clone();
                self.renew(console, id, stored, &refresh_token).await
            }
            _ => Ok(Some(stored)),
        }
    }

    /// Fetches newer tokens, unless somebody else does: then the former ones are used while they last, and waited for.
    async fn renew(
        &self,
        console: &Console,
        id: &SessionId,
        mut stored: StoredSession,
        refresh_token: &str,
    ) -> Result<Option<StoredSession>, StoreError> {
        let patience = console.ambient.now().plus(CLAIM);
        while !console.store.claim_renewal(id, CLAIM).await? {
            let now = console.ambient.now();
            if now.as_micros() < stored.tokens.ends_at_micros || now >= patience {
                return Ok(Some(stored));
            }
            tokio::time::sleep(PAUSE).await;
            match console.store.find_session(id).await? {
                Some(newer) if newer.tokens.renew_at_micros > now.as_micros() => {
                    return Ok(Some(newer));
                }
                Some(same) => stored = same,
                None => return Ok(None),
            }
        }
        let further: Vec<_> = self.resource().into_iter().collect();
        let answer = match self.client.refresh(refresh_token, &further).await {
            Ok(answer) => answer,
            Err(AuthError::Refused { status, .. }) if is_final(status) => {
                tracing::info!(status, "a provider ended a session");
                console.store.remove_session(id).await?;
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(%error, "the tokens of a session cannot be renewed now");
                return Ok(Some(stored));
            }
        };
        let now = console.ambient.now();
        let auth = &console.admission.auth;
        match self.usable(auth, answer, Some(stored.tokens), now).await {
            Ok((tokens, _)) => {
                console.store.replace_tokens(id, &tokens).await?;
                let expires_at = stored.expires_at;
                Ok(Some(StoredSession { tokens, expires_at }))
            }
            Err(error) => {
                tracing::warn!(%error, "a session ends, because its newer token is refused");
                console.store.remove_session(id).await?;
                Ok(None)
            }
        }
    }

    /// Where the browser goes to end its session at the provider too. What was granted is given back meanwhile.
    async fn leave(self: &Arc<Self>, tokens: SessionTokens) -> Option<Response> {
        if let Some(refresh_token) = tokens.refresh_token {
            let sign_in = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = sign_in.client.revoke(&refresh_token).await {
                    tracing::warn!(%error, "a refresh token was not revoked");
                }
            });
        }
        let back = format!("{}{SIGN_IN}", self.origin);
        let url = self
            .client
            .end_session_url(tokens.id_token.as_deref(), &back);
        Some(leave_page(url.await.ok()??.as_str()))
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
        pending_cookie(&URL_SAFE_NO_PAD.encode(sealed.ok()?), PATIENCE, console)
    }

    fn end(console: &Console) -> Option<HeaderValue> {
        pending_cookie("", Duration::ZERO, console)
    }

    fn of_request(console: &Console, headers: &HeaderMap) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD
            .decode(only_cookie(headers, PENDING)?)
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

/// It has to come along when the provider, another site, leads back.
fn pending_cookie(value: &str, left: Duration, console: &Console) -> Option<HeaderValue> {
    let secure = if console.is_secure() { "; Secure" } else { "" };
    let left = left.as_secs();
    secret_header(format!(
        "{PENDING}={value}; Path={SIGNED_IN}; Max-Age={left}; HttpOnly; SameSite=Lax{secure}"
    ))
}

/// Whether a provider that refuses with this status will do so again.
fn is_final(status: u16) -> bool {
    (400..500).contains(&status) && status != 429
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
    let begun = sign_in.begin(&console, next).await;
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

    /// Ends the stored session that a request has, and gives where the browser goes to end it at the provider too.
    pub(crate) async fn end_stored_session(&self, headers: &HeaderMap) -> Option<Response> {
        let sign_in = self.sign_in.as_ref()?;
        let id = SessionId::of_request(headers, self.is_secure())?;
        // A failure is told where it happens; the cookie is taken away all the same.
        let stored = self.store.find_session(&id).await.ok()??;
        self.store.remove_session(&id).await.ok()?;
        sign_in.leave(stored.tokens).await
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
