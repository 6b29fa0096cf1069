//! The call pipeline: the services that its calls use, and the calls in progress.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};
use wardgate_approvals::Approvals;
use wardgate_connect::ConnectPages;
use wardgate_domain::{Ambient, CallId, Reason};
use wardgate_gateway_record::CallRecorder;
use wardgate_gateway_store::{Sealer, Store};
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, RpcError};
use wardgate_resilience::AttachedWork;
use wardgate_rpc::client::ToolRunnerClient;
use wardgate_telemetry::trace_context;

use super::approval::CallApproval;
use super::call_record::CallRecord;
use super::request_state::ResumePoint;
use super::{GovernedCall, Operation};
use crate::client_interaction::{self, ClientChannel, ClientChannels, ClientInteraction};
use crate::discovery::Discovery;
use crate::request_context::RequestContext;
use crate::task_handle::TaskHandles;
use wardgate_limits::RequestAdmission;

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

/// The services that the runs of operations use.
pub(crate) struct OperationServices {
    pub(crate) runner: ToolRunnerClient,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) connect_pages: Arc<ConnectPages>,
    pub(crate) task_handles: TaskHandles,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) admission: Arc<RequestAdmission>,
    pub(crate) ambient: Ambient,
}

impl CallPipeline {
    pub(crate) fn new(
        services: OperationServices,
        recorder: Arc<CallRecorder>,
        (store, approvals): (Arc<Store>, Arc<Approvals>),
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
        let (call_id, call) = self.begin_call(context, (client, trace), operation, resume_point);
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

    /// Creates the call as a boxed future, and its id. `trace` is the trace context of the message itself, as headers.
    pub(super) fn begin_call<O: Operation>(
        self: &Arc<Self>,
        context: RequestContext,
        (client, trace): (ClientInteraction, HeaderMap),
        operation: O,
        mut resume_point: ResumePoint,
    ) -> (CallId, BoxFuture<'static, ()>) {
        let (call_id, request_span) = (CallId::new(&self.services.ambient), Span::current());
        let pipeline = Arc::clone(self);
        let approval = CallApproval::continued(resume_point.approval.take());
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
