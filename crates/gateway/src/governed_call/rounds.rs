//! The rounds of a run: each ends with the output of the operation, or with a request for input of the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;
use wardgate_domain::Reason;
use wardgate_mcp_server::{InputRecipient, InputRequests};
use wardgate_resilience::concurrency::Slot;
use wardgate_rpc::client::{InputRequired, Resumption};

use super::request_state::{RequestState, ResumePoint};
use super::{
    Description, DescriptionOf, Disposition, DispositionOf, GovernedCall, Operation, Output,
    PermittedRun, Rejection, RequestBinding, Resource, ResourceUse, RunClient, RunError,
    RunOutcome, SuspendedCall,
};
use crate::authority::Grant;
use crate::client_interaction::{InputError, PendingInput};
use crate::stages::stage;

/// The number of times that one call may ask its client for input.
const MAX_ROUNDS: usize = 8;

/// The pause before a call that needs no input, but a repetition, is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

impl GovernedCall {
    /// Runs round after round; each ends with the output or a request for input.
    pub(super) async fn run_rounds<O: Operation>(
        &mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
        resource_use: &ResourceUse<O::Resource>,
        mut grant: Arc<Grant>,
    ) -> DispositionOf<O> {
        let ResumePoint {
            mut resumption,
            awaited,
            rounds,
            ..
        } = std::mem::take(&mut self.resume_point);
        if let Some(awaited) = awaited {
            let answers = self.client.await_input(&awaited.pending);
            let responses = wait_without_slot(&mut self.context.slot, answers).await;
            resumption = Some(Resumption {
                state: awaited.state,
                responses: responses.map_err(input_rejection)?,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorize(resource_use).await?;
        }
        for round in rounds + 1..=MAX_ROUNDS + 1 {
            let input_required = match self
                .run_with_permit(
                    operation,
                    description,
                    (resource_use, &mut grant),
                    resumption,
                )
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
                label: Some(resource_use.resource.label())
                    .filter(|_| !self.context.view.has_own_names()),
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
                wait_without_slot(&mut self.context.slot, sleep(RETRY_PAUSE)).await;
                Bytes::from_static(b"{}")
            } else {
                let suspended = |pending: &PendingInput| {
                    let operation = description.resumable?.seal()?;
                    let suspended =
                        SuspendedCall::new(operation, pending, &input_required.state, round);
                    serde_json::to_vec(&suspended).ok()
                };
                let mut client = RunClient {
                    interaction: &mut self.client,
                    record: &mut self.record,
                    audit_log: self.pipeline.recorder.audit_log(),
                    resumable: description.resumable,
                };
                let input = client.request_input(input_requests.as_json(), suspended);
                let responses = wait_without_slot(&mut self.context.slot, input).await?;
                responses.map_err(input_rejection)?
            };
            resumption = Some(Resumption {
                state: input_required.state,
                responses,
                task_step: None,
            });
            // The decision may be outdated by now.
            grant = self.authorize(resource_use).await?;
        }
        Err(Rejection::Failed {
            kind: Reason::TOO_MANY_ROUNDS,
            message: "It asks for input again and again.",
        })
    }

    /// Runs one round. If the tool-runner refuses the permit, authorizes again and runs once more.
    async fn run_with_permit<O: Operation>(
        &mut self,
        operation: &O,
        description: &DescriptionOf<'_, O>,
        (resource_use, grant): (&ResourceUse<O::Resource>, &mut Arc<Grant>),
        resumption: Option<Resumption>,
    ) -> Result<RunOutcome<O::Output>, Rejection> {
        let started = Instant::now();
        let resource = &resource_use.resource;
        let mut result = operation
            .run(self.permitted_run(description, resource, grant, resumption.clone()))
            .await;
        if let Err(RunError::PermitRefused) = result {
            // The definition or the keys changed since the permit was cached.
            let authority = self.pipeline.services.discovery.authority();
            authority.forget(&self.context.caller, resource.facts());
            *grant = self.authorize(resource_use).await?;
            result = operation
                .run(self.permitted_run(description, resource, grant, resumption))
                .await;
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
            resource,
            grant,
            resumption,
            client: RunClient {
                interaction: &mut self.client,
                record: &mut self.record,
                audit_log: self.pipeline.recorder.audit_log(),
                resumable: description.resumable,
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
    ) -> Result<Disposition<T>, Rejection> {
        let pending = RequestState::new(
            &self.pipeline.services.ambient,
            input_requests.keys(),
            &input_required.state,
            rounds,
        );
        let state = binding.and_then(|binding| {
            pending.seal(&self.pipeline.services.sealer, &self.context, binding)
        });
        Ok(Disposition::InputRequired {
            input_requests,
            state: state.ok_or(Rejection::BAD_INPUT_REQUESTS)?,
            facts: input_required.facts,
        })
    }
}

/// The rejection of a call whose client gave no input.
fn input_rejection(error: InputError) -> Rejection {
    match error {
        InputError::Cancelled => Rejection::Cancelled,
        error => Rejection::InputError(error),
    }
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
