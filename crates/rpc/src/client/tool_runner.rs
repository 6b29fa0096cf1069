//! Client of the tool-runner.

mod catalogue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, timeout_at};
use wardgate_domain::{
    BearerToken, CallId, Caller, InvalidMessage, SignedPermit, Switch, SwitchChange, ToolName,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;

use super::{
    CallError, CallProgress, Content, ContentResult, GetContent, InputRequired, Interaction,
    LogMessage, Task, TaskStep, ToolResult, WatchResources, open_request, read_out, repeatable,
    request, within,
};
use crate::local::LocalMethod;
use crate::{Link, ServiceLink};

pub use catalogue::{Catalogue, CatalogueSource, CatalogueTool, ServerCapabilities};

/// Maximum size of the lists of prompts and resources in bytes: many times what the tool-runner keeps of one server.
const MAX_LISTED: usize = 64 << 20;

/// The events of a call, with the outcome as the last one.
pub type CallEvents = BoxStream<'static, Result<CallEvent, CallError>>;

/// The functions of the tool-runner for callers in its process.
#[tonic::async_trait]
pub trait ToolCaller: Send + Sync {
    /// See [`ToolRunnerClient::call_tool`].
    async fn call_tool(&self, call: CallTool<'_>) -> Result<CallEvents, CallError>;
}

impl fmt::Debug for dyn ToolCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolCaller")
    }
}

/// The tool-runner in this process.
pub type LocalToolRunner = Arc<dyn ToolCaller>;

/// A client of the tool-runner.
#[derive(Debug, Clone)]
pub struct ToolRunnerClient {
    pub(super) client: ToolRunnerServiceClient<Link>,
    local: Option<LocalMethod<LocalToolRunner>>,
    limit: Duration,
}

/// A call to run. It does not implement `Debug` because it can contain the caller's token.
#[derive(Clone)]
pub struct CallTool<'a> {
    /// The id of the call.
    pub call_id: CallId,
    /// The caller.
    pub caller: &'a Arc<Caller>,
    /// The canonical name of the tool.
    pub tool: &'a ToolName,
    /// The arguments, byte for byte as the client sent them.
    pub arguments: Bytes,
    /// The permit to run the call.
    pub permit: &'a SignedPermit,
    /// The caller's bearer token, if the tool needs it.
    pub caller_token: Option<&'a str>,
    /// The idempotency key. A tool that may write never runs twice with the same key and arguments.
    pub idempotency_key: Option<&'a str>,
    /// The interaction that the client supports.
    pub interaction: Interaction<'a>,
    /// Maximum duration of the call.
    pub limit: Duration,
}

/// An event of a call: a notification while it runs, or its outcome.
#[derive(Debug, Clone)]
pub enum CallEvent {
    /// The progress of the call.
    Progress(CallProgress),
    /// A log message of the MCP server of the tool.
    Log(LogMessage),
    /// The user completed the elicitation with this `elicitationId` at an external URL.
    Completed(String),
    /// The MCP server of the tool closed the stream of the call, which has to be resumed to get the rest.
    StreamClosed,
    /// The result, which is the last event.
    Result(Box<ToolResult>),
    /// The call waits for input of the client. This is the last event.
    InputRequired(Box<InputRequired>),
    /// The call became a task, or was a request about a task. This is the last event.
    Task(Box<Task>),
}

impl CallEvent {
    fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Result(_) | Self::InputRequired(_) | Self::Task(_)
        )
    }
}

/// Returns the events up to the outcome, which must arrive by `deadline`.
fn until_end(
    events: impl Stream<Item = Result<CallEvent, CallError>> + Unpin + Send + 'static,
    deadline: Instant,
) -> CallEvents {
    let events = stream::try_unfold(Some(events), move |events| async move {
        let Some(mut events) = events else {
            return Ok(None);
        };
        let next = timeout_at(deadline, events.try_next()).await;
        let next = next.map_err(|_| CallError::late())??;
        let event = next.ok_or_else(no_end)?;
        if event.is_end() {
            read_out(events);
            return Ok(Some((event, None)));
        }
        Ok(Some((event, Some(events))))
    });
    events.boxed()
}

fn no_end() -> InvalidMessage {
    InvalidMessage::field("event", "is missing: the stream ended early")
}

impl ToolRunnerClient {
    /// Creates a client over `link`. `limit` bounds every request except tool calls.
    pub fn new(link: impl Into<ServiceLink<LocalToolRunner>>, limit: Duration) -> Self {
        let link = link.into();
        let call_tool = "/wardgate.toolrunner.v1.ToolRunnerService/CallTool";
        Self {
            client: ToolRunnerServiceClient::new(link.transport),
            local: (link.local).map(|(it, peer)| LocalMethod::new(it, peer, call_tool)),
            limit,
        }
    }

    /// Returns the whole catalogue.
    pub async fn list_tools(&self) -> Result<Catalogue, CallError> {
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .list_tools(request(pb::ListToolsRequest {}, self.limit))
                .await?
                .into_inner();
            let tools = answer
                .tools
                .into_iter()
                .map(CatalogueTool::try_from)
                .collect::<Result<_, _>>()?;
            Ok(Catalogue {
                tools,
                shown_version: if answer.shown_version.is_empty() {
                    answer.catalogue_version
                } else {
                    answer.shown_version
                },
                missing_upstreams: answer.missing_upstreams,
                sources: answer
                    .sources
                    .into_iter()
                    .map(CatalogueSource::try_from)
                    .collect::<Result<_, _>>()?,
            })
        })
        .await
    }

    /// Returns a stream of the catalogue's version, which begins with the current one and lasts until the connection is lost.
    pub async fn watch_catalogue(
        &self,
    ) -> Result<impl Stream<Item = Result<Bytes, CallError>> + use<>, CallError> {
        let mut client = self.client.clone();
        let versions = client
            .watch_catalogue(open_request(pb::WatchCatalogueRequest {}))
            .await?
            .into_inner();
        Ok(versions
            .map_err(CallError::from)
            .map(|version| version.map(|version| version.catalogue_version)))
    }

    /// Changes a switch for the operator with the token `operator`. The change is recorded, stored, and effective on all
    /// replicas within a second.
    pub async fn set_switch(
        &self,
        operator: &BearerToken,
        change: &SwitchChange,
    ) -> Result<(), CallError> {
        let message = pb::SetSwitchRequest {
            caller_token: operator.expose().to_owned(),
            ..change.into()
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            client.set_switch(request(message, self.limit)).await?;
            Ok(())
        })
        .await
    }

    /// Returns all switches, for the operator with the token `operator`.
    pub async fn list_switches(&self, operator: &BearerToken) -> Result<Vec<Switch>, CallError> {
        let message = pb::ListSwitchesRequest {
            caller_token: operator.expose().to_owned(),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .list_switches(request(message, self.limit))
                .await?
                .into_inner();
            let switches = answer.switches.into_iter().map(Switch::try_from);
            Ok(switches.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Runs a call, and returns its events. The last event is the outcome.
    pub async fn call_tool(&self, call: CallTool<'_>) -> Result<CallEvents, CallError> {
        let limit = call.limit;
        let deadline = Instant::now() + limit;
        match &self.local {
            Some(local) => {
                let events = local.open(limit, local.service.call_tool(call)).await?;
                Ok(until_end(events, deadline))
            }
            None => Box::pin(self.call_remotely(call, deadline)).await,
        }
    }

    async fn call_remotely(
        &self,
        call: CallTool<'_>,
        deadline: Instant,
    ) -> Result<CallEvents, CallError> {
        let limit = call.limit;
        let resumption = call.interaction.resumption.as_ref();
        let is_look =
            resumption.is_some_and(|resumption| resumption.task_step == Some(TaskStep::Get));
        // A call with a key runs only once, whichever replica receives it. A resumption must not be retried
        // because its state is used up.
        let is_keyed = call.idempotency_key.is_some() && resumption.is_none();
        let mut client = self.client.clone();
        let events = within(limit, async move {
            let request = repeatable(request(call.into(), limit), is_keyed || is_look);
            Ok(client.call_tool(request).await?.into_inner())
        });
        let events = events.await?.map(|event| Ok(CallEvent::try_from(event?)?));
        Ok(until_end(events, deadline))
    }

    /// Returns all prompts, resources, templates and skills.
    pub async fn list_content(&self) -> Result<Content, CallError> {
        let mut client = self.client.clone().max_decoding_message_size(MAX_LISTED);
        within(self.limit, async move {
            let request = request(pb::ListContentRequest {}, self.limit);
            Ok(client
                .list_content(request)
                .await?
                .into_inner()
                .try_into()?)
        })
        .await
    }

    /// Returns a prompt, resource, completion or skill, within `limit`.
    pub async fn get_content(
        &self,
        get: GetContent<'_>,
        limit: Duration,
    ) -> Result<ContentResult, CallError> {
        let mut client = self.client.clone();
        let is_first_leg = get.interaction.resumption.is_none();
        let message = get.into();
        within(limit, async move {
            let request = repeatable(request(message, limit), is_first_leg);
            let answer = client.get_content(request).await?;
            Ok(answer.into_inner().try_into()?)
        })
        .await
    }

    /// Watches resources for changes. The first item of the stream lists the resources that can be watched, each further item
    /// those that changed, with the URIs of the source. The stream ends when the first of the permits expires.
    pub async fn watch_resources(
        &self,
        watch: WatchResources<'_>,
    ) -> Result<impl Stream<Item = Result<Vec<String>, CallError>> + use<>, CallError> {
        let mut client = self.client.clone();
        let message = watch.into();
        let told = within(self.limit, async move {
            let told = client.watch_resources(open_request(message)).await?;
            Ok(told.into_inner())
        });
        Ok(told.await?.map(|told| Ok(told?.uris)))
    }
}

impl From<CallTool<'_>> for pb::CallToolRequest {
    fn from(call: CallTool<'_>) -> Self {
        Self {
            call_id: call.call_id.to_string(),
            caller: Some((&**call.caller).into()),
            tool: call.tool.to_string(),
            arguments_json: call.arguments,
            permit: Some(call.permit.into()),
            caller_token: call.caller_token.unwrap_or_default().to_owned(),
            idempotency_key: call.idempotency_key.unwrap_or_default().to_owned(),
            interaction: Some(call.interaction.into()),
        }
    }
}

impl From<CallEvent> for pb::CallToolResponse {
    fn from(event: CallEvent) -> Self {
        use pb::call_tool_response::Event;
        let event = match event {
            CallEvent::Progress(progress) => Event::Progress(progress.into()),
            CallEvent::Log(log) => Event::Log(log.into()),
            CallEvent::Completed(elicitation_id) => {
                Event::Completed(pb::ElicitationCompleted { elicitation_id })
            }
            CallEvent::StreamClosed => Event::StreamClosed(pb::StreamClosed {}),
            CallEvent::Result(result) => Event::Result((*result).into()),
            CallEvent::InputRequired(required) => Event::InputRequired((*required).into()),
            CallEvent::Task(task) => Event::Task((*task).into()),
        };
        Self { event: Some(event) }
    }
}

impl TryFrom<pb::CallToolResponse> for CallEvent {
    type Error = InvalidMessage;

    fn try_from(response: pb::CallToolResponse) -> Result<Self, Self::Error> {
        use pb::call_tool_response::Event;
        let event = response
            .event
            .ok_or_else(|| InvalidMessage::field("event", "is missing"))?;
        Ok(match event {
            Event::Progress(progress) => Self::Progress(progress.into()),
            Event::Log(log) => Self::Log(log.try_into()?),
            Event::Completed(completed) => Self::Completed(completed.elicitation_id),
            Event::StreamClosed(pb::StreamClosed {}) => Self::StreamClosed,
            Event::Result(result) => Self::Result(Box::new(result.try_into()?)),
            Event::InputRequired(waits) => Self::InputRequired(Box::new(waits.try_into()?)),
            Event::Task(task) => Self::Task(Box::new(task.try_into()?)),
        })
    }
}
