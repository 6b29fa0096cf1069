//! Fakes of what an assistant talks to: a model that follows a script, and a gateway with tools and a memory.

mod gateway;
mod memory;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use wardgate_domain::{Caller, CallerClaims, Timestamp};

pub(crate) use gateway::{FakeGateway, FakeTool};
pub(crate) use model::{ScriptedAnswer, ScriptedModel, call, says, words};

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
