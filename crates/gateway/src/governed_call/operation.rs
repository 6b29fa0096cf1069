//! The interface of an operation to the pipeline: its run, and the answer that it renders.

use std::sync::Arc;

use wardgate_connect::ConnectPages;
use wardgate_domain::{Ambient, CallId, Digest, Reason};
use wardgate_gateway_store::Sealer;
use wardgate_limits::RequestAdmission;
use wardgate_mcp_server::{McpResponse, RecordStatus, RpcError};
use wardgate_rpc::client::{InputRequired, ResultFacts, Resumption, ToolRunnerClient};

use super::call_record::RunClient;
use super::description::{CatalogueEntry, Description};
use super::rejection::{Rejection, RunError};
use crate::authority::Grant;
use crate::catalogue::{CatalogueIndex, View};
use crate::discovery::Discovery;
use crate::request_context::RequestContext;
use crate::task_handle::TaskHandles;

/// A kind of request that is authorized, run and recorded: a tool call, the use of a prompt or resource, or a step of a task.
/// The pipeline calls the three methods in this order. A test makes sure that there are no more than three.
pub(crate) trait Operation: Send + Sync + Sized + 'static {
    /// The entry of the catalogue that the operation uses.
    type Entry: CatalogueEntry;
    /// The result of a run that completes.
    type Output: Output;

    /// Describes the request, and finds the entry of `catalogue` that it uses in `view`.
    fn describe(
        &self,
        catalogue: Option<&CatalogueIndex>,
        view: &View,
    ) -> Description<'_, Self::Entry>;

    /// Runs the operation under a permit, or continues it.
    fn run(
        &self,
        run: PermittedRun<'_, Self::Entry>,
    ) -> impl Future<Output = Result<RoundOutcome<Self::Output>, RunError>> + Send;

    /// Renders the answer of a call that has ended.
    fn render(&self, reply: &Reply<'_>, ending: AnswerContent<'_, Self::Output>) -> McpResponse;
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

/// The run of an operation that is authorized.
pub(crate) struct PermittedRun<'a, R> {
    pub(crate) services: &'a OperationServices,
    pub(crate) context: &'a RequestContext,
    pub(crate) call_id: CallId,
    pub(crate) entry: &'a R,
    pub(crate) grant: &'a Grant,
    /// The state and the input to continue with, or `None` for a run that begins.
    pub(crate) resumption: Option<Resumption>,
    pub(crate) client: RunClient<'a>,
}

/// The result of an operation, before it is released.
pub(crate) trait Output: Send {
    /// Returns the counts and the status for the record.
    fn facts(&self) -> &ResultFacts;
    /// Returns the digest of the bytes that are released, or `None` if none are.
    fn digest(&self) -> Option<Digest>;
}

/// The end of one round of a run.
#[derive(Debug)]
pub(crate) enum RoundOutcome<T> {
    /// The operation is complete.
    Output(T),
    /// The server needs input from the client before it continues.
    InputRequired(Box<InputRequired>),
}

/// The content of an answer. An output comes with the status of its record, because nothing is released that is not recorded.
pub(crate) enum AnswerContent<'a, T> {
    Completed(&'a T, RecordStatus),
    /// A rejection. The status is `None` if the call could not be recorded.
    Rejected(&'a Rejection, Option<RecordStatus>),
}

/// The call that an answer is written for.
pub(crate) struct Reply<'a> {
    pub(crate) context: &'a RequestContext,
    pub(crate) call_id: CallId,
    /// The MCP `ClientCapabilities` of the client, or `None` if it declared none.
    pub(crate) capabilities: Option<&'a str>,
}

impl Reply<'_> {
    /// Returns the error for `rejection`; `not_found_error` for an entry that does not exist or is hidden from the caller.
    pub(crate) fn error(
        &self,
        rejection: &Rejection,
        recorded: Option<RecordStatus>,
        not_found_error: impl FnOnce() -> RpcError,
    ) -> McpResponse {
        let error = rejection.error(not_found_error);
        let error = match recorded {
            Some(recorded) => error.of_call(self.call_id, recorded.receipt()),
            None => error
                .because(Reason::NOT_DURABLE)
                .of_call(self.call_id, None),
        };
        McpResponse::error(Some(&self.context.id), &error)
    }
}
