//! The record of a call, and the client of its run, to which nothing is sent before the intent is recorded.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use wardgate_domain::{CallFacts, Event};
use wardgate_gateway_record::AuditLog;
use wardgate_rpc::client::{CallEvent, Interaction, PassthroughMeta, Resumption};

use super::description::ResumableOperation;
use super::rejection::Rejection;
use super::replay_grant::ReplayGrant;
use crate::authority::Grant;
use crate::client_interaction::{ClientInteraction, Interruption, PendingInput};

/// The record of a call.
pub(super) struct CallRecord {
    pub(super) facts: CallFacts,
    /// The grant that the call runs under, once it is authorized.
    pub(super) grant: Option<Arc<Grant>>,
    pub(super) has_intent: bool,
}

impl CallRecord {
    /// Appends the intent record, once: before an operation that may write runs, and before anything is sent to the client,
    /// because the outcome record would come too late for that.
    pub(super) async fn record_intent(&mut self, audit_log: &AuditLog) -> Result<(), Rejection> {
        if !self.has_intent {
            let intent = Event::Intent(self.facts.clone());
            let appended = audit_log.append(intent).await;
            appended.map_err(|_| Rejection::NotRecorded)?;
            self.has_intent = true;
        }
        Ok(())
    }
}

/// The client of a run.
pub(crate) struct RunClient<'a> {
    pub(super) interaction: &'a mut ClientInteraction,
    pub(super) record: &'a mut CallRecord,
    pub(super) audit_log: &'a AuditLog,
    pub(super) resumable: Option<&'a dyn ResumableOperation>,
    pub(super) exiting: &'a CancellationToken,
}

impl RunClient<'_> {
    /// Returns the MCP `ClientCapabilities` of the client, or `None` if it declared none.
    pub(crate) fn capabilities(&self) -> Option<Arc<str>> {
        self.interaction.capabilities()
    }

    /// Returns the interaction of the tool-runner with a client of `capabilities`, continued from `resumption`. It has no log
    /// level: a caller that supports log messages sets the one of [`Self::log_level`].
    pub(crate) fn tool_runner_interaction<'c>(
        &self,
        capabilities: Option<&'c str>,
        resumption: Option<Resumption>,
    ) -> Interaction<'c> {
        Interaction {
            capabilities,
            log_level: None,
            resumption,
            passthrough: self.passthrough(),
            is_legacy: self.interaction.is_legacy(),
        }
    }

    /// Returns the parts of the request that the upstream server receives unchanged. An approved call passes none of them on,
    /// because its approvers saw only the arguments.
    fn passthrough(&self) -> PassthroughMeta {
        let grant = self.record.grant.as_ref();
        if grant.is_some_and(|grant| grant.approval.is_some()) {
            PassthroughMeta::default()
        } else {
            self.interaction.passthrough()
        }
    }

    /// Returns the lowest MCP level of the log messages that the client receives, or `None` if it receives none.
    pub(crate) fn log_level(&self) -> Option<&'static str> {
        self.interaction.log_level()
    }

    /// Waits for `step`, unless the client cancels the call, the process exits, or `step` panics.
    pub(crate) async fn unless_cancelled<T>(
        &mut self,
        step: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        let step = self.interaction.unless_cancelled(step);
        let completed = self.exiting.run_until_cancelled(step).await;
        completed.unwrap_or(Err(Interruption::Exiting))
    }

    /// Begins the stream of a client that prefers one, so that it can resume the stream before anything is sent on it.
    pub(crate) async fn begin_stream(&mut self) -> Result<(), Rejection> {
        if self.interaction.begins_with_primer() {
            self.prepare_first_message().await?;
            self.interaction.begin_stream().await;
        }
        Ok(())
    }

    /// Sends the client the notification for `event`, if it asked for such notifications, or closes its stream as the server did.
    pub(crate) async fn send_event(&mut self, event: &CallEvent) -> Result<(), Rejection> {
        if let CallEvent::StreamClosed = event {
            self.interaction.close_stream();
        }
        if let Some(notification) = self.interaction.notification_for(event) {
            self.prepare_first_message().await?;
            self.interaction.send_message(&notification).await;
        }
        Ok(())
    }

    /// Requests input from an older client, on its stream. `suspended` is the state with which another replica can wait for the
    /// responses instead.
    pub(super) async fn request_input(
        &mut self,
        input_requests: &str,
        suspended: impl FnOnce(&PendingInput) -> Option<Vec<u8>>,
    ) -> Result<Bytes, Rejection> {
        self.prepare_first_message().await?;
        let input = self.interaction.request_input(input_requests, suspended);
        Ok(input.await?)
    }

    /// Records the intent and stores the grant with the stream. Both are required before the first message.
    async fn prepare_first_message(&mut self) -> Result<(), Rejection> {
        self.record.record_intent(self.audit_log).await?;
        let (resumable, grant) = (self.resumable, &self.record.grant);
        self.interaction.set_replay_grant(|| {
            let replay_grant = ReplayGrant::new(resumable?.seal()?, grant.as_deref()?)?;
            serde_json::to_vec(&replay_grant).ok()
        });
        Ok(())
    }
}
