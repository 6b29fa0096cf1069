//! Calls with an idempotency key.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;
use wardgate_domain::Digest;
use wardgate_telemetry::names;

use super::{AdmittedCall, End, EndedRun, sorted};
use crate::executor::RunEvent;
use crate::failure::{Failure, ToolOutcome};
use crate::loaded::SharedState;
use crate::store::keyed::{KeyedCall, KeyedCallState, KeyedOutcome};
use crate::wire;

impl AdmittedCall {
    /// Runs it unless the key says that it ran, and remembers how it ended. A call that waits for its client has not
    /// ended: the key gives what it waits for again, and with the client's answers it goes on, once.
    pub(super) async fn once(
        self,
        key: &str,
        arguments: &Map<String, Value>,
        deadline: Instant,
        shared: &SharedState,
        listener: &mpsc::Sender<RunEvent>,
    ) -> End {
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
            arguments: Digest::of(sorted(arguments).as_bytes()),
            terms: Digest::of_texts(&self.terms().each_ref().map(String::as_str)),
            deadline: now.plus(tool.time_limit),
        };
        let resumption = self
            .interaction
            .as_ref()
            .and_then(|it| it.resumption.as_ref());
        let begun = match resumption.map(|it| it.state.write()) {
            Some(state) => {
                let is_it = |waits: &[u8]| {
                    wire::decode_input_required(waits).is_some_and(|waits| waits.state == state)
                };
                store.resume(keyed, is_it, now).await
            }
            None => store.begin(keyed, now).await,
        };
        let ticket = match begun {
            Ok(KeyedCallState::Fresh(ticket)) => ticket,
            Ok(KeyedCallState::Done(result)) => match wire::decode_tool_result(&result) {
                Some(result) => return End::Result(result),
                None => return self.fail(&Failure::unknown_outcome(), 0).end,
            },
            Ok(KeyedCallState::Waiting(waits)) if resumption.is_none() => {
                match wire::decode_input_required(&waits) {
                    Some(waits) => return End::Waits(waits),
                    None => return self.fail(&Failure::unknown_outcome(), 0).end,
                }
            }
            Ok(KeyedCallState::Waiting(_)) => return self.fail(&Failure::not_waiting(), 0).end,
            Ok(stands) => return self.fail(&Failure::keyed(&stands), 0).end,
            Err(error) => {
                warn!({ names::CALL_ID } = %id, %error, "a call with an idempotency key cannot be run without the store");
                return self.fail(&Failure::no_store(), 0).end;
            }
        };
        let ended = self.perform(arguments, Some(key), deadline, shared, listener);
        let ended = ended.await;
        let bytes = match &ended.end {
            End::Result(result) => wire::encode_tool_result(result),
            End::Waits(waits) => wire::encode_input_required(waits),
            // With a key nothing becomes one.
            End::Task(_) => Vec::new(),
        };
        let ending = ending(&ended, &bytes, is_resumed);
        if let Err(error) = store.finish(ticket, ending).await {
            // The key then says `unknown`, which is safe: it never runs again.
            warn!({ names::CALL_ID } = %id, %error, "the end of a call with an idempotency key was not stored");
        }
        ended.end
    }
}

/// What the key stands for once a round ended so; `bytes` are those of its end.
fn ending<'a>(ended: &EndedRun, bytes: &'a [u8], is_resumed: bool) -> KeyedOutcome<'a> {
    match (&ended.end, ended.ran) {
        // Who connected asks anew: kept, the question would be the answer for good.
        (End::Waits(waits), ran)
            if waits.connect.is_none() && (is_resumed || ran != ToolOutcome::No) =>
        {
            KeyedOutcome::Waiting(bytes)
        }
        // What went on before it failed did run.
        (_, ToolOutcome::No) if is_resumed => KeyedOutcome::Open,
        (_, ToolOutcome::No) => KeyedOutcome::NothingRan,
        (End::Waits(_) | End::Task(_), _) | (_, ToolOutcome::Perhaps) => KeyedOutcome::Open,
        (End::Result(_), ToolOutcome::Yes) => KeyedOutcome::Done(bytes),
    }
}

#[cfg(test)]
mod tests {
    //! What becomes of the key.

    use bytes::Bytes;
    use wardgate_domain::Status;
    use wardgate_rpc::client::{ConnectTarget, InputRequired};

    use super::*;
    use crate::result;

    #[test]
    fn a_question_to_connect_is_never_what_a_key_waits_for() {
        let ends = |connect, ran, is_resumed| {
            let waits = InputRequired {
                requests: String::new(),
                state: Bytes::new(),
                facts: result::facts(Status::Ok, "", Vec::new()),
                connect,
            };
            let end = End::Waits(waits);
            ending(&EndedRun { end, ran }, b"", is_resumed)
        };
        let connect = || {
            Some(ConnectTarget {
                source: "mail".to_owned(),
                scope: None,
            })
        };
        assert!(matches!(
            ends(connect(), ToolOutcome::No, false),
            KeyedOutcome::NothingRan
        ));
        assert!(matches!(
            ends(connect(), ToolOutcome::No, true),
            KeyedOutcome::Open
        ));
        assert!(matches!(
            ends(connect(), ToolOutcome::Perhaps, false),
            KeyedOutcome::Open
        ));
        for is_resumed in [false, true] {
            let waits = ends(None, ToolOutcome::Perhaps, is_resumed);
            assert!(matches!(waits, KeyedOutcome::Waiting(_)));
        }
    }
}
