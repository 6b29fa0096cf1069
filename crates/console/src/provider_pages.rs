//! The pages of the sign-in by an identity provider.
//!
//! ```text
//!  form ─▶ begin: state and verifier in a sealed cookie ─▶ the provider's pages
//!                                                             │ code
//!  page ◀─ cookie with an id ◀─ stored session ◀─ tokens ◀─ finish: state, issuer, token verified like the gateway
//!  does
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Timestamp, is_same_secret};
use wardgate_edge::leave_page;
use wardgate_egress::CodeRequest;

use crate::Console;
use crate::cookies::HostCookie;
use crate::http::PageResult;
use crate::page_request::PageRequest;
use crate::problem::Problem;
use crate::provider_sign_in::{ProviderSignIn, SIGNED_IN, SignInError};
use crate::session;
use crate::sign_in::{self, HOME, own};
use crate::stored_session::SessionId;

/// Maximum time between the beginning and the end of a sign-in.
const PATIENCE: Duration = Duration::from_mins(10);
/// The cookie of a pending sign-in. It is `SameSite=Lax`, because the browser must send it when it returns from the
/// provider, which is another site.
const PENDING: HostCookie = HostCookie {
    secure_name: "__Host-wardgate_console_sign_in",
    name: "wardgate_console_sign_in",
    path: SIGNED_IN,
    same_site: "Lax",
};
/// The context under which the pending sign-in is sealed.
const SEALED: &str = "wardgate console sign-in 1";

/// The state of a pending sign-in, kept until the browser returns.
#[derive(Serialize, Deserialize)]
struct PendingSignIn {
    state: String,
    verifier: String,
    next: Option<String>,
    /// The session that the new one replaces. It is kept here because its cookie is not sent when the browser returns
    /// from the provider.
    former: Option<SessionId>,
    begun_micros: i64,
}

impl ProviderSignIn {
    /// Redirects the browser to the provider.
    async fn lead_to_provider(
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

    /// Creates the session of the person who returned from the provider, and leads the browser to the page that the
    /// person wanted.
    async fn begin_session(
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
        // Without a refresh token the session ends with its token.
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
        // After a redirect from another site the browser would not send the `SameSite=Strict` cookie, so a page of the
        // console leads to the next page.
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
    tracing::warn!(%error, "a sign-in at an identity provider failed");
    SignInError::Provider
}

/// Handles `POST /console/sign-in/provider`.
pub(crate) async fn begin(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    let sign_in = console.sign_in.as_ref().ok_or(Problem::Unknown)?;
    let fields = page_request.form()?;
    let next = own(fields.get("next"));
    let former = SessionId::of_request(&page_request.parts.headers, console.is_secure());
    let begun = sign_in.lead_to_provider(&console, former, next).await;
    Ok(begun.unwrap_or_else(|error| sign_in::refusal_page(&console, next, &error.to_string())))
}

/// Handles `GET /console/signed-in`.
pub(crate) async fn finish(console: Arc<Console>, page_request: PageRequest) -> PageResult {
    let sign_in = console.sign_in.as_ref().ok_or(Problem::Unknown)?;
    let finished = sign_in.begin_session(&console, &page_request).await;
    Ok(finished.unwrap_or_else(|error| sign_in::refusal_page(&console, None, &error.to_string())))
}
