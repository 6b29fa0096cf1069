//! Keeps an access token until shortly before it expires, and has it asked for by one call at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;
use wardgate_domain::{Ambient, Timestamp};

use super::AuthError;

/// The longest time before its expiry at which a token is given up.
const LONGEST_MARGIN: Duration = Duration::from_secs(30);

/// The most scopes that a service gets by asking for them.
const MOST_SCOPES: usize = 32;

/// A token as the header it is sent in.
#[derive(Clone)]
pub(super) struct AccessToken {
    authorization: HeaderValue,
    use_until: Timestamp,
}

impl AccessToken {
    /// Gives up a tenth of the lifetime, so that the token is still good when it arrives.
    pub(super) fn new(authorization: HeaderValue, now: Timestamp, lifetime: Duration) -> Self {
        let margin = (lifetime / 10).min(LONGEST_MARGIN);
        Self {
            authorization,
            use_until: now.plus(lifetime.saturating_sub(margin)),
        }
    }
}

/// A place for one access token.
#[derive(Default)]
pub(super) struct TokenCell {
    last: Mutex<Option<Result<AccessToken, AuthError>>>,
    /// How often an answer to `ask` came.
    answers: AtomicU64,
    /// Scopes that the service asked for besides, each time the new ones; each new token is asked for with them.
    wider: StdMutex<Vec<Vec<String>>>,
}

impl TokenCell {
    /// The kept token, unless it is `rejected` or about to expire; else a new one, with the scopes that `ask` is given
    /// besides. Those who wait while one
    /// asks take what it gets, its failure too, so that a dead endpoint is not asked by each in turn.
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
            // A service that asks for what its server does not grant must not cost the token that there was.
            self.wider().pop();
        }
        self.answers.fetch_add(1, Ordering::Release);
        *last = Some(answer.clone());
        answer.map(|token| token.authorization)
    }
    /// Has tokens asked for with these scopes too; false where it would be too many.
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
