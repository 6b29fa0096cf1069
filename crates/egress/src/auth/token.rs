//! A cell that caches an access token until shortly before it expires, and lets only one call at a time request a new
//! one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;
use wardgate_domain::{Ambient, Timestamp};

use super::AuthError;

/// Maximum time before its expiry from which on a token is not used any more.
const LONGEST_MARGIN: Duration = Duration::from_secs(30);

/// Maximum number of scopes that a service can add by requiring them.
const MOST_SCOPES: usize = 32;

/// A token in the form of its header.
#[derive(Clone)]
pub(super) struct AccessToken {
    authorization: HeaderValue,
    use_until: Timestamp,
}

impl AccessToken {
    /// Creates a token that is used for nine tenths of its lifetime, so that it is still valid when it arrives.
    pub(super) fn new(authorization: HeaderValue, now: Timestamp, lifetime: Duration) -> Self {
        let margin = (lifetime / 10).min(LONGEST_MARGIN);
        Self {
            authorization,
            use_until: now.plus(lifetime.saturating_sub(margin)),
        }
    }
}

/// A cell for one access token.
#[derive(Default)]
pub(super) struct TokenCell {
    last: Mutex<Option<Result<AccessToken, AuthError>>>,
    /// The number of results of `ask`.
    answers: AtomicU64,
    /// The scopes that the service required in addition, one entry for each time. Every new token is requested with
    /// them.
    wider: StdMutex<Vec<Vec<String>>>,
}

impl TokenCell {
    /// Returns the cached token, unless it is `rejected` or about to expire. Otherwise requests a new one with `ask`,
    /// which receives the additional scopes. Calls that waited for a request share its result, even if it is an error,
    /// so that an unavailable endpoint is not tried by each call in turn.
    pub(super) async fn get<F>(
        &self,
        ambient: &Ambient,
        rejected: Option<&HeaderValue>,
        ask: impl FnOnce(String) -> F,
    ) -> Result<HeaderValue, AuthError>
    where
        F: Future<Output = Result<AccessToken, AuthError>>,
    {
        let answers = self.answers.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        match &*last {
            Some(Ok(token))
                if ambient.now() < token.use_until && rejected != Some(&token.authorization) =>
            {
                return Ok(token.authorization.clone());
            }
            Some(Err(error)) if self.answers.load(Ordering::Acquire) != answers => {
                return Err(error.clone());
            }
            _ => {}
        }
        let wider = self.wider().concat().join(" ");
        let answer = ask(wider).await;
        if let Err(AuthError::Refused {
            code: Some("invalid_scope"),
            ..
        }) = &answer
        {
            // If the server does not grant a scope, it is removed again, because otherwise no token could be requested
            // any more.
            self.wider().pop();
        }
        self.answers.fetch_add(1, Ordering::Release);
        *last = Some(answer.clone());
        answer.map(|token| token.authorization)
    }
    /// Adds scopes to all further token requests. Returns `false` if there would be too many.
    pub(super) fn widen(&self, scope: &str) -> bool {
        let mut wider = self.wider();
        let mut added: Vec<String> = Vec::new();
        for scope in scope.split_ascii_whitespace() {
            let mut known = wider.iter().flatten().chain(&added);
            if !known.any(|known| known == scope) {
                added.push(scope.to_owned());
            }
        }
        if wider.iter().flatten().count() + added.len() > MOST_SCOPES {
            return false;
        }
        if !added.is_empty() {
            wider.push(added);
        }
        true
    }

    fn wider(&self) -> MutexGuard<'_, Vec<Vec<String>>> {
        self.wider.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
