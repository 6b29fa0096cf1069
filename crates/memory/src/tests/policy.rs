//! A policy that is configured by a test.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tonic::Status;
use wardgate_domain::{
    Ambient, BearerToken, Caller, ConversationKey, DecisionId, Digest, OperatorAction,
    ReadDecision, ToolFacts,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{CallError, IdentifiedOperator, OperatorError};

use crate::owner::Owner;
use crate::rights::{RequestContext, Rights};
use crate::store::CallRights;

/// A fake policy. By default everyone may call every tool, and nobody may recall conversations of others.
#[derive(Clone, Default)]
pub(crate) struct Policy(Arc<Mutex<PolicyState>>);

#[derive(Default)]
struct PolicyState {
    down: bool,
    denied: HashSet<(String, String)>,
    /// The part of each tool's results that may be seen. Tools without an entry have the same default.
    sees: HashMap<String, String>,
    by_arguments: HashSet<String>,
    recalls: HashSet<(String, ConversationKey)>,
    questions: usize,
    identified: usize,
    refuses_tokens: bool,
}

impl Policy {
    pub(crate) fn is_down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }

    /// Denies `subject` all calls of `tool`.
    pub(crate) fn deny(&self, subject: &str, tool: &str) {
        let pair = (subject.to_owned(), tool.to_owned());
        self.0.lock().unwrap().denied.insert(pair);
    }

    /// Changes which rows or columns of `tool` may be seen.
    pub(crate) fn narrow(&self, tool: &str, sees: &str) {
        let mut says = self.0.lock().unwrap();
        says.sees.insert(tool.to_owned(), sees.to_owned());
    }

    /// Allows calls of `tool` only if the arguments do not contain the word `secret`.
    pub(crate) fn judge_arguments(&self, tool: &str) {
        self.0.lock().unwrap().by_arguments.insert(tool.to_owned());
    }

    pub(crate) fn share(&self, subject: &str, conversation: ConversationKey) {
        let pair = (subject.to_owned(), conversation);
        self.0.lock().unwrap().recalls.insert(pair);
    }

    /// Refuses all tokens.
    pub(crate) fn refuse_tokens(&self) {
        self.0.lock().unwrap().refuses_tokens = true;
    }

    /// Returns the number of tokens that were verified since the last call.
    pub(crate) fn take_identified_count(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().identified)
    }

    /// Returns the number of decisions that were requested since the last call.
    pub(crate) fn questions(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().questions)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("as ordered")]
struct RefusedByTest;

impl ServiceError for RefusedByTest {
    fn reason(&self) -> ErrorReason {
        ErrorReason::TokenRefused
    }
}

impl Rights for Policy {
    async fn identify(&self, token: &BearerToken) -> Result<Caller, CallError> {
        let mut says = self.0.lock().unwrap();
        says.identified += 1;
        let parts: Vec<_> = token.expose().splitn(3, ' ').collect();
        let [issuer, tenant, subject] = parts[..] else {
            return Err(wardgate_rpc::status(&RefusedByTest).into());
        };
        if says.refuses_tokens {
            return Err(wardgate_rpc::status(&RefusedByTest).into());
        }
        Ok(super::caller_of(issuer, tenant, subject))
    }

    async fn authorize_manager(&self, token: &str) -> Result<IdentifiedOperator, OperatorError> {
        if token.is_empty() {
            return Err(OperatorError::NoToken);
        }
        let caller = Rights::identify(self, &BearerToken::new(token)).await;
        let caller = caller.map_err(OperatorError::TokenRefused)?;
        let ambient = Ambient::system();
        Ok(IdentifiedOperator {
            decision: ReadDecision {
                id: DecisionId::new(&ambient),
                allowed: caller.subject() == super::MANAGER,
                policy_hash: Digest::compute(b"policies"),
                bundle: None,
            },
            action: OperatorAction::ManageRecord,
            caller,
        })
    }

    async fn of_call(
        &self,
        context: RequestContext<'_>,
        tool: &ToolFacts,
        arguments: Bytes,
    ) -> Result<Option<CallRights>, CallError> {
        let mut says = self.0.lock().unwrap();
        says.questions += 1;
        if says.down {
            return Err(Status::unavailable("as ordered").into());
        }
        let name = tool.name.to_string();
        let pair = (context.caller.subject().to_owned(), name.clone());
        let by_arguments = says.by_arguments.contains(&name);
        let secret = arguments.windows(6).any(|part| part == b"secret");
        if says.denied.contains(&pair) || (by_arguments && secret) {
            return Ok(None);
        }
        let sees = says.sees.get(&name).cloned().unwrap_or_default();
        Ok(Some(CallRights {
            rights: Digest::compute(sees.as_bytes()),
            policy_hash: Digest::compute(b"policies"),
            by_arguments,
        }))
    }

    async fn may_recall(
        &self,
        caller: &Caller,
        conversation: ConversationKey,
        _owner: &Owner,
    ) -> Result<Option<ReadDecision>, CallError> {
        let says = self.0.lock().unwrap();
        let pair = (caller.subject().to_owned(), conversation);
        let decision = || ReadDecision {
            id: DecisionId::new(&Ambient::system()),
            allowed: true,
            policy_hash: Digest::compute(b"policies"),
            bundle: None,
        };
        Ok(says.recalls.contains(&pair).then(decision))
    }
}
