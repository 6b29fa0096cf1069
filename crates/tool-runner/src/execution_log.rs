//! The tool-runner's own audit record of the calls that other processes ask it to run.
//!
//! The gateway records every call too, but a process that has the gateway's certificate could skip that. It cannot skip
//! this record: a call that may write is recorded before it runs, and the result of any other call is released only
//! after its execution is recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use wardgate_domain::{Ambient, CallFacts, CallId, Caller, Event, OfferKind, Permit, Record};
use wardgate_rpc::client::{AuditClient, CallError, CallEvents};

use crate::Error;

/// Time within which a failed append is retried once. It is short because a call without a durable record has to end
/// within a second.
const RETRY_WITHIN: Duration = Duration::from_millis(100);

/// Appends executions to the audit log.
#[derive(Debug, Clone)]
pub(crate) struct ExecutionLog {
    audit: AuditClient,
    ambient: Ambient,
}

impl ExecutionLog {
    pub(crate) fn new(audit: AuditClient, ambient: Ambient) -> Self {
        Self { audit, ambient }
    }

    /// Appends the execution durably.
    pub(crate) fn append(
        &self,
        call: CallFacts,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let audit = self.audit.clone();
        let record = Arc::new(Record {
            time: self.ambient.now(),
            event: Event::Execution(call),
        });
        async move {
            let started = Instant::now();
            let mut appended = audit.append_shared(&record, false).await;
            if appended.is_err() && started.elapsed() < RETRY_WITHIN {
                appended = audit.append_shared(&record, true).await;
            }
            appended.map(drop).map_err(Error::ExecutionNotRecorded)
        }
    }
}

/// Returns the facts of a call under `permit` for the audit record.
pub(crate) fn execution_facts(
    id: CallId,
    caller: &Caller,
    kind: OfferKind,
    arguments: &[u8],
    permit: &Permit,
) -> CallFacts {
    let terms = permit.terms();
    let facts = CallFacts {
        tool: Some(terms.tool.clone()),
        definition_digest: Some(terms.definition_digest),
        decision_id: Some(terms.decision_id),
        policy_hash: Some(terms.policy_hash),
        bundle: terms.bundle,
        permit_id: Some(terms.id),
        ..CallFacts::without_tool(id, caller, String::new(), "", arguments)
    };
    match kind {
        OfferKind::Resources => facts.by_method("resources/read"),
        OfferKind::Prompts => facts.by_method("prompts/get"),
        OfferKind::Tool | OfferKind::Connect => facts,
    }
}

/// Holds back `events` until `recorded` is complete; both futures run concurrently. If `recorded` fails, the stream
/// contains only that error, and the work is cancelled.
pub(crate) fn held_until(
    recorded: impl Future<Output = Result<(), Error>> + Send + 'static,
    events: CallEvents,
) -> CallEvents {
    let released = async move {
        let first = async { Ok(events.into_future().await) };
        let ((), (first, rest)) = try_join(recorded, first)
            .await
            .map_err(|error: Error| CallError::from(&error))?;
        Ok::<_, CallError>(stream::iter(first).chain(rest))
    };
    stream::once(released).try_flatten().boxed()
}
