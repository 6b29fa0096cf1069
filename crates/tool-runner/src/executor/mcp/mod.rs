//! `type: mcp`: a tool, resource or prompt of an MCP server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use wardgate_arguments::has_unique_members;
use wardgate_domain::RequiredCapabilities;

use super::http::json;
use super::{
    Executor, ExecutorError, Invocation, Kind, Output, Plan, Sources, TimeLimit, UnchangedResult,
};
use crate::Error;
use crate::catalogue::{
    Fields, JsonTemplate, McpSettings, Offered, Scope, Shape, SourceKind, Template,
};
use crate::content::{in_content, in_content_text};
use crate::egress::AuthSettings;
use crate::interaction::{Ended, Talk, TalkError};
use crate::mcp::{
    CallResult, MISSING_CAPABILITY, News, RpcError, Standing, TASKS, Upstream, UpstreamError,
    Wanted, meta_for_client, other_members,
};
use crate::pins::ToolFingerprint;

pub(super) const KIND: Kind = Kind { name: "mcp", read };

/// The kind of a refusal by a server that does not accept our credentials.
const UNAUTHORIZED: &str = "upstream_unauthorized";

#[derive(Debug, Clone)]
struct McpPlan {
    source: SourceName,
    target: Target,
    /// The source's resources are offered: links to them are those that clients know.
    links: bool,
}

/// The source, and how it is asked on behalf of callers.
#[derive(Debug, Clone)]
struct SourceName {
    name: String,
    exchanges_token: bool,
    stands_for_caller: bool,
}

impl SourceName {
    fn of(name: &str, settings: &McpSettings) -> Self {
        let auth = settings.auth();
        Self {
            name: name.to_owned(),
            exchanges_token: auth.is_some_and(AuthSettings::exchange_token),
            stands_for_caller: auth.is_some_and(AuthSettings::stand_for_caller),
        }
    }
}

/// What is asked of the server.
#[derive(Debug, Clone)]
enum Target {
    Tool {
        name: String,
        /// The approved definition of an imported tool.
        pin: Option<Arc<ToolFingerprint>>,
        arguments: Arguments,
        /// The clients that the server has an imported tool for.
        required: RequiredCapabilities,
    },
    Resource {
        uri: Template,
    },
    Prompt {
        name: String,
        arguments: Arguments,
    },
}

#[derive(Debug, Clone)]
enum Arguments {
    Template(JsonTemplate),
    /// Those of the call, without what is derived from them.
    OfCall {
        derived: Vec<String>,
    },
}

/// Calls the tool `name` of the server `source` with the arguments of the call. With `links` the links to resources in
/// its results are those that clients know.
/// It is called only where the server still offers it as `pin` says, and for a client with the capabilities `required`.
pub(crate) fn tool(
    source: &str,
    settings: &McpSettings,
    name: &str,
    (pin, required): (&Arc<ToolFingerprint>, &RequiredCapabilities),
    links: bool,
) -> Box<dyn Plan> {
    Box::new(McpPlan {
        links,
        source: SourceName::of(source, settings),
        target: Target::Tool {
            name: name.to_owned(),
            pin: Some(Arc::clone(pin)),
            arguments: Arguments::OfCall {
                derived: Vec::new(),
            },
            required: required.clone(),
        },
    })
}

fn read(fields: &mut Fields<'_>, scope: &mut Scope<'_, '_>) -> Option<Box<dyn Plan>> {
    let source_node = fields.required("source", "name one of `sources`", scope.faults);
    let source = source_node.and_then(|node| {
        let settings = scope.source(node)?;
        if let SourceKind::Mcp(mcp) = &settings.kind {
            let source = SourceName::of(&settings.name, mcp);
            return Some((source, mcp.resources != Offered::None));
        }
        scope.faults.add(
            node.at,
            format!("`{}` is no source of type mcp", settings.name),
            "name one with `type: mcp`",
        );
        None
    });
    let targets = ["tool", "resource", "prompt"].map(|key| (key, fields.optional(key)));
    let arguments_node = fields.optional("arguments");
    let arguments = match arguments_node {
        Some(node) => Arguments::Template(scope.json_template(node)),
        None => Arguments::OfCall {
            derived: scope.derive.names().map(str::to_owned).collect(),
        },
    };
    let mut named = targets
        .into_iter()
        .filter_map(|(key, node)| Some((key, node?)));
    let target = match (named.next(), named.next()) {
        (Some(("resource", node)), None) => {
            if let Some(node) = arguments_node {
                scope.faults.add(
                    node.at,
                    "a resource takes no `arguments`",
                    "put placeholders into its URI",
                );
            }
            let uri = scope.template(node, "resource");
            uri.map(|uri| Target::Resource { uri })
        }
        (Some((key, node)), None) => scope.faults.text(node, key).map(|name| {
            let name = name.to_owned();
            match key {
                "tool" => Target::Tool {
                    name,
                    pin: None,
                    arguments,
                    required: RequiredCapabilities::default(),
                },
                _ => Target::Prompt { name, arguments },
            }
        }),
        (_, second) => {
            let at = second.map(|(_, node)| node).or(source_node)?.at;
            scope.faults.add(
                at,
                "`execute` names not exactly one of `tool`, `resource` and `prompt`",
                "add for example `tool: read_file`, the server's own name for it",
            );
            None
        }
    };
    let (source, links) = source?;
    Some(Box::new(McpPlan {
        source,
        target: target?,
        links,
    }))
}

impl Plan for McpPlan {
    fn source(&self) -> Option<&str> {
        Some(&self.source.name)
    }

    fn needs_caller_token(&self) -> bool {
        self.source.exchanges_token
    }

    fn stands_for_caller(&self) -> bool {
        self.source.stands_for_caller
    }

    fn shape(&self) -> Shape {
        Shape::Content
    }

    fn talks(&self) -> bool {
        true
    }

    fn open(&self, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
        Ok(Arc::new(McpExecutor {
            upstream: sources.mcp(&self.source.name)?,
            target: self.target.clone(),
            links: self.links.then(|| self.source.name.clone()),
        }))
    }
}

struct McpExecutor {
    upstream: Arc<Upstream>,
    target: Target,
    /// The source that links to resources name, where clients know them so.
    links: Option<String>,
}

impl Executor for McpExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            match &self.target {
                Target::Tool {
                    name,
                    pin,
                    arguments,
                    required,
                } => {
                    let is_shown = match call.talk {
                        Some(talk) => talk.satisfies(required),
                        None => required.is_empty(),
                    };
                    if !is_shown {
                        return Err(not_for_client(required));
                    }
                    let wanted = Wanted::Tool {
                        name: name.clone(),
                        arguments: arguments.fill(call)?,
                        pin: pin.clone(),
                        may_be_task: call.talk.is_some_and(Talk::offers_tasks),
                    };
                    self.call_tool(&wanted, call, out).await
                }
                Target::Resource { uri } => {
                    let uri = uri.fill_plain(call.arguments)?;
                    self.read_resource(&uri, call, out).await
                }
                Target::Prompt { name, arguments } => {
                    let arguments = arguments.fill(call)?;
                    self.get_prompt(name, arguments, call, out).await
                }
            }
        })
    }
}

impl McpExecutor {
    async fn call_tool(
        &self,
        wanted: &Wanted,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let upstream = self.upstream.of(call.caller, call.caller_token)?;
        let result = if let Some(talk) = call.talk {
            match ask(&upstream, talk, wanted, call, out).await? {
                Some(result) => result,
                None => return Ok(()),
            }
        } else {
            let mut listener = |news| hear(news, out);
            let called = upstream.call_tool(wanted, call.deadline, Some(&mut listener));
            called.await?
        };
        let called = CallResult::read(&result)?;
        if out.takes_unchanged() {
            return self.pass_on(&result, called, out);
        }
        let CallResult {
            content,
            structured,
            is_error,
            ..
        } = called;
        let mut content = content.map_or(Ok(json!([])), |content| value(&content))?;
        self.link(&mut content);
        let structured = structured
            .map(|structured| value(&structured))
            .transpose()?;
        out.content(content, structured, is_error).map(drop)
    }

    /// Passes a result on as it is, but for links to resources, which are made those that clients know.
    fn pass_on(
        &self,
        result: &RawValue,
        called: CallResult,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        if !has_unique_members(result.get()) {
            return Err(UpstreamError::BadResult("an object of it has a member twice").into());
        }
        let content = called.content.as_deref().map_or("[]", RawValue::get);
        let content = match &self.links {
            Some(source) => in_content_text(source, content),
            None => content.to_owned(),
        };
        let meta = called
            .meta
            .as_deref()
            .filter(|meta| meta.get().starts_with('{'));
        out.unchanged(UnchangedResult {
            content,
            structured: called.structured,
            is_error: called.is_error,
            others: other_members(result)?,
            meta: meta.map(meta_for_client).transpose()?.flatten(),
        })
    }

    /// Each part of the resource is a block of content.
    async fn read_resource(
        &self,
        uri: &str,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let upstream = self.upstream.of(call.caller, call.caller_token)?;
        let result = match call.talk {
            Some(talk) => {
                let wanted = Wanted::Resource {
                    uri: uri.to_owned(),
                };
                ask(&upstream, talk, &wanted, call, out).await?
            }
            None => Some(upstream.read_resource(uri, call.deadline).await?),
        };
        let Some(result) = result else {
            return Ok(());
        };
        let mut blocks = items(value(&result)?, "contents")?
            .into_iter()
            .map(|part| json!({ "type": "resource", "resource": part }))
            .collect();
        self.link(&mut blocks);
        out.content(blocks, None, false).map(drop)
    }

    /// Each message's content is a block; who says it is told by the structured part.
    async fn get_prompt(
        &self,
        name: &str,
        arguments: Box<RawValue>,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let deadline = call.deadline;
        let upstream = self.upstream.of(call.caller, call.caller_token)?;
        let result = match call.talk {
            Some(talk) => {
                let name = name.to_owned();
                let wanted = Wanted::Prompt { name, arguments };
                ask(&upstream, talk, &wanted, call, out).await?
            }
            None => Some(upstream.get_prompt(name, &arguments, deadline).await?),
        };
        let Some(result) = result else {
            return Ok(());
        };
        let messages = items(value(&result)?, "messages")?;
        let mut blocks = messages
            .iter()
            .map(|message| message["content"].clone())
            .collect();
        self.link(&mut blocks);
        let structured = json!({ "messages": messages });
        out.content(blocks, Some(structured), false).map(drop)
    }
}

impl McpExecutor {
    /// Makes the links to resources in `blocks` those that clients know.
    fn link(&self, blocks: &mut Value) {
        if let Some(source) = &self.links {
            in_content(source, blocks);
        }
    }
}

impl Arguments {
    /// One JSON object. What the caller wrote goes on byte for byte, unless a default was added to it.
    fn fill(&self, call: &Invocation<'_>) -> Result<Box<RawValue>, ExecutorError> {
        let filled = match self {
            Self::Template(template) => template.fill(call.arguments)?.unwrap_or_else(|| json!({})),
            Self::OfCall { derived } => {
                let mut arguments = call.arguments.clone();
                arguments.retain(|name, _| !derived.contains(name));
                let written = serde_json::from_slice::<&RawValue>(call.raw_arguments);
                if let Ok(written) = written
                    && serde_json::from_str::<Map<_, _>>(written.get())
                        .ok()
                        .as_ref()
                        == Some(&arguments)
                {
                    return Ok(written.to_owned());
                }
                Value::Object(arguments)
            }
        };
        to_raw_value(&filled).map_err(|_| ExecutorError::BadArgument {
            text: "the arguments cannot be written as JSON".to_owned(),
        })
    }
}

/// Asks the server with a client that can take part; none where it waits for that client now, or goes on as a task.
async fn ask(
    upstream: &Arc<Upstream>,
    talk: &Talk<'_>,
    wanted: &Wanted,
    call: &Invocation<'_>,
    out: &mut Output<'_>,
) -> Result<Option<Box<RawValue>>, ExecutorError> {
    let mut listener = |news| hear(news, out);
    let leg = talk.leg(upstream, wanted, call.deadline, &mut listener);
    match Box::pin(leg).await? {
        Ended::Done(result) => Ok(Some(result)),
        Ended::Waits(waits) => {
            out.waits(waits);
            Ok(None)
        }
        Ended::Task(task) => {
            // What a completed one gave is what the call would have given.
            let result = match &task.standing {
                Some(Standing::Completed(result)) => Some(result.clone()),
                _ => None,
            };
            out.task(task);
            Ok(result)
        }
    }
}

/// Passes on what the server says besides its result.
fn hear(news: News, out: &mut Output<'_>) -> bool {
    match news {
        News::Progress(report) => {
            let message = report.message.as_deref().unwrap_or_default();
            out.progress(report.done, report.total, message);
        }
        News::Log(message) => out.log(message),
        News::Completed(elicitation) => out.completed(elicitation),
        // Whoever asks for a client's answer does not ask here.
        News::Question(_) => return false,
    }
    true
}

/// As strict as any other response.
fn value(raw: &RawValue) -> Result<Value, ExecutorError> {
    json(&Bytes::copy_from_slice(raw.get().as_bytes()))
}

/// The list `member` of a result.
fn items(mut result: Value, member: &str) -> Result<Vec<Value>, ExecutorError> {
    match result[member].take() {
        Value::Array(items) => Ok(items),
        _ => Err(ExecutorError::BadResult(format!(
            "the result has no list `{member}`"
        ))),
    }
}

impl From<TalkError> for ExecutorError {
    fn from(error: TalkError) -> Self {
        match error {
            TalkError::Upstream(error) => error.into(),
            TalkError::NotWaiting => Self::NotWaiting,
            TalkError::Declined => Self::Refused {
                kind: "declined",
                text: "what the tool needs first was declined".to_owned(),
                cause: error.to_string(),
            },
        }
    }
}

impl From<UpstreamError> for ExecutorError {
    fn from(error: UpstreamError) -> Self {
        let cause = error.to_string();
        match error {
            UpstreamError::Unreachable(_) | UpstreamError::Gone => Self::Unreachable(cause),
            UpstreamError::NotConnected { scope } => Self::NotConnected { scope },
            UpstreamError::ToolChanged => Self::ToolChanged,
            UpstreamError::NoCallerToken => Self::Refused {
                kind: "no_credentials",
                text: "the service needs the caller's token, which did not come with the call"
                    .to_owned(),
                cause,
            },
            UpstreamError::Busy => Self::Busy(Duration::ZERO),
            UpstreamError::Timeout => Self::Timeout(TimeLimit::Call),
            UpstreamError::SourceTimeout(limit) => Self::Timeout(TimeLimit::Source(limit)),
            UpstreamError::Broken(_) => Self::Broken(cause),
            UpstreamError::Status(401 | 403) => Self::Refused {
                kind: UNAUTHORIZED,
                text: "the upstream server does not accept this platform's credentials".to_owned(),
                cause,
            },
            UpstreamError::Status(429) => Self::Unavailable {
                text: cause,
                pause: Some(Duration::ZERO),
            },
            UpstreamError::Status(502..=504) => Self::Unavailable {
                text: cause,
                pause: None,
            },
            UpstreamError::Status(_) => Self::Refused {
                kind: "http_status",
                text: cause.clone(),
                cause,
            },
            UpstreamError::Rpc(error) if needs_tasks(&error) => Self::Refused {
                kind: "needs_tasks",
                text: "the tool runs as a task only: for a client of 2026-07-28 that declares io.modelcontextprotocol/tasks, calls it without an idempotency key and may see all of its results"
                    .to_owned(),
                cause,
            },
            UpstreamError::Rpc(error) if let Some(kind) = undeclared(&error) => Self::Refused {
                kind,
                text: NOT_ASKABLE.to_owned(),
                cause,
            },
            UpstreamError::Rpc(error) => Self::Protocol(error),
            UpstreamError::BadResult(_) => Self::BadResult(cause),
            UpstreamError::TooLarge => Self::TooLarge,
            UpstreamError::AsksOutOfTurn => Self::Refused {
                kind: "input_required",
                text: "the tool asks its client in the middle of a call in a way that MCP 2026-07-28 does not have; a client of an earlier version that can be asked may call it"
                    .to_owned(),
                cause,
            },
            UpstreamError::InputRequired => Self::Refused {
                kind: "input_required",
                text: "the tool asks for input in the middle of a call, and its caller may not be asked"
                    .to_owned(),
                cause,
            },
        }
    }
}

/// The kind of a refusal by a server whose client did not declare what it needs; none of any other refusal. Gateways
/// know these kinds.
fn undeclared(error: &RpcError) -> Option<&'static str> {
    let required = required(error)?;
    kind_of_missing(|capability| required.contains_key(capability))
}

/// The kind of a refusal for want of the first of these capabilities that `is_required`.
fn kind_of_missing(is_required: impl Fn(&str) -> bool) -> Option<&'static str> {
    let kinds = [
        ("sampling", "needs_sampling"),
        ("elicitation", "needs_elicitation"),
        ("roots", "needs_roots"),
    ];
    let mut kinds = kinds.into_iter();
    let (_, kind) = kinds.find(|(capability, _)| is_required(capability))?;
    Some(kind)
}

/// The refusal of a tool that its server shows only to clients with the capabilities `required`. Nothing was sent.
fn not_for_client(required: &RequiredCapabilities) -> ExecutorError {
    ExecutorError::Refused {
        kind: kind_of_missing(|capability| required.contain(capability))
            .unwrap_or("needs_capability"),
        text: NOT_ASKABLE.to_owned(),
        cause: format!("the client lacks some of {}", required.to_json()),
    }
}

const NOT_ASKABLE: &str = "the tool needs a client that it can ask, and this one did not say that it can be asked, or may not be asked here";

/// Whether it is refused for want of a client that takes tasks.
fn needs_tasks(error: &RpcError) -> bool {
    let extensions = required(error).and_then(|mut required| required.remove("extensions"));
    extensions.is_some_and(|extensions| extensions.get(TASKS).is_some())
}

/// The client capabilities without which a server refuses.
fn required(error: &RpcError) -> Option<Map<String, Value>> {
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "requiredCapabilities")]
        required: Map<String, Value>,
    }
    let data = error.data.as_ref()?;
    let data: Option<Data> =
        (error.code == MISSING_CAPABILITY).then(|| serde_json::from_str(data.get()).ok())?;
    data.map(|data| data.required)
}

#[cfg(test)]
mod tests;
