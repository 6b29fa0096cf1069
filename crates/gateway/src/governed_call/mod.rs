//! The pipeline of every governed call: find → authorize → intent record → run → outcome record → release.
//!
//! ```text
//!   authorize ──▶ run ──▶ output ───────────────────────────────────────┐
//!     ▲            ▲  └─▶ input required                                ├─▶ outcome record ─▶ answer
//!     │            │       ├ older client: asked on the open stream     │
//!     │            └───────┘                                            │
//!     └── modern client: comes back with `requestState` ◀─ asks for it ─┘
//! ```
//!
//! [`GovernedCall::run_pipeline`] is the entry point. An [`Operation`] defines what runs and how its output is written.

mod approval;
mod authorization;
mod call_record;
mod description;
mod operation;
mod pipeline;
mod rejection;
mod replay_grant;
mod request_state;
mod rounds;
mod suspended_call;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wardgate_domain::{ArgumentNames, Digest, Outcome, Reason, Status};
use wardgate_gateway_record::describe_call;
use wardgate_gateway_store::RefusalReportId;
use wardgate_mcp_server::{InputRequests, McpResponse, RecordStatus, RpcError, call_meta};
use wardgate_resilience::concurrency::RecordingSlot;
use wardgate_resilience::quota::QuotaUse;
use wardgate_rpc::client::ResultFacts;

use crate::authority::Grant;
use crate::client_interaction::ClientInteraction;
use crate::measures;
use crate::request_context::RequestContext;

use self::approval::CallApproval;
use self::authorization::CallAuthorizer;
use self::call_record::CallRecord;
use self::request_state::ResumePoint;

pub(crate) use self::description::{
    CALL_TOOL, CatalogueEntry, Description, EntryUse, RequestBinding, ResumableOperation,
    SealedOperation,
};
pub(crate) use self::operation::{
    AnswerContent, Operation, OperationServices, Output, PermittedRun, Reply, RoundOutcome,
};
pub(crate) use self::pipeline::CallPipeline;
pub(crate) use self::rejection::{Rejection, RunError};
pub(crate) use self::replay_grant::{DecisionUnavailable, ReplayGrant, ResumingClient};
pub(crate) use self::suspended_call::SuspendedCall;

/// The end of a call that was not rejected.
enum RunEnd<T> {
    /// The operation is complete.
    Output(T),
    /// A modern client is asked for input, with which it repeats the request and `state`.
    InputRequired {
        input_requests: InputRequests,
        state: String,
        /// The facts of the run, or `None` if nothing ran because the caller is asked to approve the call.
        facts: Option<ResultFacts>,
    },
}

/// One governed call, from its arrival to its answer.
struct GovernedCall {
    pipeline: Arc<CallPipeline>,
    context: RequestContext,
    client: ClientInteraction,
    record: CallRecord,
    /// Whether the catalogue was known when the request was described.
    has_catalogue: bool,
    resume_point: ResumePoint,
    approval: CallApproval,
}

/// A call that may run, or whose caller is asked to approve it first.
enum PreparedCall<'d, E> {
    Ready(&'d EntryUse<E>, Arc<Grant>),
    InputRequired(InputRequests, String),
}

/// The description of a request by the operation `O`.
type DescriptionOf<'a, O> = Description<'a, <O as Operation>::Entry>;

/// The end of a call's run, or the reason for which the call has none, before the outcome is recorded.
type RunEndOf<O> = Result<RunEnd<<O as Operation>::Output>, Rejection>;

impl GovernedCall {
    /// Runs the pipeline and sends the answer.
    async fn run_to_completion<O: Operation>(
        mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
    ) {
        let answer = self.run_pipeline(operation, description).await;
        self.release_slot();
        self.client.send_answer(answer).await;
    }

    /// Runs the steps of the pipeline in their order, and returns the answer.
    async fn run_pipeline<O: Operation>(
        &mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
    ) -> McpResponse {
        let started = Instant::now();
        // A call that cannot be recorded must not begin.
        if !self.pipeline.recorder.audit_log().is_ready() {
            return self.render_unrecorded(operation, &Rejection::NotRecorded, false);
        }
        let report =
            (description.refusal_key).map(|key| RefusalReportId::new(&self.context.caller, key));
        if let Some(report) = report
            && report.is_recorded(&self.pipeline.store).await
        {
            let error = RpcError::refused_by_agent().with_reason();
            return McpResponse::error(Some(&self.context.id), &error);
        }
        let prepared = self.prepare_run(description).await;
        let may_write =
            matches!(&prepared, Ok(PreparedCall::Ready(entry_use, _)) if entry_use.may_write);
        let run_end = match prepared {
            Ok(PreparedCall::Ready(entry_use, grant)) => {
                self.run_rounds(operation, description, entry_use, grant)
                    .await
            }
            Ok(PreparedCall::InputRequired(input_requests, state)) => Ok(RunEnd::InputRequired {
                input_requests,
                state,
                facts: None,
            }),
            Err(rejection) => Err(rejection),
        };
        // An audit service that did not take the intent would not take the outcome either.
        if let Err(rejection @ Rejection::NotRecorded) = &run_end {
            return self.render_unrecorded(operation, rejection, false);
        }
        let outcome = self.build_outcome::<O>(description, &run_end, started.elapsed());
        let is_hidden = matches!(&run_end, Err(rejection) if rejection.is_hidden());
        report_outcome(description.method, &outcome, is_hidden);
        // Other calls can run while the outcome is recorded.
        let _recording_slot = self.begin_recording(run_end.is_ok());
        let recorded = self
            .pipeline
            .recorder
            .record_outcome(outcome, self.record.has_intent)
            .await;
        if let (Some(report), Ok(RecordStatus::ByItself(_))) = (report, &recorded) {
            // The store logs a failure. In that case the refusal is recorded again if it is sent again.
            let _ = report.mark_recorded(&self.pipeline.store).await;
        }
        match recorded {
            Ok(recorded) => self.render(operation, recorded, &run_end),
            Err(_) if may_write => {
                self.render_unrecorded(operation, &Rejection::OutcomeUnknown, false)
            }
            Err(_) => self.render_unrecorded(operation, &Rejection::NotRecorded, is_hidden),
        }
    }

    /// Authorizes the call, charges its quotas, uses up its `requestState` and its approval, and records the intent of a call
    /// that may write.
    async fn prepare_run<'d, E: CatalogueEntry>(
        &mut self,
        description: &'d Description<'_, E>,
    ) -> Result<PreparedCall<'d, E>, Rejection> {
        let (entry_use, authorized) = self.authorizer().authorize_entry(description).await?;
        let prepared = match authorized {
            Ok(grant) => {
                self.end_if_refused().await?;
                PreparedCall::Ready(entry_use, grant)
            }
            Err(need) => Box::pin(self.obtain_approval(description, entry_use, *need)).await?,
        };
        let PreparedCall::Ready(entry_use, grant) = prepared else {
            return Ok(prepared);
        };
        if self.resume_point.is_beginning() {
            let request = QuotaUse {
                caller: &self.context.caller,
                method: description.method,
                tool: entry_use.entry.facts().name.as_str(),
            };
            let admission = &self.pipeline.services.admission;
            let charged = admission.charge(request, self.context.limit_report.as_deref());
            charged.await.map_err(Rejection::NotAttempted)?;
        }
        self.use_up_state().await?;
        self.approval.use_up(&self.pipeline.approvals).await?;
        if entry_use.may_write {
            let audit_log = self.pipeline.recorder.audit_log();
            self.record.record_intent(audit_log).await?;
        }
        Ok(PreparedCall::Ready(entry_use, grant))
    }

    /// Uses up the `requestState` that the call continues from.
    async fn use_up_state(&mut self) -> Result<(), Rejection> {
        let (ambient, store) = (&self.pipeline.services.ambient, &self.pipeline.store);
        self.resume_point.use_up(ambient, store).await
    }

    /// Returns the authorizer of the call, for its beginning and for each time that it continues.
    fn authorizer(&mut self) -> CallAuthorizer<'_> {
        CallAuthorizer {
            services: &self.pipeline.services,
            audit_log: self.pipeline.recorder.audit_log(),
            context: &self.context,
            client: &self.client,
            record: &mut self.record,
            has_catalogue: self.has_catalogue,
            approval: self.approval.given.as_ref(),
        }
    }

    /// Returns the slot to the limiter for the next call, and reports how long this call took.
    fn begin_recording(&mut self, has_run: bool) -> Option<RecordingSlot> {
        let tool = self.record.facts.tool.as_ref().filter(|_| has_run)?;
        Some(self.context.slot.take()?.end_call(tool.as_str()))
    }

    /// Releases the slot, whatever the outcome.
    fn release_slot(&mut self) {
        self.context.slot = None;
    }

    /// Builds the outcome for the record.
    fn build_outcome<O: Operation>(
        &self,
        description: &DescriptionOf<'_, O>,
        run_end: &RunEndOf<O>,
        duration: Duration,
    ) -> Outcome {
        let (status, reason, facts, result_digest) = match run_end {
            Ok(RunEnd::Output(output)) => {
                let facts = output.facts();
                let (status, reason) = (facts.status, facts.error_kind.as_str());
                (status, reason, Some(facts), output.digest())
            }
            Ok(RunEnd::InputRequired {
                input_requests,
                facts,
                ..
            }) => {
                let digest = Digest::compute(input_requests.as_json().as_bytes());
                (
                    Status::Ok,
                    Reason::INPUT_REQUIRED.as_str(),
                    facts.as_ref(),
                    Some(digest),
                )
            }
            Err(Rejection::Unknown) => (
                Status::UnknownTool,
                description.unknown_reason.as_str(),
                None,
                None,
            ),
            Err(rejection) => {
                let (status, reason) = rejection.record_status();
                (status, reason.as_str(), None, None)
            }
        };
        let has_fitted = facts.is_some() && status != Status::InvalidArguments;
        let entry = description
            .entry_use
            .as_ref()
            .map(|entry_use| &entry_use.entry);
        let names = entry.and_then(CatalogueEntry::argument_names);
        let arguments = names
            .unwrap_or(&ArgumentNames::default())
            .outline(description.arguments, has_fitted);
        let details = describe_call(&self.context.caller, arguments, facts);
        Outcome {
            details: Some(Box::new(details)),
            call: self.record.facts.clone(),
            status,
            reason: reason.to_owned(),
            rows: facts.map_or(0, |facts| facts.rows),
            rows_withheld: facts.map_or(0, |facts| facts.rows_withheld),
            fields_redacted: facts.map_or(0, |facts| facts.fields_redacted),
            phi: facts.is_some_and(|facts| facts.phi),
            result_digest,
            duration,
        }
    }

    /// Renders the answer of a call whose outcome is recorded.
    fn render<O: Operation>(
        &self,
        operation: &O,
        recorded: RecordStatus,
        run_end: &RunEndOf<O>,
    ) -> McpResponse {
        match run_end {
            Ok(RunEnd::Output(output)) => {
                self.render_ending(operation, AnswerContent::Completed(output, recorded))
            }
            Ok(RunEnd::InputRequired {
                input_requests,
                state,
                ..
            }) => {
                let meta = call_meta(self.record.facts.call_id, recorded);
                let requests = (!input_requests.is_empty()).then(|| input_requests.as_json());
                McpResponse::input_required(&self.context.id, requests, state, &meta)
            }
            Err(rejection) => self.render_ending(
                operation,
                AnswerContent::Rejected(rejection, Some(recorded)),
            ),
        }
    }

    /// Renders the answer of a call that could not be recorded.
    fn render_unrecorded<O: Operation>(
        &self,
        operation: &O,
        rejection: &Rejection,
        is_hidden: bool,
    ) -> McpResponse {
        measures::not_recorded(&self.record.facts, is_hidden);
        self.render_ending(operation, AnswerContent::Rejected(rejection, None))
    }

    fn render_ending<O: Operation>(
        &self,
        operation: &O,
        ending: AnswerContent<'_, O::Output>,
    ) -> McpResponse {
        let capabilities = self.client.capabilities();
        let reply = Reply {
            context: &self.context,
            call_id: self.record.facts.call_id,
            capabilities: capabilities.as_deref(),
        };
        operation.render(&reply, ending)
    }
}

/// Counts and logs the outcome. Metrics do not show the name of an entry that is hidden from its caller.
fn report_outcome(method: &'static str, outcome: &Outcome, is_hidden: bool) {
    measures::record_ended_call(outcome, is_hidden);
    tracing::info!(
        method,
        status = outcome.status.as_str(),
        reason = outcome.reason,
        rows = outcome.rows,
        rows_withheld = outcome.rows_withheld,
        "call ended"
    );
}
