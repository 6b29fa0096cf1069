//! Decisions on single prompts and resources of a source.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use serde_json::json;
use wardgate_domain::{Caller, OfferKind, ToolFacts};
use wardgate_mcp_server::RpcError;

use crate::authority::{Authority, Authorization, Grant};

/// Maximum number of decisions that are requested at once.
const AT_ONCE: usize = 8;

/// A caller, and the facts that the policy has about one kind of content of a source.
#[derive(Clone, Copy)]
pub(super) struct ContentReader<'a> {
    pub(super) authority: &'a Authority,
    pub(super) caller: &'a Caller,
    pub(super) client_ip: &'a str,
    pub(super) facts: &'a ToolFacts,
}

impl ContentReader<'_> {
    /// Returns the grant for the content that its source calls `own_name`, or `None` if the caller has no right to it.
    pub(super) async fn right(&self, own_name: &str) -> Result<Option<Arc<Grant>>, RpcError> {
        let asked = policy_arguments(self.facts.kind, own_name);
        let authority = self.authority;
        let asked = authority.authorize(self.caller, self.facts, &asked, self.client_ip);
        match asked.await {
            Ok(Authorization::Allowed(grant)) => Ok(Some(grant)),
            Ok(Authorization::Denied { .. } | Authorization::NeedsIntent(_)) => Ok(None),
            Err(error) => Err(authority.undecided_error(&error)),
        }
    }
}

/// Returns the arguments that the policy decides on: a JSON object, which the tool-runner compares with the permit.
pub(super) fn policy_arguments(kind: OfferKind, own_name: &str) -> Bytes {
    let named = match kind {
        OfferKind::Prompts => json!({ "name": own_name }),
        _ => json!({ "uri": own_name }),
    };
    named.to_string().into()
}

/// Returns those of `all` for which `may_have` is true, in their order. Stops once more than `enough` were found.
pub(super) async fn filter_allowed<T: Copy, F: Future<Output = Result<bool, RpcError>>>(
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
