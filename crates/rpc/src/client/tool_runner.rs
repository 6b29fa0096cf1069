//! The tool-runner, as its callers see it.

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

/// Bytes of the lists of prompts and resources: many times what the tool-runner keeps of a server.
const MAX_LISTED: usize = 64 << 20;

/// What there is to hear of a call. The last event is its end.
pub type CallEvents = BoxStream<'static, Result<CallEvent, CallError>>;

/// What callers in the tool-runner's own process call as functions.
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

/// Asks the tool-runner.
#[derive(Debug, Clone)]
pub struct ToolRunnerClient {
    pub(super) client: ToolRunnerServiceClient<Link>,
    local: Option<LocalMethod<LocalToolRunner>>,
    limit: Duration,
}

/// Every configured tool.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// The tools, in configured order.
    pub tools: Vec<CatalogueTool>,
    /// Changes whenever something changes that callers are shown.
    pub shown_version: Bytes,
    /// MCP servers whose tools are listed and that do not answer.
    pub missing_upstreams: Vec<String>,
    /// What offers more than these tools.
    pub sources: Vec<CatalogueSource>,
}

/// A source that offers resources, prompts or a route of its own, as the catalogue lists it.
#[derive(Debug, Clone)]
pub struct CatalogueSource {
    /// Its name.
    pub name: String,
    /// Stands before the names of its tools and prompts.
    pub prefix: String,
    /// What the policy needs to know, by kind.
    pub facts: BTreeMap<OfferKind, ToolFacts>,
    /// Its own names of its tools, with the canonical ones.
    pub tools: BTreeMap<String, ToolName>,
    /// Whom it is on for.
    pub switches: ToolSwitches,
    /// What an MCP server says of itself, as approved; empty where there is nothing.
    pub instructions: String,
    /// What is got of it must bring the caller's bearer token.
    pub needs_caller_token: bool,
    /// What an MCP server declared; none where that is not known.
    pub capabilities: Option<ServerCapabilities>,
    /// How long an MCP server lets its lists be kept, by kind, where it says so.
    pub ttls: BTreeMap<OfferKind, Duration>,
}

/// Of MCP `ServerCapabilities`, what lists do not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// It sends log messages.
    pub logging: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It tells of changes of single resources.
    pub resource_subscriptions: bool,
}

/// A configured tool, as the catalogue lists it.
#[derive(Debug, Clone)]
pub struct CatalogueTool {
    /// What the policy needs to know.
    pub facts: ToolFacts,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// The MCP definition without `name`, a JSON object.
    pub definition_json: String,
    /// How long one call may take.
    pub time_limit: Duration,
    /// Names of the toolsets it is in.
    pub toolsets: Vec<String>,
    /// A call must bring the caller's bearer token.
    pub needs_caller_token: bool,
    /// Whom it is on for.
    pub switches: ToolSwitches,
    /// A call of it may become a task, for a client that takes those.
    pub may_be_task: bool,
    /// Only clients that declare these are offered it.
    pub required_capabilities: RequiredCapabilities,
}

/// One call to run.
/// It is no `Debug`: it can hold the caller's token.
#[derive(Clone)]
pub struct CallTool<'a> {
    /// Its id.
    pub call_id: CallId,
    /// Who calls.
    pub caller: &'a Arc<Caller>,
    /// Canonical name.
    pub tool: &'a ToolName,
    /// Arguments, byte for byte as the client sent them.
    pub arguments: Bytes,
    /// The right to run it.
    pub permit: &'a SignedPermit,
    /// The caller's bearer token, only for a tool that needs it.
    pub caller_token: Option<&'a str>,
    /// The same key and arguments never run a tool that may write twice.
    pub idempotency_key: Option<&'a str>,
    /// What the client can take part in.
    pub interaction: Interaction<'a>,
    /// How long it may take.
    pub limit: Duration,
}

/// What there is to hear of a call while it runs, and how it ends.
#[derive(Debug, Clone)]
pub enum CallEvent {
    /// How far it is.
    Progress(CallProgress),
    /// What the tool's server has to say.
    Log(LogMessage),
    /// The user has done what the tool's server sent them elsewhere for: its `elicitationId`.
    Completed(String),
    /// The tool's server closed the stream of the call, to be asked for the rest.
    StreamClosed,
    /// The result; nothing follows.
    Result(Box<ToolResult>),
    /// The call waits for the client; nothing follows.
    InputRequired(Box<InputRequired>),
    /// The call goes on as a task, or was about one; nothing follows.
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

/// What there is to hear until the call has ended, which it must by `deadline`.
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
    InvalidMessage::field("event", "is missing: the stream stopped before the end")
}

/// What a run gave, filtered and redacted.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// MCP `content`: a JSON array.
    pub content: Bytes,
    /// MCP `structuredContent`: a JSON object; empty when there is none.
    pub structured_content: Bytes,
    /// The tool failed or refused its arguments.
    pub is_error: bool,
    /// What the record says of it.
    pub facts: ResultFacts,
    /// The other members of an MCP server's result, a JSON object; empty when there are none.
    pub other_members: Bytes,
    /// Its `_meta`, a JSON object; empty when there is none.
    pub meta: Bytes,
    /// The JSON-RPC error that an MCP server answered with, a JSON object; empty when it gave a result.
    pub error: Bytes,
}

/// What the record says of a result.
#[derive(Debug, Clone)]
pub struct ResultFacts {
    /// How the run ended.
    pub status: Status,
    /// Rows released.
    pub rows: u64,
    /// Rows withheld.
    pub rows_withheld: u64,
    /// Fields changed or dropped.
    pub fields_redacted: u64,
    /// A released row held health information.
    pub phi: bool,
    /// Kind of failure, empty when it succeeded.
    pub error_kind: String,
    /// When a refused call may be tried again, where that is known.
    pub retry_after: Option<Duration>,
    /// Where the time went, in order.
    pub stages: Vec<(String, Duration)>,
    /// Columns left out of the result, each counted once.
    pub dropped_columns: DroppedColumns,
    /// The released columns, and whose rows were released; none where nothing was.
    pub outline: Option<Box<ResultOutline>>,
}

/// How many columns of a result were left out, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedColumns {
    /// Columns without a class.
    pub unclassified: u64,
    /// Columns with a class that the permit does not show.
    pub not_permitted: u64,
}

impl ToolRunnerClient {
    /// Over `link`; nothing but a call itself takes longer than `limit`.
    pub fn new(link: impl Into<ServiceLink<LocalToolRunner>>, limit: Duration) -> Self {
        let link = link.into();
        let call_tool = "/wardgate.toolrunner.v1.ToolRunnerService/CallTool";
        Self {
            client: ToolRunnerServiceClient::new(link.transport),
            local: link.local.map(|it| LocalMethod::new(it, call_tool)),
            limit,
        }
    }

    /// The whole catalogue.
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

    /// The catalogue's version, now and on every change, until the connection is lost.
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

    /// Changes one switch for the holder of the token `operator`: on record, stored, and in force on every replica within a second.
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

    /// Every switch as it stands, for the holder of the token `operator`.
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

    /// Runs one call. The last event is its end.
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
        // With a key it runs once, at whichever replica it comes to; what goes on with an answer has used that up.
        let is_keyed = call.idempotency_key.is_some() && resumption.is_none();
        let mut client = self.client.clone();
        let events = within(limit, async move {
            let request = repeatable(request(call.into(), limit), is_keyed || is_look);
            Ok(client.call_tool(request).await?.into_inner())
        });
        let events = events.await?.map(|event| Ok(CallEvent::try_from(event?)?));
        Ok(until_end(events, deadline))
    }

    /// Every prompt and resource.
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

    /// Gets one prompt, resource or completion, within `limit`.
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

    /// Tells when resources change: first which of them can be watched, then those that changed, all by the source's
    /// own URIs. It ends with the first of the permits.
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
                "is no name of a tool",
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
            // Of calls that never reach a tool.
            Status::Denied | Status::UnknownTool | Status::Unknown => Wire::Unspecified,
        };
        let stages = facts.stages.into_iter();
        let stages = stages.map(|(stage, spent)| StageTime {
            stage,
            // Less than ages.
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
