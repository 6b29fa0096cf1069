//! The session that a request has: of a token that a person brought, or of a sign-in by the provider.

use std::net::SocketAddr;

use axum::response::Response;
use http::{HeaderMap, HeaderValue};
use wardgate_domain::Timestamp;

use crate::Console;
use crate::problem::Problem;
use crate::session::{self, SessionToken};
use crate::stored_session::{self, SessionId, SessionTokens};

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
    pub(crate) async fn end_session(&self, id: &SessionId) -> Option<SessionTokens> {
        let stored = self.store.find_session(id).await;
        let _ = self.store.remove_session(id).await;
        let tokens = stored.ok()??.tokens;
        self.sign_in.as_ref()?.revoke(&tokens);
        Some(tokens)
    }

    /// Ends the stored session that a request has, and gives where the browser goes to end it at the provider too,
    /// which leads it back to the page at `path`.
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

    /// The headers that take every cookie of a session away.
    pub(crate) fn ended_cookies(&self) -> impl Iterator<Item = HeaderValue> {
        let ended = [
            session::end(self.is_secure()),
            stored_session::end(self.is_secure()),
        ];
        ended.into_iter().flatten()
    }
}
