//! The rounds of a run. Each round ends with the output of the operation, or with a request for the client's input.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;
use wardgate_domain::Reason;
use wardgate_gateway_record::{run_stage, stage};
use wardgate_mcp_server::{InputRecipient, InputRequests};
use wardgate_rpc::client::{InputRequired, Resumption};

use super::call_record::RunClient;
use super::description::{CatalogueEntry, Description, EntryUse, RequestBinding};
use super::operation::{Operation, Output, PermittedRun, RoundOutcome};
use super::rejection::{Rejection, RunError};
use super::request_state::{RequestState, ResumePoint};
use super::suspended_call::SuspendedCall;
use super::{DescriptionOf, GovernedCall, RunEnd, RunEndOf};
use crate::authority::Grant;
use crate::client_interaction::PendingInput;

/// Maximum number of times that one call may ask its client for input.
const MAX_ROUNDS: usize = 8;

/// Pause before a call is repeated because the server asked for a repetition without input.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

impl GovernedCall {
    /// Runs rounds until the operation is complete.
    pub(super) async fn run_rounds<O: Operation>(
        &mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
        entry_use: &EntryUse<O::Entry>,
        mut grant: Arc<Grant>,
    ) -> RunEndOf<O> {
        let ResumePoint {
            mut resumption,
            awaited,
            rounds,
            ..
        } = std::mem::take(&mut self.resume_point);
        if let Some(awaited) = awaited {
            let answers = self.client.await_input(&awaited.pending);
            let responses = self.context.wait_without_slot(answers).await;
            resumption = Some(Resumption {
                state: awaited.state,
                responses: responses?,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorizer().authorize(entry_use).await?;
        }
        // The last round may only complete: a further request for input is an error.
        for round in rounds + 1..=MAX_ROUNDS + 1 {
            let input_required = match self
                .run_with_permit(operation, description, entry_use, &mut grant, resumption)
                .await?
            {
                RoundOutcome::Output(output) => return Ok(RunEnd::Output(output)),
                RoundOutcome::InputRequired(_) if round > MAX_ROUNDS => break,
                RoundOutcome::InputRequired(input_required) => input_required,
            };
            let version = self.context.version;
            let capabilities = self.client.capabilities();
            let recipient = InputRecipient {
                version,
                capabilities: capabilities.as_deref(),
                // A view of a single server needs no label.
                label: Some(entry_use.entry.label()).filter(|_| !self.context.view.has_own_names()),
                ambient: &self.pipeline.services.ambient,
            };
            let input_requests = InputRequests::parse(&input_required.requests, recipient)?;
            if version.is_modern() {
                return self.require_input(
                    description.binding,
                    input_requests,
                    input_required,
                    round,
                );
            }
            let responses = if input_requests.is_empty() {
                self.context.wait_without_slot(sleep(RETRY_PAUSE)).await;
                Bytes::from_static(b"{}")
            } else {
                let suspended = |pending: &PendingInput| {
                    let operation = description.resumable?.seal()?;
                    let approval = grant.approval.as_ref();
                    let suspended = SuspendedCall::new(
                        operation,
                        pending,
                        &input_required.state,
                        round,
                        approval,
                    );
                    serde_json::to_vec(&suspended).ok()
                };
                let mut client = RunClient {
                    interaction: &mut self.client,
                    record: &mut self.record,
                    audit_log: self.pipeline.recorder.audit_log(),
                    resumable: description.resumable,
                    exiting: &self.pipeline.exiting,
                };
                let input = client.request_input(input_requests.as_json(), suspended);
                self.context.wait_without_slot(input).await?
            };
            resumption = Some(Resumption {
                state: input_required.state,
                responses,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorizer().authorize(entry_use).await?;
        }
        Err(Rejection::Failed {
            kind: Reason::TOO_MANY_ROUNDS,
            message: "Input was requested too many times.",
        })
    }

    /// Runs one round. If the tool-runner refuses the permit, the call is authorized again and runs once more.
    async fn run_with_permit<O: Operation>(
        &mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
        entry_use: &EntryUse<O::Entry>,
        grant: &mut Arc<Grant>,
        resumption: Option<Resumption>,
    ) -> Result<RoundOutcome<O::Output>, Rejection> {
        let started = Instant::now();
        let resource = &entry_use.entry;
        let run = self.permitted_run(description, resource, grant, resumption.clone());
        let mut result = Box::pin(operation.run(run)).await;
        if let Err(RunError::PermitRefused) = result {
            // The definition or the keys changed since the permit was cached.
            let authority = self.pipeline.services.discovery.authority();
            authority.forget(&self.context.caller, resource.facts());
            *grant = self.authorizer().authorize(entry_use).await?;
            let run = self.permitted_run(description, resource, grant, resumption);
            result = Box::pin(operation.run(run)).await;
        }
        stage("run", started.elapsed());
        let outcome = result?;
        let facts = match &outcome {
            RoundOutcome::Output(output) => output.facts(),
            RoundOutcome::InputRequired(input_required) => &input_required.facts,
        };
        for (name, spent) in &facts.stages {
            run_stage(name, *spent);
        }
        Ok(outcome)
    }

    fn permitted_run<'a, R>(
        &'a mut self,
        description: &Description<'a, R>,
        resource: &'a R,
        grant: &'a Grant,
        resumption: Option<Resumption>,
    ) -> PermittedRun<'a, R> {
        PermittedRun {
            services: &self.pipeline.services,
            context: &self.context,
            call_id: self.record.facts.call_id,
            entry: resource,
            grant,
            resumption,
            client: RunClient {
                interaction: &mut self.client,
                record: &mut self.record,
                audit_log: self.pipeline.recorder.audit_log(),
                resumable: description.resumable,
                exiting: &self.pipeline.exiting,
            },
        }
    }

    /// Asks a modern client to repeat the request with its input.
    fn require_input<T>(
        &self,
        binding: Option<RequestBinding<'_>>,
        input_requests: InputRequests,
        input_required: Box<InputRequired>,
        rounds: usize,
    ) -> Result<RunEnd<T>, Rejection> {
        let approval = self
            .record
            .grant
            .as_ref()
            .and_then(|it| it.approval.as_ref());
        let pending = RequestState::new(
            &self.pipeline.services.ambient,
            input_requests.keys(),
            &input_required.state,
            rounds,
            approval,
        );
        let state = binding.and_then(|binding| {
            pending.seal(&self.pipeline.services.sealer, &self.context, binding)
        });
        Ok(RunEnd::InputRequired {
            input_requests,
            state: state.ok_or(Rejection::BAD_INPUT_REQUESTS)?,
            facts: Some(input_required.facts),
        })
    }
}
