//! The session of a request, either with a token that the person entered or from a sign-in by the provider.

use std::net::SocketAddr;

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use wardgate_domain::Timestamp;

use crate::Console;
use crate::problem::Problem;
use crate::session::{self, SessionToken};
use crate::stored_session::{self, SessionId, SessionTokens};

impl Console {
    /// Returns the token of the request's session, and when the session ends, or `None` if it ends with its token.
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

    /// Ends a stored session and revokes its refresh token at the provider. Returns its tokens if they could be read.
    /// Failures are logged where they happen, because the person's cookie is removed in any case.
    pub(crate) async fn end_session(&self, id: &SessionId) -> Option<SessionTokens> {
        let stored = self.store.find_session(id).await;
        let _ = self.store.remove_session(id).await;
        let tokens = stored.ok()??.tokens;
        self.sign_in.as_ref()?.revoke(&tokens);
        Some(tokens)
    }

    /// Ends the stored session of a request. Returns a page that leads the browser to the provider to end the session
    /// there, from where it returns to `path`.
    pub(crate) async fn end_stored_session(
        &self,
        headers: &HeaderMap,
        path: &str,
    ) -> Option<Response> {
        let sign_in = self.sign_in.as_ref()?;
        let id = SessionId::of_request(headers, self.is_secure())?;
        let tokens = self.end_session(&id).await?;
        sign_in.leave(&tokens, path).await
    }

    /// Returns the headers that remove every cookie of a session.
    pub(crate) fn ended_cookies(&self) -> impl Iterator<Item = HeaderValue> {
        let ended = [
            session::end(self.is_secure()),
            stored_session::end(self.is_secure()),
        ];
        ended.into_iter().flatten()
    }
}
