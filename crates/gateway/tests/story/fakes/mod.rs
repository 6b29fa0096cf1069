//! The neighbours: small real implementations that do as they are told.

mod audit;
mod memory;
mod policy;
mod tool_runner;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tokio::sync::watch;
use tonic::Status;
use wardgate_domain::{BearerToken, Caller, CallerClaims, Timestamp};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::{ServiceError, status};

pub(crate) use audit::{AppendBehavior, Audit};
pub(crate) use memory::Memory;
pub(crate) use policy::{Policy, PolicyAnswer};
pub(crate) use tool_runner::{RunBehavior, ToolRunner, given_content, result, tool};

/// Longer than anything takes, on a machine that is busy building.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// What was seen, in order; a test can wait for more.
#[derive(Debug, Clone)]
pub(crate) struct Log<T>(watch::Sender<Vec<T>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl<T: Clone + Debug> Log<T> {
    pub(crate) fn push(&self, seen: T) {
        self.0.send_modify(|all| all.push(seen));
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.borrow().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits until so many were seen, and gives them all.
    pub(crate) async fn reaches(&self, count: usize) -> Vec<T> {
        self.until(|all| all.len() >= count).await
    }

    /// Waits until what was seen fits, and gives it.
    pub(crate) async fn until(&self, fits: impl Fn(&[T]) -> bool) -> Vec<T> {
        let mut receiver = self.0.subscribe();
        let reached = receiver.wait_for(|all| fits(all));
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        let Ok(all) = reached else {
            panic!("waited in vain; seen so far: {:#?}", self.all())
        };
        all.unwrap().clone()
    }
}

/// Whose `token` is. The gateway has verified it by then.
pub(crate) fn caller_of(token: &str) -> Caller {
    let claims = token.split('.').nth(1).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let text = |name: &str| claims[name].as_str().unwrap().to_owned();
    let roles = claims["roles"].as_array().unwrap().iter();
    let caller = Caller::from_verified(CallerClaims {
        issuer: text("iss"),
        subject: text("sub"),
        tenant: String::new(),
        roles: roles
            .map(|role| role.as_str().unwrap().to_owned())
            .collect(),
        attributes: BTreeMap::new(),
        token_id: "t".to_owned(),
        expires_at: Timestamp::from_seconds(claims["exp"].as_i64().unwrap()),
    });
    caller.with_token(BearerToken::new(token))
}

/// A failure ordered by a test.
#[derive(Debug, thiserror::Error)]
#[error("as ordered")]
struct OrderedFailure(ErrorReason);

impl ServiceError for OrderedFailure {
    fn reason(&self) -> ErrorReason {
        self.0
    }
}

fn failure(reason: ErrorReason) -> Status {
    status(&OrderedFailure(reason))
}

/// The value now and on every change, until there is none.
fn follow<T, M>(
    mut value: watch::Receiver<Option<T>>,
    message: impl Fn(T) -> M + Send + 'static,
) -> BoxStream<'static, Result<M, Status>>
where
    T: Clone + Send + Sync + 'static,
    M: Send + 'static,
{
    value.mark_changed();
    stream::unfold((value, message), |(mut value, message)| async move {
        value.changed().await.ok()?;
        let current = value.borrow_and_update().clone()?;
        Some((Ok(message(current)), (value, message)))
    })
    .boxed()
}
