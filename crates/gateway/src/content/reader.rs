//! What somebody may have of a source, decided one by one.

use std::sync::Arc;

use futures::future::join_all;
use wardgate_domain::{Caller, ToolFacts};
use wardgate_mcp_server::RpcError;

use super::content_request;
use crate::authority::{Authority, Authorization, Grant};

/// Decisions asked for at a time.
const AT_ONCE: usize = 8;

/// Who asks, and what the policy knows of one kind of what the source offers.
#[derive(Clone, Copy)]
pub(super) struct ContentReader<'a> {
    pub(super) authority: &'a Authority,
    pub(super) caller: &'a Caller,
    pub(super) client_ip: &'a str,
    pub(super) facts: &'a ToolFacts,
}

impl ContentReader<'_> {
    /// The right to what its source calls so, if there is one.
    pub(super) async fn right(&self, own_name: &str) -> Result<Option<Arc<Grant>>, RpcError> {
        let asked = content_request::policy_arguments(self.facts.kind, own_name);
        let authority = self.authority;
        let asked = authority.authorize(self.caller, self.facts, &asked, self.client_ip);
        match asked.await {
            Ok(Authorization::Allowed(grant)) => Ok(Some(grant)),
            Ok(Authorization::Denied { .. } | Authorization::NeedsIntent(_)) => Ok(None),
            Err(error) => Err(authority.undecided(&error)),
        }
    }
}

/// Those of `all` that may be had, in their order. Once these are more than `enough`, no others are asked about.
pub(super) async fn allowed<T: Copy, F: Future<Output = Result<bool, RpcError>>>(
    all: &[T],
    enough: usize,
    may_have: impl Fn(T) -> F,
) -> Result<Vec<T>, RpcError> {
    let mut allowed = Vec::new();
    for some in all.chunks(AT_ONCE) {
        let decided = join_all(some.iter().map(|one| may_have(*one))).await;
        for (one, decided) in some.iter().zip(decided) {
            if decided? {
                allowed.push(*one);
            }
        }
        if allowed.len() > enough {
            break;
        }
    }
    Ok(allowed)
}
