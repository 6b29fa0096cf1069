//! Fakes of what an assistant talks to: a model that follows a script, and a gateway with tools and a memory.

mod gateway;
mod memory;
mod model;

use std::sync::Arc;

use wardgate_domain::Caller;

pub(crate) use gateway::{FakeGateway, FakeTool, answer};
pub(crate) use model::{ScriptedAnswer, ScriptedModel, call, says, words};

/// Somebody with these roles.
pub(crate) fn caller(subject: &str, roles: &[&str]) -> Arc<Caller> {
    Arc::new(wardgate_testkit::caller(subject, roles))
}
