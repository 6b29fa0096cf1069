//! The exchange with the client, and calls that wait for the client.

use bytes::Bytes;
use serde_json::{Map, Value};
use wardgate_domain::Status;
use wardgate_rpc::client::{ConnectTarget, InputRequired};

use super::{AdmittedCall, CallEnd, EndedRun};
use crate::failure::ToolEffect;
use crate::interaction::{Elicitation, ElicitedRequest, SuspendedRound};
use crate::loaded::SharedState;
use crate::result;

impl AdmittedCall {
    /// Returns the exchange with the client if the tool's source may talk to the client.
    pub(super) fn elicitation<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        key: Option<&'a str>,
        shared: &'a SharedState,
    ) -> Option<Elicitation<'a>> {
        let interaction = self.interaction.as_ref()?;
        let request = ElicitedRequest::Call {
            definition: self.permit.terms().definition_digest,
            arguments,
            key: key.unwrap_or_default(),
        };
        let elicitation = Elicitation::new(
            interaction,
            &shared.suspended_exchanges,
            &self.caller,
            request,
        );
        // An idempotency key stands for one result, and a caller that repeats the call would not get the task again.
        Some(elicitation.with_task_if(key.is_none()))
    }

    /// Ends a call that did not run because the caller has to let the source act in their name first.
    pub(super) fn connect(self, scope: Option<String>, shared: &SharedState) -> EndedRun {
        let source = self.tool.tool.source().unwrap_or_default();
        let proof = shared.store.seal_caller_proof(self.caller.person(), source);
        let connect = ConnectTarget {
            source: source.to_owned(),
            scope,
            // Sealing does not fail in practice. An empty proof is refused like an invalid one.
            caller_proof: proof.unwrap_or_default().into(),
        };
        let required = InputRequired {
            requests: String::new(),
            state: Bytes::new(),
            facts: result::facts(Status::Ok, "", self.stopwatch.into_stages()),
            connect: Some(connect),
        };
        EndedRun {
            end: CallEnd::InputRequired(required),
            effect: ToolEffect::None,
        }
    }

    /// Ends this round of the call. The call goes on with the client's answers.
    pub(super) fn suspend(self, round: SuspendedRound) -> EndedRun {
        let facts = result::facts(Status::Ok, "", self.stopwatch.into_stages());
        EndedRun {
            end: CallEnd::InputRequired(round.into_input_required(facts)),
            effect: ToolEffect::Possible,
        }
    }
}
