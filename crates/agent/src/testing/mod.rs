//! Fakes of the services that an assistant uses: a scripted model, and a gateway with tools and a memory.

mod gateway;
mod memory;
mod model;

use std::sync::Arc;

use wardgate_domain::Caller;

pub(crate) use gateway::{FakeGateway, FakeTool, answer};
pub(crate) use model::{ScriptedAnswer, ScriptedModel, call, says, words};

/// Returns a caller with these roles.
pub(crate) fn caller(subject: &str, roles: &[&str]) -> Arc<Caller> {
    Arc::new(wardgate_testkit::caller(subject, roles))
}
