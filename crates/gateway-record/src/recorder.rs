//! The recorder of outcomes, accesses to the memory, and refusals, which are counted.

use std::sync::{Arc, Weak};

use wardgate_domain::{Ambient, Caller, Event, MemoryAccess, Outcome};
use wardgate_mcp_server::{McpResponse, RecordStatus};
use wardgate_rpc::client::CallError;

use crate::audit_log::AuditLog;
use crate::refusals::{INTERVAL, Refusals};

/// Records the actions of callers.
pub struct CallRecorder {
    audit_log: AuditLog,
    refusals: Refusals,
    ambient: Ambient,
}

impl CallRecorder {
    /// Creates a recorder. It records the counted refusals every second until it is dropped.
    pub fn new(audit_log: AuditLog, ambient: Ambient) -> Arc<Self> {
        let recorder = Arc::new(Self {
            audit_log,
            refusals: Refusals::default(),
            ambient,
        });
        tokio::spawn(flush_periodically(Arc::downgrade(&recorder)));
        recorder
    }

    /// Returns the audit log.
    pub fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }

    /// Records how a call ended, or counts it if it was refused and its caller had many refusals recently. The outcome
    /// is always recorded if the intent of the call was, and if the call is about an approval, because approvers refer
    /// to the id of the approval.
    pub async fn record_outcome(
        &self,
        outcome: Outcome,
        has_intent: bool,
    ) -> Result<RecordStatus, CallError> {
        let is_kept = has_intent || outcome.call.approval_id.is_some();
        if !is_kept && self.refusals.folds(&outcome.call, outcome.status) {
            return Ok(RecordStatus::InSummary);
        }
        let appended = self.audit_log.append(Event::Outcome(outcome)).await;
        appended.map(RecordStatus::ByItself)
    }

    /// Records an access to the memory, or counts it if it was refused and its caller had many refusals recently.
    pub async fn record_access(&self, access: MemoryAccess) -> Result<RecordStatus, CallError> {
        if self.refusals.folds(&access.call, access.status) {
            return Ok(RecordStatus::InSummary);
        }
        let appended = self.audit_log.append(Event::MemoryAccess(access)).await;
        appended.map(RecordStatus::ByItself)
    }

    /// Counts a request that was refused before its message was read. `subject` is empty if the token itself was refused.
    pub fn count_refusal(&self, reason: &'static str, client_ip: &str, subject: &str) {
        self.refusals.count(reason, client_ip, subject);
    }

    /// Counts the refusals of messages in `answer`. A refused tool call has a record, but a message that never became a
    /// call is only counted.
    pub fn count_refusals(&self, answer: &McpResponse, client_ip: &str, caller: &Caller) {
        for reason in answer.refusal_reasons() {
            self.refusals.count(reason, client_ip, caller.subject());
        }
    }

    /// Records the refusals that were counted.
    pub async fn flush(&self) {
        self.refusals.flush(&self.audit_log, &self.ambient).await;
    }
}

async fn flush_periodically(recorder: Weak<CallRecorder>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let Some(recorder) = recorder.upgrade() else {
            return;
        };
        recorder.flush().await;
    }
}
