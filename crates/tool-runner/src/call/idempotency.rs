//! Runs calls that carry an idempotency key at most once.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;
use wardgate_domain::Digest;
use wardgate_telemetry::names;

use super::{AdmittedCall, CallEnd, EndedRun};
use crate::failure::{Failure, ToolEffect};
use crate::loaded::SharedState;
use crate::sorted_arguments::to_sorted_json;
use crate::store::keyed::{KeyedCall, KeyedCallState, KeyedOutcome};
use crate::wire;
use wardgate_rpc::client::CallEvent;

impl AdmittedCall {
    /// Runs the call unless a call with the same key has already run, and stores how it ended. A call that waits for
    /// input from its client has not ended: a repetition with the same key gets the same request for input, and the
    /// call goes on once with the client's answers.
    pub(super) async fn run_once(
        self,
        key: &str,
        arguments: &Map<String, Value>,
        deadline: Instant,
        shared: &SharedState,
        listener: &mpsc::Sender<CallEvent>,
    ) -> CallEnd {
        let (id, store, now) = (self.id, &shared.store, shared.ambient.now());
        let is_resumed = self
            .interaction
            .as_ref()
            .is_some_and(|it| it.resumption.is_some());
        let tool = Arc::clone(&self.tool);
        let keyed = KeyedCall {
            caller: &self.caller,
            tool: tool.tool.facts().name.as_str(),
            key,
            arguments: Digest::compute(to_sorted_json(arguments).as_bytes()),
            terms: Digest::of_texts(&self.terms().each_ref().map(String::as_str)),
            deadline: now.plus(tool.time_limit),
        };
        let resumption = self
            .interaction
            .as_ref()
            .and_then(|it| it.resumption.as_ref());
        let state = match resumption.map(|it| it.state.encode()) {
            Some(state) => {
                let is_it = |required: &[u8]| {
                    wire::decode_input_required(required)
                        .is_some_and(|required| required.state == state)
                };
                store.resume(keyed, is_it, now).await
            }
            None => store.begin(keyed, now).await,
        };
        let ticket = match state {
            Ok(KeyedCallState::Fresh(ticket)) => ticket,
            Ok(KeyedCallState::Done(result)) => match wire::decode_tool_result(&result) {
                Some(result) => return CallEnd::Result(result),
                None => return self.fail_without_rows(&Failure::unknown_outcome()).end,
            },
            Ok(KeyedCallState::Waiting(required)) if resumption.is_none() => {
                match wire::decode_input_required(&required) {
                    Some(required) => return CallEnd::InputRequired(required),
                    None => return self.fail_without_rows(&Failure::unknown_outcome()).end,
                }
            }
            Ok(KeyedCallState::Waiting(_)) => {
                return self.fail_without_rows(&Failure::not_waiting()).end;
            }
            Ok(state) => return self.fail_without_rows(&Failure::for_key_state(&state)).end,
            Err(error) => {
                warn!({ names::CALL_ID } = %id, %error, "a call with an idempotency key cannot run without the store");
                return self.fail_without_rows(&Failure::no_store()).end;
            }
        };
        let ended = self.perform(arguments, Some(key), deadline, shared, listener);
        let ended = ended.await;
        let bytes = match &ended.end {
            CallEnd::Result(result) => wire::encode_tool_result(result),
            CallEnd::InputRequired(required) => wire::encode_input_required(required),
            // A call with an idempotency key never becomes a task.
            CallEnd::Task(_) => Vec::new(),
        };
        let ending = outcome_to_store(&ended, &bytes, is_resumed);
        if let Err(error) = store.finish(ticket, ending).await {
            // The state of the key is then `unknown`, which is safe because the call never runs again.
            warn!({ names::CALL_ID } = %id, %error, "the outcome of a call with an idempotency key was not stored");
        }
        ended.end
    }
}

/// Returns what is stored for the key after a round ended; `bytes` is the encoded end of the round.
fn outcome_to_store<'a>(ended: &EndedRun, bytes: &'a [u8], is_resumed: bool) -> KeyedOutcome<'a> {
    match (&ended.end, ended.effect) {
        // A request to connect is not stored: the caller repeats the call after connecting, and would get the stored
        // request again.
        (CallEnd::InputRequired(required), effect)
            if required.connect.is_none() && (is_resumed || effect != ToolEffect::None) =>
        {
            KeyedOutcome::Waiting(bytes)
        }
        // The rounds before the one that failed did run.
        (_, ToolEffect::None) if is_resumed => KeyedOutcome::Open,
        (_, ToolEffect::None) => KeyedOutcome::NothingRan,
        (CallEnd::InputRequired(_) | CallEnd::Task(_), _) | (_, ToolEffect::Possible) => {
            KeyedOutcome::Open
        }
        (CallEnd::Result(_), ToolEffect::Done) => KeyedOutcome::Done(bytes),
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the outcome that is stored for a key.

    use bytes::Bytes;
    use wardgate_domain::Status;
    use wardgate_rpc::client::{ConnectTarget, InputRequired};

    use super::*;
    use crate::result;

    #[test]
    fn a_question_to_connect_is_never_what_a_key_waits_for() {
        let ends = |connect, effect, is_resumed| {
            let required = InputRequired {
                requests: String::new(),
                state: Bytes::new(),
                facts: result::facts(Status::Ok, "", Vec::new()),
                connect,
            };
            let end = CallEnd::InputRequired(required);
            outcome_to_store(&EndedRun { end, effect }, b"", is_resumed)
        };
        let connect = || {
            Some(ConnectTarget {
                source: "mail".to_owned(),
                scope: None,
                caller_proof: Bytes::new(),
            })
        };
        assert!(matches!(
            ends(connect(), ToolEffect::None, false),
            KeyedOutcome::NothingRan
        ));
        assert!(matches!(
            ends(connect(), ToolEffect::None, true),
            KeyedOutcome::Open
        ));
        assert!(matches!(
            ends(connect(), ToolEffect::Possible, false),
            KeyedOutcome::Open
        ));
        for is_resumed in [false, true] {
            let required = ends(None, ToolEffect::Possible, is_resumed);
            assert!(matches!(required, KeyedOutcome::Waiting(_)));
        }
    }
}
