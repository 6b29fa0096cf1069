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
//! Read [`GovernedCall::run_pipeline`] first. An [`Operation`] says what runs and how its output is written.

mod operation;
mod refusal_report;
mod rejection;
mod replay_grant;
mod request_state;
mod suspended_call;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;
use tracing::{Instrument, Span};
use wardgate_domain::{CallFacts, CallId, Digest, Event, NOT_A_NAME, Outcome, Status, ToolName};
use wardgate_mcp_server::{Answer, RecordStatus, Request, RpcError, call_meta};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::{RecordingSlot, Slot};
use wardgate_rpc::client::{CallError, InputRequired, ResultFacts, Resumption};
use wardgate_telemetry::{names, trace_context};

use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue;
use crate::client_interaction::{
    self, ClientChannel, ClientInteraction, InputError, InputRecipient, InputRequests, PendingInput,
};
use crate::measures;
use crate::request_context::RequestContext;
use crate::stages::stage;

use self::refusal_report::RefusalReportId;
use self::request_state::{RequestState, ResumePoint};

pub(crate) use self::operation::{
    Operation, Output, RequestBinding, Resource, RunOutcome, SealedOperation,
};
pub(crate) use self::rejection::{Rejection, RunError};
pub(crate) use self::replay_grant::{DecisionUnavailable, ReplayGrant};
pub(crate) use self::suspended_call::{ResumingClient, SuspendedCall, resume};

/// The number of times that one call may ask its client for input.
const MAX_ROUNDS: usize = 8;

/// The pause before a call that needs no input, but a repetition, is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The tool name that the policy is asked about where the requested name is not valid as one.
const UNNAMED_TOOL: &str = "unknown";

/// The end of a call that was not rejected.
enum Disposition<T> {
    /// The operation is complete.
    Output(T),
    /// A modern client is asked for input, and repeats the request with `state`.
    InputRequired {
        input_requests: InputRequests,
        state: String,
        facts: ResultFacts,
    },
}

/// One governed call, from its arrival to its answer.
pub(crate) struct GovernedCall<O> {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) context: RequestContext,
    pub(crate) operation: O,
    pub(crate) client: ClientInteraction,
    /// The facts for the record.
    pub(crate) facts: CallFacts,
    /// The grant that it runs under, once it is authorized.
    grant: Option<Arc<Grant>>,
    /// Whether the intent is on record.
    intent_recorded: bool,
    resume_point: ResumePoint,
}

/// Runs `operation` through the pipeline. Returns the first part of the response, which is all of it if nothing is sent
/// before the answer.
pub(crate) async fn run<O: Operation>(
    gateway: &Arc<Gateway>,
    request: &Request<'_>,
    context: RequestContext,
    channel: ClientChannel,
    operation: O,
) -> Result<Answer, RpcError> {
    let resume_point = match operation
        .request_binding()
        .filter(|_| context.version.is_modern())
    {
        Some(binding) => ResumePoint::from_request(gateway, &context, binding, request)?,
        None => ResumePoint::default(),
    };
    Ok(spawn_call(gateway, context, channel, operation, resume_point).await)
}

/// Runs an operation that no request of its client asks for, such as looking after a followed task.
pub(crate) async fn run_unrequested<O: Operation>(
    gateway: &Arc<Gateway>,
    context: RequestContext,
    channel: ClientChannel,
    operation: O,
) -> Answer {
    spawn_call(gateway, context, channel, operation, ResumePoint::default()).await
}

/// Runs the call in a task of its own, so that it is recorded even if its client hangs up.
async fn spawn_call<O: Operation>(
    gateway: &Arc<Gateway>,
    context: RequestContext,
    channel: ClientChannel,
    operation: O,
    resume_point: ResumePoint,
) -> Answer {
    let trace = channel.trace.clone();
    let id = context.id.clone();
    let (client, answer) = client_interaction::open(channel);
    let (call, span) = GovernedCall::new(gateway, context, operation, client, resume_point);
    trace_context::adopt(&span, &trace);
    let call_id = call.facts.call_id;
    gateway
        .calls
        .spawn(call.run_to_completion().instrument(span));
    answer.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
        Answer::error(Some(&id), &error)
    })
}

/// The rejection of a call whose client gave no input.
fn input_rejection(error: InputError) -> Rejection {
    match error {
        InputError::Cancelled => Rejection::Cancelled,
        error => Rejection::InputError(error),
    }
}

impl<O: Operation> GovernedCall<O> {
    fn new(
        gateway: &Arc<Gateway>,
        context: RequestContext,
        operation: O,
        client: ClientInteraction,
        resume_point: ResumePoint,
    ) -> (Self, Span) {
        let (facts, span) = operation.describe_arrival(CallId::new(gateway.ambient()), &context);
        let call = Self {
            gateway: Arc::clone(gateway),
            context,
            operation,
            client,
            facts,
            grant: None,
            intent_recorded: false,
            resume_point,
        };
        (call, span)
    }

    /// Runs the pipeline and sends the answer.
    async fn run_to_completion(mut self) {
        let answer = self.run_pipeline().await;
        self.release_slot();
        self.client.send_answer(answer).await;
    }

    /// The pipeline, top to bottom.
    async fn run_pipeline(&mut self) -> Answer {
        let started = Instant::now();
        // A call that cannot be recorded is not begun.
        if !self.gateway.audit_log().is_ready() {
            return self.not_recorded(&Rejection::NotRecorded, false);
        }
        let report = (self.operation.refusal_key())
            .map(|key| RefusalReportId::new(&self.context.caller, key));
        if let Some(report) = report
            && report.is_recorded(self.gateway.store()).await
        {
            let error = RpcError::refused_by_agent().with_reason();
            return Answer::error(Some(&self.context.id), &error);
        }
        let decided = match self.find_and_authorize().await {
            Ok(decided) => self
                .resume_point
                .use_up(&self.gateway)
                .await
                .map(|()| decided),
            Err(rejection) => Err(rejection),
        };
        let may_write =
            matches!(&decided, Ok((resource, _)) if self.operation.may_write(resource.facts()));
        // An operation that may write has its intent on record before it runs.
        let intent_recorded = if may_write {
            self.record_intent().await
        } else {
            Ok(())
        };
        let disposition = match (intent_recorded, decided) {
            (Ok(()), Ok((resource, grant))) => self.run_rounds(&resource, grant).await,
            (Ok(()), Err(rejection)) | (Err(rejection), _) => Err(rejection),
        };
        // An audit service that did not take the intent would not take the outcome either.
        if let Err(rejection @ Rejection::NotRecorded) = &disposition {
            return self.not_recorded(rejection, false);
        }
        let outcome = self.build_outcome(&disposition, started.elapsed());
        let is_hidden = matches!(&disposition, Err(rejection) if rejection.is_hidden());
        self.operation.report_outcome(&outcome, is_hidden);
        // While the outcome is recorded, other calls can run.
        let _recording_slot = self.begin_recording(&disposition);
        let recorded = self
            .gateway
            .record_outcome(outcome, self.intent_recorded)
            .await;
        if let (Some(report), Ok(RecordStatus::ByItself(_))) = (report, &recorded) {
            // The store logs a failure; the report is then recorded again if it is sent again.
            let _ = report.mark_recorded(self.gateway.store()).await;
        }
        match recorded {
            Ok(recorded) => self.release(recorded, disposition),
            Err(_) if may_write => self.not_recorded(&Rejection::OutcomeUnknown, false),
            Err(_) => self.not_recorded(&Rejection::NotRecorded, is_hidden),
        }
    }

    /// Gives the place to the next call, and reports to the limiter how long this one took.
    fn begin_recording(
        &mut self,
        disposition: &Result<Disposition<O::Output>, Rejection>,
    ) -> Option<RecordingSlot> {
        let tool = self.facts.tool.as_ref().filter(|_| disposition.is_ok())?;
        Some(self.context.slot.take()?.done(tool.as_str()))
    }

    /// Gives the place back, whatever the outcome.
    fn release_slot(&mut self) {
        self.context.slot = None;
    }

    /// Waits for `input` without holding a place.
    async fn wait_without_slot<T>(slot: &mut Option<Slot>, input: impl Future<Output = T>) -> T {
        if let Some(slot) = slot {
            slot.pause();
        }
        let received = input.await;
        if let Some(slot) = slot {
            slot.resume();
        }
        received
    }

    /// Finds the resource in the catalogue, and checks policy, client capabilities and token scopes, in this order.
    async fn find_and_authorize(&mut self) -> Result<(O::Resource, Arc<Grant>), Rejection> {
        if let Some(refusal) = self.operation.agent_refusal() {
            let catalogue = self.gateway.catalogue().current();
            let find = |catalogue: &_| self.operation.find_resource(catalogue, &self.context.view);
            if catalogue.as_deref().and_then(find).is_none() {
                // A model may write anything as a name, even personal data.
                NOT_A_NAME.clone_into(&mut self.facts.requested_tool);
            }
            return Err(Rejection::RefusedByAgent(refusal));
        }
        let (kind, message) = catalogue::NOT_KNOWN;
        let catalogue = self.gateway.catalogue().current();
        let catalogue = catalogue.ok_or(Rejection::Failed { kind, message })?;
        let Some(resource) = self.operation.find_resource(&catalogue, &self.context.view) else {
            self.deny_unknown().await?;
            return Err(Rejection::Unknown);
        };
        let facts = resource.facts();
        self.facts.tool = Some(facts.name.clone());
        self.facts.definition_digest = Some(facts.definition_digest);
        Span::current().record(names::TOOL, facts.name.as_str());
        if !resource.is_enabled_for(&self.context.caller) {
            self.deny_unknown().await?;
            return Err(Rejection::Disabled);
        }
        let grant = self.authorize(&resource).await?;
        self.operation.check_request(&resource, &self.client)?;
        let access = &self.context.access;
        let applied = access.apply(&self.gateway, self.operation.method(), resource.facts());
        applied.map_err(Rejection::Scope)?;
        Ok((resource, grant))
    }

    /// Asks the policy, and notes its decision for the record.
    async fn authorize(&mut self, resource: &O::Resource) -> Result<Arc<Grant>, Rejection> {
        let started = Instant::now();
        let RequestContext {
            caller, client_ip, ..
        } = &self.context;
        let arguments = self.operation.policy_arguments(resource);
        let authority = self.gateway.authority();
        let decision = authority.authorize(caller, resource.facts(), &arguments, client_ip);
        let authorization = decision.await;
        stage("authorize", started.elapsed());
        match authorization {
            Ok(Authorization::Allowed(grant)) => {
                self.facts.decided(&grant.decision);
                self.facts.permit_id = Some(grant.permit_id);
                self.grant = Some(Arc::clone(&grant));
                Ok(grant)
            }
            Ok(Authorization::Denied {
                decision,
                reason,
                visible,
            }) => {
                self.facts.decided(&decision);
                Err(Rejection::Denied {
                    reason,
                    decision: decision.id,
                    visible,
                })
            }
            Err(error) => Err(self.authorization_rejection(&error)),
        }
    }

    /// Takes as long as the denial of a hidden resource, so that response times do not tell a hidden resource from an
    /// unknown one.
    async fn deny_unknown(&self) -> Result<(), Rejection> {
        let RequestContext {
            caller, client_ip, ..
        } = &self.context;
        let name = self.facts.requested_tool.as_str();
        let name = if name.parse::<ToolName>().is_ok() {
            name
        } else {
            UNNAMED_TOOL
        };
        let authority = self.gateway.authority();
        let denied = authority.deny_unknown(caller, name, client_ip).await;
        denied.map_err(|error| self.authorization_rejection(&error))
    }

    /// The rejection where the policy service gave no decision.
    fn authorization_rejection(&self, error: &CallError) -> Rejection {
        let answer = self.gateway.undecided(error);
        match error.reason() {
            ErrorReason::TokenRefused => Rejection::Scope(answer),
            _ => Rejection::NotAttempted(answer),
        }
    }

    /// Sends a notification to the client before the outcome is on record.
    pub(crate) async fn send_notification(&mut self, notification: &str) -> Result<(), Rejection> {
        self.before_first_message().await?;
        self.client.send_message(notification).await;
        Ok(())
    }

    /// Records the intent and keeps the grant with the stream, which the first message needs.
    async fn before_first_message(&mut self) -> Result<(), Rejection> {
        self.record_intent().await?;
        let (operation, grant) = (&self.operation, &self.grant);
        self.client.set_replay_grant(|| {
            let replay_grant = ReplayGrant::new(operation.to_sealed()?, grant.as_deref()?)?;
            serde_json::to_vec(&replay_grant).ok()
        });
        Ok(())
    }

    /// Appends the intent record, once: before an operation runs that may write, and before anything is sent that the
    /// outcome record would come too late for.
    async fn record_intent(&mut self) -> Result<(), Rejection> {
        if !self.intent_recorded {
            let intent = Event::Intent(self.facts.clone());
            let appended = self.gateway.audit_log().append(intent).await;
            appended.map_err(|_| Rejection::NotRecorded)?;
            self.intent_recorded = true;
        }
        Ok(())
    }

    /// Runs round after round; each ends with the output or a request for input.
    async fn run_rounds(
        &mut self,
        resource: &O::Resource,
        mut grant: Arc<Grant>,
    ) -> Result<Disposition<O::Output>, Rejection> {
        let ResumePoint {
            mut resumption,
            awaited,
            rounds,
            ..
        } = std::mem::take(&mut self.resume_point);
        if let Some(awaited) = awaited {
            let answers = self.client.await_input(&awaited.pending);
            let responses = Self::wait_without_slot(&mut self.context.slot, answers).await;
            resumption = Some(Resumption {
                state: awaited.state,
                responses: responses.map_err(input_rejection)?,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorize(resource).await?;
        }
        for round in rounds + 1..=MAX_ROUNDS + 1 {
            let input_required = match self
                .run_with_permit(resource, &mut grant, resumption)
                .await?
            {
                RunOutcome::Output(output) => return Ok(Disposition::Output(output)),
                RunOutcome::InputRequired(_) if round > MAX_ROUNDS => break,
                RunOutcome::InputRequired(input_required) => input_required,
            };
            let version = self.context.version;
            let capabilities = self.client.capabilities();
            let recipient = InputRecipient {
                version,
                capabilities: capabilities.as_deref(),
                // A view of a single server needs no label.
                label: Some(resource.label()).filter(|_| !self.context.view.has_own_names()),
                ambient: self.gateway.ambient(),
            };
            let input_requests = InputRequests::parse(&input_required.requests, recipient)?;
            if version.is_modern() {
                return self.require_input(input_requests, input_required, round);
            }
            let responses = if input_requests.is_empty() {
                Self::wait_without_slot(&mut self.context.slot, sleep(RETRY_PAUSE)).await;
                Bytes::from_static(b"{}")
            } else {
                // The request for input leaves before the outcome is on record.
                self.before_first_message().await?;
                let operation = self.operation.to_sealed();
                let suspended = |pending: &PendingInput| {
                    let suspended =
                        SuspendedCall::new(operation?, pending, &input_required.state, round);
                    serde_json::to_vec(&suspended).ok()
                };
                let input = self
                    .client
                    .request_input(input_requests.as_json(), suspended);
                let responses = Self::wait_without_slot(&mut self.context.slot, input).await;
                responses.map_err(input_rejection)?
            };
            resumption = Some(Resumption {
                state: input_required.state,
                responses,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorize(resource).await?;
        }
        Err(Rejection::Failed {
            kind: "too_many_rounds",
            message: "It asks for input again and again.",
        })
    }

    /// Runs one round. If the tool-runner refuses the permit, authorizes again and runs once more.
    async fn run_with_permit(
        &mut self,
        resource: &O::Resource,
        grant: &mut Arc<Grant>,
        resumption: Option<Resumption>,
    ) -> Result<RunOutcome<O::Output>, Rejection> {
        let started = Instant::now();
        let mut result = O::run(self, resource, grant, resumption.clone()).await;
        if let Err(RunError::PermitRefused) = result {
            // The definition or the keys changed since the permit was cached.
            let authority = self.gateway.authority();
            authority.forget(&self.context.caller, resource.facts());
            *grant = self.authorize(resource).await?;
            result = O::run(self, resource, grant, resumption).await;
        }
        stage("run", started.elapsed());
        let outcome = result?;
        let facts = match &outcome {
            RunOutcome::Output(output) => output.facts(),
            RunOutcome::InputRequired(input_required) => &input_required.facts,
        };
        for (name, spent) in &facts.stages {
            stage(&format!("run.{name}"), *spent);
        }
        Ok(outcome)
    }

    /// Asks a modern client to repeat the request with its input.
    fn require_input(
        &self,
        input_requests: InputRequests,
        input_required: Box<InputRequired>,
        rounds: usize,
    ) -> Result<Disposition<O::Output>, Rejection> {
        let pending = RequestState::new(
            &self.gateway,
            input_requests.keys(),
            &input_required.state,
            rounds,
        );
        let binding = self.operation.request_binding();
        let state = binding.and_then(|binding| pending.seal(&self.gateway, &self.context, binding));
        Ok(Disposition::InputRequired {
            input_requests,
            state: state.ok_or(Rejection::BAD_INPUT_REQUESTS)?,
            facts: input_required.facts,
        })
    }

    /// The outcome for the record.
    fn build_outcome(
        &self,
        disposition: &Result<Disposition<O::Output>, Rejection>,
        duration: Duration,
    ) -> Outcome {
        let (status, reason, facts, result_digest) = match disposition {
            Ok(Disposition::Output(output)) => {
                let facts = output.facts();
                let (status, reason) = (facts.status, facts.error_kind.as_str());
                (status, reason, Some(facts), output.digest())
            }
            Ok(Disposition::InputRequired {
                input_requests,
                facts,
                ..
            }) => {
                let digest = Digest::of(input_requests.as_json().as_bytes());
                (Status::Ok, "input_required", Some(facts), Some(digest))
            }
            Err(Rejection::Unknown) => (Status::UnknownTool, O::UNKNOWN, None, None),
            Err(rejection) => {
                let (status, reason) = rejection.record_status();
                (status, reason, None, None)
            }
        };
        Outcome {
            call: self.facts.clone(),
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

    /// The answer of a call whose outcome is on record.
    fn release(
        &self,
        recorded: RecordStatus,
        disposition: Result<Disposition<O::Output>, Rejection>,
    ) -> Answer {
        let (id, call_id) = (&self.context.id, self.facts.call_id);
        let rejection = match disposition {
            Ok(Disposition::Output(output)) => return O::release(self, recorded, &output),
            Ok(Disposition::InputRequired {
                input_requests,
                state,
                ..
            }) => {
                let meta = call_meta(call_id, recorded);
                let asked = (!input_requests.is_empty()).then(|| input_requests.as_json());
                return Answer::input_required(id, asked, &state, &meta);
            }
            Err(rejection) => rejection,
        };
        O::write_rejection(self, recorded, &rejection).unwrap_or_else(|| {
            let error = rejection.error(|| self.operation.not_found_error(self.context.version));
            Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
        })
    }

    /// The answer of a call that could not be recorded.
    fn not_recorded(&self, rejection: &Rejection, is_hidden: bool) -> Answer {
        measures::not_recorded(&self.facts, is_hidden);
        let error = rejection.error(|| self.operation.not_found_error(self.context.version));
        let error = error
            .because("not_durable")
            .of_call(self.facts.call_id, None);
        Answer::error(Some(&self.context.id), &error)
    }
}
