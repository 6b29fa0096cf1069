//! The call pipeline: the services that its calls use, and the calls in progress.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};
use wardgate_approvals::Approvals;
use wardgate_domain::{CallId, Reason};
use wardgate_gateway_record::CallRecorder;
use wardgate_gateway_store::Store;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, RpcError};
use wardgate_resilience::AttachedWork;
use wardgate_telemetry::trace_context;

use super::GovernedCall;
use super::approval::CallApproval;
use super::call_record::CallRecord;
use super::operation::{Operation, OperationServices};
use super::replay_grant::ResumingClient;
use super::request_state::ResumePoint;
use super::suspended_call::SuspendedCall;
use crate::client_interaction::{self, ClientChannel, ClientChannels, ClientInteraction};
use crate::request_context::RequestContext;
use crate::stored_stream::StreamWriter;

/// Runs governed calls.
pub(crate) struct CallPipeline {
    pub(super) services: OperationServices,
    pub(super) recorder: Arc<CallRecorder>,
    /// Remembers what may happen once: the use of a `requestState`, the record of an agent's refusal.
    pub(super) store: Arc<Store>,
    pub(super) approvals: Arc<Approvals>,
    channels: ClientChannels,
    /// The calls in progress, including those whose client no longer waits.
    calls: TaskTracker,
    /// Cancelled when the calls in progress must end, because the process exits.
    pub(super) exiting: CancellationToken,
}

impl CallPipeline {
    pub(crate) fn new(
        services: OperationServices,
        recorder: Arc<CallRecorder>,
        store: Arc<Store>,
        approvals: Arc<Approvals>,
        channels: ClientChannels,
        calls: TaskTracker,
    ) -> Self {
        Self {
            services,
            recorder,
            store,
            approvals,
            channels,
            calls,
            exiting: CancellationToken::new(),
        }
    }

    /// Cancels the calls in progress. Each still records its outcome.
    pub(crate) fn cancel_calls(&self) {
        self.exiting.cancel();
    }

    /// Returns the services that the runs of operations use.
    pub(crate) fn services(&self) -> &OperationServices {
        &self.services
    }

    /// Returns the requests for approvals.
    pub(crate) fn approvals(&self) -> &Arc<Approvals> {
        &self.approvals
    }

    /// Returns the factory of channels to clients.
    pub(crate) fn channels(&self) -> &ClientChannels {
        &self.channels
    }

    /// Runs `operation`. Returns the first part of the response, which is all of it if nothing is sent before the answer.
    pub(crate) async fn run<O: Operation>(
        self: &Arc<Self>,
        request: &JsonRpcRequest<'_>,
        context: RequestContext,
        channel: ClientChannel,
        operation: O,
    ) -> Result<McpResponse, RpcError> {
        // The binding does not depend on the catalogue, so an invalid `requestState` is refused before the call begins.
        let resume_point = match (operation.describe(None, &context.view).binding)
            .filter(|_| context.version.is_modern())
        {
            Some(binding) => {
                ResumePoint::from_request(&self.services.sealer, &context, binding, request)?
            }
            None => ResumePoint::default(),
        };
        Ok(self
            .run_and_answer(context, channel, operation, resume_point)
            .await)
    }

    /// Runs an operation that was not requested by a client, such as the observation of a followed task.
    pub(crate) async fn run_unrequested<O: Operation>(
        self: &Arc<Self>,
        context: RequestContext,
        channel: ClientChannel,
        operation: O,
    ) -> McpResponse {
        self.run_and_answer(context, channel, operation, ResumePoint::default())
            .await
    }

    async fn run_and_answer<O: Operation>(
        self: &Arc<Self>,
        context: RequestContext,
        mut channel: ClientChannel,
        operation: O,
        resume_point: ResumePoint,
    ) -> McpResponse {
        let trace = std::mem::take(&mut channel.trace);
        let id = context.id.clone();
        let (client, mut answer) = client_interaction::open(channel);
        let (call_id, call) = self.begin_call(context, client, trace, operation, resume_point);
        let mut call = AttachedWork::new(call);
        let answered = tokio::select! {
            biased;
            () = &mut call => answer.await,
            // The call continues, and sends its further messages on the stream that it began.
            begun = &mut answer => begun,
        };
        answered.unwrap_or_else(|_| {
            let error = RpcError::internal(Reason::PANIC, "Internal error.").of_call(call_id, None);
            McpResponse::error(Some(&id), &error)
        })
    }

    /// Resumes `suspended`, a call of `operation` that a replica that is gone left in the stream of `writer`. The rest of the call
    /// runs in a separate task. Returns `false` if its state cannot be read.
    pub(crate) fn resume<O: Operation>(
        self: &Arc<Self>,
        client: &ResumingClient,
        writer: StreamWriter,
        request: Box<RawValue>,
        suspended: SuspendedCall,
        operation: O,
    ) -> bool {
        let Some(resume_point) = suspended.into_resume_point() else {
            return false;
        };
        let ResumingClient {
            caller,
            access,
            client_ip,
            view,
        } = client.clone();
        let version = writer.version();
        let channel = self.channels.for_resumed_stream(&caller, writer, &request);
        let context = RequestContext {
            slot: Some(self.services.admission.admit_resumed(&caller)),
            id: request,
            version,
            caller,
            client_ip,
            view,
            access,
            limit_report: None,
        };
        let client = client_interaction::resume(channel);
        // The request with the trace context went to the replica that began the call.
        let trace = HeaderMap::new();
        let (_, call) = self.begin_call(context, client, trace, operation, resume_point);
        tokio::spawn(call);
        true
    }

    /// Creates the call as a boxed future, and its id. `trace` is the trace context of the message itself, as headers.
    fn begin_call<O: Operation>(
        self: &Arc<Self>,
        context: RequestContext,
        client: ClientInteraction,
        trace: HeaderMap,
        operation: O,
        mut resume_point: ResumePoint,
    ) -> (CallId, BoxFuture<'static, ()>) {
        let (call_id, request_span) = (CallId::new(&self.services.ambient), Span::current());
        let pipeline = Arc::clone(self);
        let approval = CallApproval::from_earlier_step(resume_point.approval.take());
        let under_way = self.calls.token();
        let call = async move {
            let _under_way = under_way;
            let catalogue = pipeline.services.discovery.catalogue().current();
            let has_catalogue = catalogue.is_some();
            let description = operation.describe(catalogue.as_deref(), &context.view);
            // A long call must not keep an old catalogue in memory.
            drop(catalogue);
            let span = description.open_span(call_id, &context.caller, &request_span);
            trace_context::adopt(&span, &trace);
            let record = CallRecord {
                facts: description.to_facts(call_id, &context),
                grant: None,
                has_intent: false,
            };
            let call = GovernedCall {
                pipeline,
                context,
                client,
                record,
                has_catalogue,
                resume_point,
                approval,
            };
            call.run_to_completion(&operation, &description)
                .instrument(span)
                .await;
        };
        (call_id, call.boxed())
    }
}
