//! Calls with an idempotency key.

use std::sync::Arc;

use prost::Message;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;
use wardgate_domain::Digest;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_telemetry::names;

use super::{AdmittedCall, End, sorted};
use crate::digest;
use crate::executor::Said;
use crate::failure::{Failure, Ran};
use crate::loaded::Shared;
use crate::store::keyed::{Begun, Ending, KeyedCall};

impl AdmittedCall {
    /// Runs it unless the key says that it ran, and remembers how it ended. A call that waits for its client has not
    /// ended: the key gives what it waits for again, and with the client's answers it goes on, once.
    pub(super) async fn once(
        self,
        key: &str,
        arguments: &Map<String, Value>,
        deadline: Instant,
        shared: &Shared,
        listener: &mpsc::Sender<Said>,
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
            terms: digest::of_texts(&self.terms().each_ref().map(String::as_str)),
            deadline: now.plus(tool.time_limit),
        };
        let resumption = self
            .interaction
            .as_ref()
            .and_then(|it| it.resumption.as_ref());
        let begun = match resumption.map(|it| it.state.write()) {
            Some(state) => {
                let is_it = |waits: &[u8]| {
                    pb::InputRequired::decode(waits).is_ok_and(|waits| waits.state == state)
                };
                store.resume(keyed, is_it, now).await
            }
            None => store.begin(keyed, now).await,
        };
        let ticket = match begun {
            Ok(Begun::Fresh(ticket)) => ticket,
            Ok(Begun::Done(result)) => match pb::ToolResult::decode(result.as_slice()) {
                Ok(result) => return End::Result(result),
                Err(_) => return self.fail(&Failure::unknown_outcome(), 0).end,
            },
            Ok(Begun::Waiting(waits)) if resumption.is_none() => {
                match pb::InputRequired::decode(waits.as_slice()) {
                    Ok(waits) => return End::Waits(waits),
                    Err(_) => return self.fail(&Failure::unknown_outcome(), 0).end,
                }
            }
            Ok(Begun::Waiting(_)) => return self.fail(&Failure::not_waiting(), 0).end,
            Ok(stands) => return self.fail(&Failure::keyed(&stands), 0).end,
            Err(error) => {
                warn!({ names::CALL_ID } = %id, %error, "a call with an idempotency key cannot be run without the store");
                return self.fail(&Failure::no_store(), 0).end;
            }
        };
        let ended = self.perform(arguments, Some(key), deadline, shared, listener);
        let ended = ended.await;
        let bytes = match &ended.end {
            End::Result(result) => result.encode_to_vec(),
            End::Waits(waits) => waits.encode_to_vec(),
        };
        let ending = match (&ended.end, ended.ran) {
            (End::Waits(_), Ran::No) if !is_resumed => Ending::NothingRan,
            (End::Waits(_), _) => Ending::Waiting(&bytes),
            // What went on before it failed did run.
            (_, Ran::No) if is_resumed => Ending::Open,
            (_, Ran::No) => Ending::NothingRan,
            (_, Ran::Perhaps) => Ending::Open,
            (_, Ran::Yes) => Ending::Done(&bytes),
        };
        if let Err(error) = store.finish(ticket, ending).await {
            // The key then says `unknown`, which is safe: it never runs again.
            warn!({ names::CALL_ID } = %id, %error, "the end of a call with an idempotency key was not stored");
        }
        ended.end
    }
}
