//! Fakes of what an assistant talks to: a model that follows a script, and a gateway with tools and a memory.

mod gateway;
mod memory;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wardgate_domain::{Caller, CallerClaims, Clock, Timestamp};

pub(crate) use gateway::{FakeGateway, FakeTool};
pub(crate) use model::{Answer, ScriptedModel, call, says, words};

/// A clock that stands until it is moved.
#[derive(Default)]
pub(crate) struct SetClock(AtomicU64);

impl SetClock {
    pub(crate) fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        let since = Duration::from_micros(self.0.load(Ordering::SeqCst));
        Timestamp::from_seconds(1_762_869_000).plus(since)
    }
}

/// Somebody with these roles.
pub(crate) fn caller(subject: &str, roles: &[&str]) -> Arc<Caller> {
    Arc::new(Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
        tenant: String::new(),
        roles: roles.iter().map(ToString::to_string).collect(),
        attributes: BTreeMap::new(),
        token_id: "t-1".to_owned(),
        expires_at: Timestamp::from_seconds(4_000_000_000),
    }))
}
