//! Sessions from sign-ins by the provider. The tokens are in the console's store, and the cookie contains only an id.
//!
//! ```text
//!  cookie ─▶ id ─▶ digest ─▶ row ─▶ tokens ── end soon? ──▶ one replica renews them at the provider ─▶ row
//! ```
//!
//! The store contains only digests of the ids, so access to the store gives nobody a session. The tokens are sealed for
//! their session.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Digest, Timestamp};

use crate::cookies::HostCookie;
use crate::store::{ConsoleStore, StoreError};

/// The cookie of a stored session.
const SESSION: HostCookie = HostCookie {
    secure_name: "__Host-wardgate_session",
    name: "wardgate_session",
    path: "/console",
    same_site: "Strict",
};

/// The context under which tokens are sealed, so that no other text sealed under this key can be used as tokens.
const SEALED: &str = "wardgate console stored session 1";

const ADD: &str = "
    INSERT INTO console.session (id, sealed, renewed_until, expires_at) VALUES ($1, $2, 0, $3)";

const FIND: &str =
    "SELECT sealed, expires_at FROM console.session WHERE id = $1 AND expires_at > $2";

const CLAIM: &str = "
    UPDATE console.session SET renewed_until = $2 WHERE id = $1 AND renewed_until <= $3";

const REPLACE: &str = "
    UPDATE console.session SET sealed = $2, renewed_until = 0 WHERE id = $1 AND renewed_until = $3";

const REMOVE: &str = "DELETE FROM console.session WHERE id = $1";

const END: &str = "DELETE FROM console.session WHERE id = $1 AND renewed_until = $2";

/// The id of a session. It is a secret, because it grants access to the session.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SessionId(String);

impl SessionId {
    pub(crate) fn new(ambient: &Ambient) -> Self {
        Self(ambient.random_text())
    }

    /// Returns the session id of a request.
    pub(crate) fn of_request(headers: &HeaderMap, is_secure: bool) -> Option<Self> {
        let value = SESSION.find(headers, is_secure)?;
        (value.len() == 43).then(|| Self(value.to_owned()))
    }

    /// Returns a `Set-Cookie` header that begins the session.
    pub(crate) fn cookie(&self, left: Duration, is_secure: bool) -> Option<HeaderValue> {
        SESSION.set(&self.0, left, is_secure)
    }

    fn digest(&self) -> Digest {
        Digest::compute(self.0.as_bytes())
    }
}

/// Returns a `Set-Cookie` header that removes the session id.
pub(crate) fn end(is_secure: bool) -> Option<HeaderValue> {
    SESSION.end(is_secure)
}

/// The tokens of a session. The type does not implement `Debug`, because they are secrets.
#[derive(Serialize, Deserialize)]
pub(crate) struct SessionTokens {
    /// The token that is sent to the gateway.
    pub(crate) token: String,
    /// The refresh token, if the provider issued one.
    pub(crate) refresh_token: Option<String>,
    /// The identity token, by which the provider recognises the session when it is to end.
    pub(crate) id_token: Option<String>,
    /// The time from which on the tokens are renewed, in microseconds since 1970.
    pub(crate) renew_at_micros: i64,
    /// The time when the gateway's token ends, in microseconds since 1970.
    pub(crate) ends_at_micros: i64,
}

impl SessionTokens {
    /// Returns whether the tokens should and can be renewed at `now`.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.refresh_token.is_some() && self.renew_at_micros <= now.as_micros()
    }

    /// Returns whether the gateway's token is still valid at `now`.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        now.as_micros() < self.ends_at_micros
    }
}

/// An active session.
pub(crate) struct StoredSession {
    pub(crate) tokens: SessionTokens,
    pub(crate) expires_at: Timestamp,
}

impl ConsoleStore {
    /// Stores a session that ends at `expires_at`.
    pub(crate) async fn add_session(
        &self,
        id: &SessionId,
        tokens: &SessionTokens,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let values = [
            id.digest().as_bytes()[..].into(),
            self.sealed_tokens(id, tokens)?.into(),
            expires_at.as_micros().into(),
        ];
        self.execute(ADD, values).await.map(drop)
    }

    /// Returns the session, or `None` if it has ended or was sealed under another key.
    pub(crate) async fn find_session(
        &self,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        let now = self.ambient.now().as_micros();
        let values = [id.digest().as_bytes()[..].into(), now.into()];
        let rows: Vec<(Vec<u8>, i64)> = self.rows(FIND, values).await?;
        let Some((sealed, expires_at)) = rows.into_iter().next() else {
            return Ok(None);
        };
        // Tokens that were sealed under a former key cannot be used any more, so such a session counts as ended.
        let text = self.key.sessions.open(&about(id), sealed).ok();
        let tokens = text.and_then(|text| serde_json::from_slice(&text).ok());
        Ok(tokens.map(|tokens| StoredSession {
            tokens,
            expires_at: Timestamp::from_micros(expires_at),
        }))
    }

    /// Claims the exclusive right to renew the tokens for the time `lasting`. Returns the end of the claim, which also
    /// identifies the claim, or `None` if another replica has it.
    pub(crate) async fn claim_renewal(
        &self,
        id: &SessionId,
        lasting: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let now = self.ambient.now();
        let until = now.plus(lasting);
        let values = [
            id.digest().as_bytes()[..].into(),
            until.as_micros().into(),
            now.as_micros().into(),
        ];
        let is_claimed = self.execute(CLAIM, values).await? == 1;
        Ok(is_claimed.then_some(until))
    }

    /// Replaces the tokens and releases the claim. Does nothing if the claim has been lost.
    pub(crate) async fn replace_tokens(
        &self,
        id: &SessionId,
        tokens: &SessionTokens,
        claim: Timestamp,
    ) -> Result<(), StoreError> {
        let sealed = self.sealed_tokens(id, tokens)?;
        let values = [
            id.digest().as_bytes()[..].into(),
            sealed.into(),
            claim.as_micros().into(),
        ];
        self.execute(REPLACE, values).await.map(drop)
    }

    /// Ends the session, unless the claim has been lost.
    pub(crate) async fn end_claimed(
        &self,
        id: &SessionId,
        claim: Timestamp,
    ) -> Result<(), StoreError> {
        let values = [id.digest().as_bytes()[..].into(), claim.as_micros().into()];
        self.execute(END, values).await.map(drop)
    }

    /// Removes the session.
    pub(crate) async fn remove_session(&self, id: &SessionId) -> Result<(), StoreError> {
        let values = [id.digest().as_bytes()[..].into()];
        self.execute(REMOVE, values).await.map(drop)
    }

    fn sealed_tokens(&self, id: &SessionId, tokens: &SessionTokens) -> Result<Vec<u8>, StoreError> {
        let text = serde_json::to_vec(tokens).map_err(|_| StoreError::Unreadable)?;
        let sealed = self.key.sessions.seal(&about(id), &text, &self.ambient);
        sealed.map_err(|_| StoreError::Unreadable)
    }
}

fn about(id: &SessionId) -> About {
    About::new(SEALED).and(id.digest().as_bytes())
}
