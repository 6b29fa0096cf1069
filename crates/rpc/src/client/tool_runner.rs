//! Client of the tool-runner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, timeout_at};
use wardgate_domain::{
    BearerToken, CallId, Caller, InvalidMessage, OfferKind, RequiredCapabilities, ResultOutline,
    SignedPermit, Status, Switch, SwitchChange, ToolFacts, ToolName, ToolSwitches,
};
use wardgate_proto::common::v1::StageTime;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;

use super::{
    CallError, CallProgress, Content, ContentResult, GetContent, InputRequired, Interaction,
    LogMessage, Task, TaskStep, WatchResources, open_request, read_out, repeatable, request,
    within,
};
use crate::local::LocalMethod;
use crate::{Link, ServiceLink};

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

/// All configured tools.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// The tools, in configured order.
    pub tools: Vec<CatalogueTool>,
    /// A version that changes with everything in the catalogue that callers can see.
    pub shown_version: Bytes,
    /// The MCP servers whose tools are listed, but which do not respond at the moment.
    pub missing_upstreams: Vec<String>,
    /// The sources that offer more than these tools.
    pub sources: Vec<CatalogueSource>,
}

/// A source that offers resources, prompts or its own route.
#[derive(Debug, Clone)]
pub struct CatalogueSource {
    /// The name of the source.
    pub name: String,
    /// The prefix of the names of its tools and prompts.
    pub prefix: String,
    /// The facts for policy decisions, by kind.
    pub facts: BTreeMap<OfferKind, ToolFacts>,
    /// The canonical names of its tools, by the names that the source uses.
    pub tools: BTreeMap<String, ToolName>,
    /// The switches that enable or disable the source for callers.
    pub switches: ToolSwitches,
    /// The approved instructions of an MCP server, or empty if there are none.
    pub instructions: String,
    /// Whether requests to the source must carry the caller's bearer token.
    pub needs_caller_token: bool,
    /// The capabilities that an MCP server declared, or `None` if they are unknown.
    pub capabilities: Option<ServerCapabilities>,
    /// The times for which lists of an MCP server may be cached, by kind, as far as the server specifies them.
    pub ttls: BTreeMap<OfferKind, Duration>,
}

/// The MCP `ServerCapabilities` of a server that do not follow from its lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// Whether the server sends log messages.
    pub logging: bool,
    /// Whether the server completes arguments.
    pub completions: bool,
    /// Whether the server notifies about changes of single resources.
    pub resource_subscriptions: bool,
}

/// A configured tool.
#[derive(Debug, Clone)]
pub struct CatalogueTool {
    /// The facts for policy decisions.
    pub facts: ToolFacts,
    /// Alternative names of the tool.
    pub aliases: Vec<String>,
    /// The MCP definition without `name`, a JSON object.
    pub definition_json: String,
    /// Maximum duration of a call.
    pub time_limit: Duration,
    /// The names of the toolsets that contain the tool.
    pub toolsets: Vec<String>,
    /// Whether a call must carry the caller's bearer token.
    pub needs_caller_token: bool,
    /// The switches that enable or disable the tool for callers.
    pub switches: ToolSwitches,
    /// Whether a call may become a task, for a client that supports tasks.
    pub may_be_task: bool,
    /// The capabilities that a client must declare to be offered the tool.
    pub required_capabilities: RequiredCapabilities,
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

/// The filtered and redacted result of a call.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// MCP `content`: a JSON array.
    pub content: Bytes,
    /// MCP `structuredContent`: a JSON object, or empty if there is none.
    pub structured_content: Bytes,
    /// Whether the tool failed or refused its arguments.
    pub is_error: bool,
    /// The facts about the result, for the audit record.
    pub facts: ResultFacts,
    /// The other members of the result of an MCP server, a JSON object, or empty if there are none.
    pub other_members: Bytes,
    /// The `_meta` of the result, a JSON object, or empty if there is none.
    pub meta: Bytes,
    /// The JSON-RPC error of an MCP server, a JSON object, or empty if the server returned a result.
    pub error: Bytes,
}

/// The facts about a result, for the audit record.
#[derive(Debug, Clone)]
pub struct ResultFacts {
    /// How the run ended.
    pub status: Status,
    /// Number of released rows.
    pub rows: u64,
    /// Number of withheld rows.
    pub rows_withheld: u64,
    /// Number of changed or dropped fields.
    pub fields_redacted: u64,
    /// Whether a released row contained health information.
    pub phi: bool,
    /// The kind of failure, or empty for a success.
    pub error_kind: String,
    /// Time after which a refused call may be retried, or `None` if it is unknown.
    pub retry_after: Option<Duration>,
    /// The duration of each stage, in order.
    pub stages: Vec<(String, Duration)>,
    /// Numbers of columns that were dropped from the result. Each column counts once.
    pub dropped_columns: DroppedColumns,
    /// The released columns, and the data subjects of the released rows, or `None` if nothing was released.
    pub outline: Option<Box<ResultOutline>>,
}

/// Numbers of columns that were dropped from a result, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedColumns {
    /// Columns without a class.
    pub unclassified: u64,
    /// Columns whose class the permit does not allow.
    pub not_permitted: u64,
}

impl ToolRunnerClient {
    /// Creates a client over `link`. `limit` bounds every request except tool calls.
    pub fn new(link: impl Into<ServiceLink<LocalToolRunner>>, limit: Duration) -> Self {
        let link = link.into();
        let call_tool = "/wardgate.toolrunner.v1.ToolRunnerService/CallTool";
        Self {
            client: ToolRunnerServiceClient::new(link.transport),
            local: link.local.map(|it| LocalMethod::new(it, call_tool)),
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

impl TryFrom<pb::Tool> for CatalogueTool {
    type Error = InvalidMessage;

    fn try_from(tool: pb::Tool) -> Result<Self, Self::Error> {
        let missing = |field| InvalidMessage::field(field, "is missing");
        let time_limit = tool.time_limit.ok_or_else(|| missing("tool.time_limit"))?;
        Ok(Self {
            facts: tool
                .facts
                .ok_or_else(|| missing("tool.facts"))?
                .try_into()?,
            aliases: tool.aliases,
            definition_json: String::from_utf8(tool.definition_json.into())
                .map_err(|_| InvalidMessage::field("tool.definition_json", "is not UTF-8"))?,
            time_limit: Duration::try_from(time_limit)
                .map_err(|_| InvalidMessage::field("tool.time_limit", "is negative"))?,
            toolsets: tool.toolsets,
            needs_caller_token: tool.needs_caller_token,
            switches: tool.switches.try_into()?,
            may_be_task: tool.may_be_task,
            required_capabilities: RequiredCapabilities::read(
                &tool.required_capabilities_json,
                tool.alternative_capabilities_json.iter().map(|it| &**it),
            )
            .ok_or_else(|| {
                let field = "tool.required_capabilities_json";
                InvalidMessage::field(field, "is not a JSON object of capabilities")
            })?,
        })
    }
}

impl TryFrom<pb::Source> for CatalogueSource {
    type Error = InvalidMessage;

    fn try_from(source: pb::Source) -> Result<Self, Self::Error> {
        let ttls = [
            (OfferKind::Tool, source.tools_ttl),
            (OfferKind::Prompts, source.prompts_ttl),
            (OfferKind::Resources, source.resources_ttl),
        ];
        let ttls = ttls
            .into_iter()
            .filter_map(|(kind, ttl)| Some((kind, ttl?.try_into().ok()?)))
            .collect();
        let mut facts = BTreeMap::new();
        for offered in source.facts {
            let offered = ToolFacts::try_from(offered)?;
            facts.insert(offered.kind, offered);
        }
        let canonical = |(own, name): (String, String)| match name.parse() {
            Ok(name) => Ok((own, name)),
            Err(_) => Err(InvalidMessage::field(
                "source.tools",
                "is not a name of a tool",
            )),
        };
        Ok(Self {
            ttls,
            instructions: source.instructions,
            needs_caller_token: source.needs_caller_token,
            capabilities: source.capabilities.map(|declared| ServerCapabilities {
                logging: declared.logging,
                completions: declared.completions,
                resource_subscriptions: declared.resource_subscriptions,
            }),
            name: source.name,
            prefix: source.prefix,
            facts,
            tools: source
                .tools
                .into_iter()
                .map(canonical)
                .collect::<Result<_, _>>()?,
            switches: source.switches.try_into()?,
        })
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

impl TryFrom<pb::ToolResult> for ToolResult {
    type Error = InvalidMessage;

    fn try_from(result: pb::ToolResult) -> Result<Self, Self::Error> {
        let facts = result
            .facts
            .ok_or_else(|| InvalidMessage::field("result.facts", "is missing"))?;
        Ok(Self {
            content: result.content_json,
            structured_content: result.structured_content_json,
            is_error: result.is_error,
            facts: facts.try_into()?,
            other_members: result.other_members_json,
            meta: result.meta_json,
            error: result.error_json,
        })
    }
}

impl From<ToolResult> for pb::ToolResult {
    fn from(result: ToolResult) -> Self {
        Self {
            content_json: result.content,
            structured_content_json: result.structured_content,
            is_error: result.is_error,
            facts: Some(result.facts.into()),
            other_members_json: result.other_members,
            meta_json: result.meta,
            error_json: result.error,
        }
    }
}

impl From<ServerCapabilities> for pb::ServerCapabilities {
    fn from(declared: ServerCapabilities) -> Self {
        Self {
            logging: declared.logging,
            completions: declared.completions,
            resource_subscriptions: declared.resource_subscriptions,
        }
    }
}

impl From<ResultFacts> for pb::ResultFacts {
    fn from(facts: ResultFacts) -> Self {
        use pb::OutcomeStatus as Wire;
        let status = match facts.status {
            Status::Ok => Wire::Ok,
            Status::InvalidArguments => Wire::InvalidArguments,
            Status::Error => Wire::ToolError,
            Status::Timeout => Wire::Timeout,
            Status::Cancelled => Wire::Cancelled,
            // These are statuses of calls that never reach a tool.
            Status::Denied | Status::UnknownTool | Status::Unknown => Wire::Unspecified,
        };
        let stages = facts.stages.into_iter();
        let stages = stages.map(|(stage, spent)| StageTime {
            stage,
            // The conversion does not fail, because the duration of a stage is far below the maximum.
            duration: spent.try_into().ok(),
        });
        let dropped = facts.dropped_columns;
        Self {
            status: status.into(),
            rows: facts.rows,
            rows_withheld: facts.rows_withheld,
            fields_redacted: facts.fields_redacted,
            phi: facts.phi,
            error_kind: facts.error_kind,
            stages: stages.collect(),
            retry_after: facts.retry_after.and_then(|wait| wait.try_into().ok()),
            dropped_columns: (dropped != DroppedColumns::default()).then_some(pb::DroppedColumns {
                unclassified: dropped.unclassified,
                not_permitted: dropped.not_permitted,
            }),
            outline: facts.outline.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<pb::ResultFacts> for ResultFacts {
    type Error = InvalidMessage;

    fn try_from(facts: pb::ResultFacts) -> Result<Self, Self::Error> {
        use pb::OutcomeStatus as Wire;
        let status = match facts.status() {
            Wire::Unspecified => {
                return Err(InvalidMessage::field(
                    "result.facts.status",
                    "is unspecified",
                ));
            }
            Wire::Ok => Status::Ok,
            Wire::InvalidArguments => Status::InvalidArguments,
            Wire::ToolError => Status::Error,
            Wire::Timeout => Status::Timeout,
            Wire::Cancelled => Status::Cancelled,
        };
        let stages = facts
            .stages
            .into_iter()
            .map(|stage| {
                let spent = stage.duration.and_then(|duration| duration.try_into().ok());
                (stage.stage, spent.unwrap_or_default())
            })
            .collect();
        let dropped = facts.dropped_columns.unwrap_or_default();
        Ok(Self {
            status,
            outline: (facts.outline)
                .map(|outline| outline.try_into().map(Box::new))
                .transpose()?,
            dropped_columns: DroppedColumns {
                unclassified: dropped.unclassified,
                not_permitted: dropped.not_permitted,
            },
            rows: facts.rows,
            rows_withheld: facts.rows_withheld,
            fields_redacted: facts.fields_redacted,
            phi: facts.phi,
            error_kind: facts.error_kind,
            retry_after: facts.retry_after.and_then(|wait| wait.try_into().ok()),
            stages,
        })
    }
}
