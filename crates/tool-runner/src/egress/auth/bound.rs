//! Credentials of a source, for one caller: what a connection of their own is made with.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use wardgate_domain::{Caller, Timestamp};

use super::{Auth, AuthError, CallerToken, OnBehalf};

/// The credentials of a source as one person has them.
pub(crate) struct Bound {
    auth: Arc<Auth>,
    tenant: String,
    issuer: String,
    subject: String,
    /// The last token that the person called with.
    token: Mutex<Option<(String, Timestamp)>>,
}

impl Bound {
    /// For the person that `caller` is.
    pub(crate) fn new(auth: Arc<Auth>, caller: &Caller) -> Self {
        Self {
            auth,
            tenant: caller.tenant().to_owned(),
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
            token: Mutex::default(),
        }
    }

    /// Takes the token that came with a call; from then on it stands for the person.
    pub(crate) fn renew(&self, caller: &Caller, token: Option<&str>) {
        if let Some(token) = token {
            let mut last = self.token.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((token.to_owned(), caller.expires_at()));
        }
    }

    pub(super) fn renews(&self) -> bool {
        self.auth.renews()
    }

    pub(super) fn step_up(&self, scope: &str) -> Result<bool, AuthError> {
        self.auth.step_up(scope)
    }

    pub(super) async fn authorization(
        &self,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        let token = self
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let caller = OnBehalf {
            tenant: &self.tenant,
            issuer: &self.issuer,
            subject: &self.subject,
            token: token.as_ref().map(|(token, expires_at)| CallerToken {
                token,
                expires_at: *expires_at,
            }),
        };
        Box::pin(self.auth.authorization(Some(caller), rejected)).await
    }
}
