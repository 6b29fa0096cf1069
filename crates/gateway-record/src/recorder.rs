//! What goes on record of callers: how calls ended, uses of the memory, and refusals, which are counted.

use std::sync::{Arc, Weak};

use wardgate_domain::{Ambient, Caller, Event, MemoryAccess, Outcome};
use wardgate_mcp_server::{McpResponse, RecordStatus};
use wardgate_rpc::client::CallError;

use crate::audit_log::AuditLog;
use crate::refusals::{INTERVAL, Refusals};

/// Records what callers did.
pub struct CallRecorder {
    audit_log: AuditLog,
    refusals: Refusals,
    ambient: Ambient,
}

impl CallRecorder {
    /// The recorder, which records every second what was only counted, for as long as it is held.
    pub fn new(audit_log: AuditLog, ambient: Ambient) -> Arc<Self> {
        let recorder = Arc::new(Self {
            audit_log,
            refusals: Refusals::default(),
            ambient,
        });
        tokio::spawn(flush_periodically(Arc::downgrade(&recorder)));
        recorder
    }

    /// Where it records.
    pub fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }

    /// Puts on record how a call ended, and counts a refusal instead where its caller had many of late. A call whose intent
    /// is on record has an outcome too, always; so has what is about an approval, since approvers decide about it under its id.
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

    /// The same of a use of the memory, which has no intent.
    pub async fn record_access(&self, access: MemoryAccess) -> Result<RecordStatus, CallError> {
        if self.refusals.folds(&access.call, access.status) {
            return Ok(RecordStatus::InSummary);
        }
        let appended = self.audit_log.append(Event::MemoryAccess(access)).await;
        appended.map(RecordStatus::ByItself)
    }

    /// Counts a request that was refused before its message was read. `subject` is empty when the token itself was refused.
    pub fn count_refusal(&self, reason: &'static str, client_ip: &str, subject: &str) {
        self.refusals.count(reason, client_ip, subject);
    }

    /// Counts why a message was refused. A refused call of a tool has its own record; what never became one has
    /// only this.
    pub fn count_refusals(&self, answer: &McpResponse, client_ip: &str, caller: &Caller) {
        for reason in answer.refused() {
            self.refusals.count(reason, client_ip, caller.subject());
        }
    }

    /// Records what was only counted.
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
