//! Sessions of people whom a provider signed in: their tokens are in the console's store, and the cookie has an id alone.
//!
//! ```text
//!  cookie ─▶ id ─▶ digest ─▶ row ─▶ tokens ── soon over? ──▶ one replica renews them at the provider ─▶ row
//! ```
//!
//! The store has no id in clear, so who reads it has nobody's session. The tokens are sealed for their session.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Ambient, Digest, Timestamp};

use crate::cookies::HostCookie;
use crate::store::{ConsoleStore, StoreError};

/// The cookie.
const SESSION: HostCookie = HostCookie {
    secure_name: "__Host-wardgate_session",
    name: "wardgate_session",
    path: "/console",
    same_site: "Strict",
};

/// What is sealed, so that nothing else of this key could pass for it.
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

/// The id of a session: who has it is signed in.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SessionId(String);

impl SessionId {
    pub(crate) fn new(ambient: &Ambient) -> Self {
        Self(ambient.random_text())
    }

    /// The one that a request has.
    pub(crate) fn of_request(headers: &HeaderMap, is_secure: bool) -> Option<Self> {
        let value = SESSION.find(headers, is_secure)?;
        (value.len() == 43).then(|| Self(value.to_owned()))
    }

    /// `Set-Cookie` that begins the session.
    pub(crate) fn cookie(&self, left: Duration, is_secure: bool) -> Option<HeaderValue> {
        SESSION.set(&self.0, left, is_secure)
    }

    fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

/// `Set-Cookie` that takes the id away.
pub(crate) fn end(is_secure: bool) -> Option<HeaderValue> {
    SESSION.end(is_secure)
}

/// The tokens of a session. Not shown: they are secrets.
#[derive(Serialize, Deserialize)]
pub(crate) struct SessionTokens {
    /// What the gateway gets.
    pub(crate) token: String,
    /// What newer ones are had for.
    pub(crate) refresh_token: Option<String>,
    /// What the provider knows the session by when it is to end.
    pub(crate) id_token: Option<String>,
    /// From when on newer ones are fetched; microseconds since 1970.
    pub(crate) renew_at_micros: i64,
    /// When the gateway's token ends.
    pub(crate) ends_at_micros: i64,
}

impl SessionTokens {
    /// Whether there should be newer ones by `now`, and can be.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.refresh_token.is_some() && self.renew_at_micros <= now.as_micros()
    }

    /// Whether the gateway's token has not ended at `now`.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        now.as_micros() < self.ends_at_micros
    }
}

/// A session that there is.
pub(crate) struct StoredSession {
    pub(crate) tokens: SessionTokens,
    pub(crate) expires_at: Timestamp,
}

impl ConsoleStore {
    /// Begins a session that ends at `expires_at`.
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

    /// The session, unless it ended or was sealed under another key.
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
        // Under another key than today's: nobody can go on with it, so it ended.
        let text = self.key.sessions.open(&about(id), sealed).ok();
        let tokens = text.and_then(|text| serde_json::from_slice(&text).ok());
        Ok(tokens.map(|tokens| StoredSession {
            tokens,
            expires_at: Timestamp::from_micros(expires_at),
        }))
    }

    /// Lets the caller alone renew the tokens for so long: until what instant, which is the proof of the claim. None where
    /// somebody else does.
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

    /// Puts tokens in the place of the former ones, and ends the claim; nothing where the claim is somebody else's by now.
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

    /// Ends the session, unless the claim is somebody else's by now.
    pub(crate) async fn end_claimed(
        &self,
        id: &SessionId,
        claim: Timestamp,
    ) -> Result<(), StoreError> {
        let values = [id.digest().as_bytes()[..].into(), claim.as_micros().into()];
        self.execute(END, values).await.map(drop)
    }

    /// Ends the session.
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
