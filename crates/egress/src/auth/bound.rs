//! The credentials of a source bound to one caller, for a connection that belongs to this caller.

use std::sync::Arc;

use http::HeaderValue;
use wardgate_domain::{Caller, Timestamp};

use super::{Auth, AuthError, CallerToken, OnBehalf};

/// The credentials of a source for one person.
pub struct BoundCredentials {
    auth: Arc<Auth>,
    tenant: String,
    issuer: String,
    subject: String,
    /// The person's own token and its expiry, if the credentials are derived from it.
    token: Option<(String, Timestamp)>,
}

impl BoundCredentials {
    /// Binds the credentials to `caller`. `token` is the caller's own token, for credentials that are derived from it.
    pub fn new(auth: Arc<Auth>, caller: &Caller, token: Option<&str>) -> Self {
        Self {
            auth,
            tenant: caller.tenant().to_owned(),
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
            token: token.map(|token| (token.to_owned(), caller.expires_at())),
        }
    }

    pub(super) fn renews(&self) -> bool {
        self.auth.renews()
    }

    pub(super) async fn step_up(&self, scope: &str) -> Result<bool, AuthError> {
        Box::pin(self.auth.step_up(Some(self.caller()), scope)).await
    }

    pub(super) async fn authorization(
        &self,
        rejected: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, AuthError> {
        Box::pin(self.auth.authorization(Some(self.caller()), rejected)).await
    }

    fn caller(&self) -> OnBehalf<'_> {
        OnBehalf {
            tenant: &self.tenant,
            issuer: &self.issuer,
            subject: &self.subject,
            token: self.token.as_ref().map(|(token, expires_at)| CallerToken {
                token,
                expires_at: *expires_at,
            }),
        }
    }
}
