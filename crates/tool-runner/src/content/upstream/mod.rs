//! Prompts, resources and skills of MCP servers, under names of the catalogue.
//!
//! ```text
//!   following ─▶ lists ─▶ entries: prompts with the source's prefix, URIs that name the source
//!   get: own name ─▶ breaker ─▶ server ─▶ result, its URIs as clients know them
//! ```
//!
//! Definitions are not pinned as those of tools are: a change on the server is listed at once. This is why a source
//! offers prompts, resources and skills only if its settings say so.

mod entries;
mod skills;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use wardgate_domain::{Caller, ColumnClass, Digest, Reason, Status, UriTemplate};
use wardgate_json::{Members, has_unique_members};
use wardgate_mcp::error_code::{INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND};

use super::GetError;
use super::{CompletionRequest, DecisionSubject, MAX_VALUES};
use crate::executor_error::ExecutorError;
use crate::following::{Followers, Roster, ServerListing};
use crate::interaction::{Elicitation, ElicitationError, EndedElicitation, SuspendedRound};
use crate::resource_links;
use wardgate_catalogue::{CONTENT, McpSettings, OfferedSelection};
use wardgate_mcp_client::{ServerMessage, Upstream, UpstreamError, UpstreamOperation};
use wardgate_resilience::{Health, SourceGuard};

pub(super) use self::entries::Entries;
use self::skills::Skill;

/// The lists that servers last returned, and the servers that do not answer.
pub(crate) struct FollowedContent {
    pub(crate) prompts: Roster<Prompts>,
    pub(crate) resources: Roster<Resources>,
    pub(crate) skills: Roster<Skills>,
    pub(super) of_prompts: Followers<Prompts>,
    pub(super) of_resources: Followers<Resources>,
    pub(super) of_skills: Followers<Skills>,
}

/// The result of `prompts/list`, with definitions as the server sent them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prompts(pub(crate) Arc<[String]>);

/// The results of `resources/list` and `resources/templates/list`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) resources: Arc<[String]>,
    pub(crate) templates: Arc<[String]>,
}

/// The result of `skills/list`, or `None` if the server does not have that extension.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Skills(pub(crate) Option<(wardgate_mcp_client::SkillsCapability, Arc<[String]>)>);

impl FollowedContent {
    pub(crate) fn new() -> Self {
        let (prompts, resources) = (Roster::default(), Roster::default());
        let skills = Roster::default();
        Self {
            of_prompts: Followers::new(prompts.clone()),
            of_resources: Followers::new(resources.clone()),
            of_skills: Followers::new(skills.clone()),
            prompts,
            resources,
            skills,
        }
    }

    /// Returns channels that change when a list changes, and when a server becomes unavailable or available again.
    pub(crate) fn changes(&self) -> [watch::Receiver<u64>; 3] {
        let lists = (&self.prompts, &self.resources, &self.skills);
        [lists.0.changes(), lists.1.changes(), lists.2.changes()]
    }
}

impl ServerListing for Prompts {
    type List = Self;

    fn changes(upstream: &Upstream) -> watch::Receiver<u64> {
        upstream.prompts_changed()
    }

    async fn fetch(upstream: &Upstream, deadline: Instant) -> Result<Self, UpstreamError> {
        let list = if_any(upstream.list_prompts(deadline).await)?;
        Ok(Self(list))
    }
}

impl ServerListing for Resources {
    type List = Self;

    fn changes(upstream: &Upstream) -> watch::Receiver<u64> {
        upstream.resources_changed()
    }

    async fn fetch(upstream: &Upstream, deadline: Instant) -> Result<Self, UpstreamError> {
        Ok(Self {
            resources: if_any(upstream.list_resources(deadline).await)?,
            templates: if_any(upstream.list_resource_templates(deadline).await)?,
        })
    }
}

impl ServerListing for Skills {
    type List = Self;

    /// The files of a skill are resources, and the server has no other notification that they changed.
    fn changes(upstream: &Upstream) -> watch::Receiver<u64> {
        upstream.resources_changed()
    }

    async fn fetch(upstream: &Upstream, deadline: Instant) -> Result<Self, UpstreamError> {
        let listed = upstream.list_skills(deadline).await?;
        let texts = |entries: Vec<Box<RawValue>>| {
            let entries = entries.iter();
            entries.map(|entry| entry.get().to_owned()).collect()
        };
        Ok(Self(
            listed.map(|(skills, entries)| (skills, texts(entries))),
        ))
    }
}

/// Returns an empty list for a server that does not have the method.
fn if_any(
    listed: Result<Vec<Box<RawValue>>, UpstreamError>,
) -> Result<Arc<[String]>, UpstreamError> {
    match listed {
        Ok(entries) => Ok(entries.iter().map(|entry| entry.get().to_owned()).collect()),
        Err(UpstreamError::Rpc(error)) if error.code == METHOD_NOT_FOUND => Ok(Arc::default()),
        Err(error) => Err(error),
    }
}

/// A server, and the part of its contents that is offered.
#[derive(Clone)]
pub(crate) struct UpstreamOffers {
    pub(crate) source: String,
    pub(crate) upstream: Arc<Upstream>,
    guard: Arc<SourceGuard>,
    /// The digest of the caller that the server is called for, or `None` before [`Self::for_caller`].
    caller: Option<Digest>,
    limit: Duration,
    pub(crate) prompts: OfferedSelection,
    pub(crate) resources: OfferedSelection,
    pub(crate) skills: OfferedSelection,
    /// The class of every text of the server.
    pub(crate) class: ColumnClass,
}

impl UpstreamOffers {
    pub(crate) fn new(
        source: &str,
        settings: &McpSettings,
        upstream: Arc<Upstream>,
        guard: Arc<SourceGuard>,
        limit: Duration,
    ) -> Self {
        let class = settings.classes.get(CONTENT).cloned();
        Self {
            source: source.to_owned(),
            upstream,
            guard,
            caller: None,
            limit,
            prompts: settings.prompts.clone(),
            resources: settings.resources.clone(),
            skills: settings.skills.clone(),
            class: class.unwrap_or_else(ColumnClass::unclassified),
        }
    }

    /// Returns the offers as this caller reaches the server. `token` is the caller's token, for sources whose
    /// credentials are derived from it.
    pub(crate) fn for_caller(
        &self,
        caller: &Caller,
        token: Option<&str>,
    ) -> Result<Self, UpstreamError> {
        Ok(Self {
            upstream: self.upstream.for_caller(caller, token)?,
            caller: Some(caller.digest()),
            ..self.clone()
        })
    }

    /// Returns whether a resource with this URI is offered, either by its URI or by a template that is offered.
    pub(crate) fn offers_resource(&self, uri: &str) -> bool {
        let is_of = |template: &String| {
            let template = template.parse::<UriTemplate>();
            template.is_ok_and(|template| template.match_uri(uri).is_some())
        };
        match &self.resources {
            OfferedSelection::Named(names) => self.resources.has(uri) || names.iter().any(is_of),
            OfferedSelection::All | OfferedSelection::None => self.resources.has(uri),
        }
    }

    /// Returns the result of `prompts/get`.
    pub(crate) async fn get_prompt(
        &self,
        name: &str,
        arguments: &Bytes,
        elicitation: Option<&Elicitation<'_>>,
        is_restricted: bool,
    ) -> Result<UpstreamContent, GetError> {
        if !self.prompts.has(name) {
            return Err(GetError::Unknown);
        }
        let arguments = match &**arguments {
            [] => b"{}",
            arguments => arguments,
        };
        let unfit = || GetError::Invalid("Invalid arguments: send a single JSON object".to_owned());
        let arguments: Box<RawValue> = serde_json::from_slice(arguments).map_err(|_| unfit())?;
        let wanted = UpstreamOperation::Prompt {
            name: name.to_owned(),
            arguments,
        };
        let got = match self.request(wanted, elicitation).await? {
            SourceAnswer::Complete(got) => got,
            SourceAnswer::Suspended(round) => return Ok(UpstreamContent::Suspended(round)),
        };
        if !is_restricted {
            return self.unchanged_content(&got, "messages", resource_links::in_messages_text);
        }
        let mut got = to_value(&got)?;
        let mut result = json!({});
        if got["description"].is_string() {
            result["description"] = got["description"].take();
        }
        result["messages"] = list(&mut got, "messages")?;
        resource_links::in_messages(&self.source, &mut result["messages"]);
        Ok(UpstreamContent::Value(result))
    }

    /// Returns the result of `resources/read`.
    pub(crate) async fn read_resource(
        &self,
        uri: &str,
        elicitation: Option<&Elicitation<'_>>,
        is_restricted: bool,
    ) -> Result<UpstreamContent, GetError> {
        if !self.offers_resource(uri) {
            return Err(GetError::Unknown);
        }
        let wanted = UpstreamOperation::Resource {
            uri: uri.to_owned(),
        };
        let answer = self.request(wanted, elicitation).await;
        let read = match answer.map_err(GetError::of_name)? {
            SourceAnswer::Complete(read) => read,
            SourceAnswer::Suspended(round) => return Ok(UpstreamContent::Suspended(round)),
        };
        if !is_restricted {
            return self.unchanged_content(&read, "contents", resource_links::in_contents_text);
        }
        let mut read = to_value(&read)?;
        let mut contents = list(&mut read, "contents")?;
        resource_links::in_contents(&self.source, &mut contents);
        Ok(UpstreamContent::Value(json!({ "contents": contents })))
    }

    /// Returns a result as the server wrote it, for a caller who may see all of it. Only the URIs in its `member` are
    /// rewritten to those that clients know. A result that contains an object with duplicate members is refused,
    /// because parsers would read it differently.
    fn unchanged_content(
        &self,
        result: &RawValue,
        member: &str,
        with_shown_uris: fn(&str, &str) -> String,
    ) -> Result<UpstreamContent, GetError> {
        if !has_unique_members(result.get()) {
            return Err(cannot_be_shown());
        }
        let members: Members<'_> =
            serde_json::from_str(result.get()).map_err(|_| cannot_be_shown())?;
        let mut parts = None;
        let mut meta = None;
        let mut written = Vec::new();
        for (name, value) in members.0 {
            if name == "_meta" && value.get().starts_with('{') {
                meta =
                    wardgate_mcp_client::meta_for_client(value).map_err(|_| cannot_be_shown())?;
            }
            if OF_ANSWER.contains(&name.as_str()) {
                continue;
            }
            let text = if name == member {
                let each: Vec<&RawValue> =
                    serde_json::from_str(value.get()).map_err(|_| cannot_be_shown())?;
                parts = Some(each.len() as u64);
                with_shown_uris(&self.source, value.get())
            } else {
                value.get().to_owned()
            };
            written.push(format!("{}:{text}", Value::from(name)));
        }
        Ok(UpstreamContent::Text {
            result: format!("{{{}}}", written.join(",")),
            parts: parts.ok_or_else(cannot_be_shown)?,
            meta,
        })
    }

    /// Returns the result of `skills/get` as JSON.
    pub(crate) async fn get_skill(&self, uri: &str) -> Result<UpstreamContent, GetError> {
        #[derive(Deserialize)]
        struct SkillAnswer<'a> {
            #[serde(borrow)]
            skill: &'a RawValue,
        }
        if !self.skills.has(uri) {
            return Err(GetError::Unknown);
        }
        let uri = uri.to_owned();
        let got = self
            .ask_plainly(UpstreamOperation::Skill { uri: uri.clone() })
            .await?;
        let got: SkillAnswer<'_> =
            serde_json::from_str(got.get()).map_err(|_| cannot_be_shown())?;
        let is_offered = |uri: &str| self.offers_resource(uri);
        let skill = Skill::parse(&self.source, got.skill.get(), is_offered);
        match skill.map_err(|why| self.kept_out(why)) {
            Ok(skill) if skill.own_uri == uri => Ok(UpstreamContent::Text {
                result: format!(r#"{{"skill":{}}}"#, skill.whole()),
                parts: 1,
                meta: None,
            }),
            Ok(_) | Err(()) => Err(cannot_be_shown()),
        }
    }

    fn kept_out(&self, why: &'static str) {
        tracing::warn!(
            source = self.source,
            why,
            "a skill of an upstream server is not offered"
        );
    }

    /// Returns the result of `resources/directory/read` as JSON.
    pub(crate) async fn read_directory(
        &self,
        uri: &str,
        cursor: Option<&str>,
    ) -> Result<UpstreamContent, GetError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct DirectoryAnswer {
            resources: Vec<Box<RawValue>>,
            next_cursor: Option<String>,
        }
        if self.skills == OfferedSelection::None || !self.offers_resource(uri) {
            return Err(GetError::Unknown);
        }
        let wanted = UpstreamOperation::Directory {
            uri: uri.to_owned(),
            cursor: cursor.map(ToOwned::to_owned),
        };
        let read = self.ask_plainly(wanted).await?;
        let read: DirectoryAnswer =
            serde_json::from_str(read.get()).map_err(|_| cannot_be_shown())?;
        let definitions = read.resources.iter().map(|raw| raw.get().to_owned());
        let entries = Entries {
            of: self,
            prefix: "",
        };
        let children = entries.children(&definitions.collect::<Vec<_>>());
        let next = read
            .next_cursor
            .map(|at| format!(r#","nextCursor":{}"#, json!(at)));
        Ok(UpstreamContent::Text {
            result: format!(
                r#"{{"resources":[{}]{}}}"#,
                children.join(","),
                next.unwrap_or_default()
            ),
            parts: children.len() as u64,
            meta: None,
        })
    }

    /// Sends a request that clients cannot take part in. An item that the server does not accept in such a request
    /// counts as unknown.
    async fn ask_plainly(&self, wanted: UpstreamOperation) -> Result<Box<RawValue>, GetError> {
        let deadline = Instant::now() + self.limit;
        let asking = async {
            Ok(self
                .upstream
                .request_without_client(&wanted, deadline)
                .await?)
        };
        let outcome = self.send_guarded(Box::pin(asking)).await;
        outcome.map_err(GetError::of_name)
    }

    /// Sends a request, in an exchange with the client if the client can take part.
    async fn request(
        &self,
        wanted: UpstreamOperation,
        elicitation: Option<&Elicitation<'_>>,
    ) -> Result<SourceAnswer, GetError> {
        let deadline = Instant::now() + self.limit;
        let asking = async {
            let Some(elicitation) = elicitation else {
                let result = self
                    .upstream
                    .request_without_client(&wanted, deadline)
                    .await?;
                return Ok(EndedElicitation::Done(result));
            };
            // Requests for content have no listener for messages before the result.
            let mut listener = |_: ServerMessage| false;
            elicitation
                .round(&self.upstream, &wanted, deadline, &mut listener)
                .await
        };
        Ok(match self.send_guarded(Box::pin(asking)).await? {
            EndedElicitation::Done(result) => SourceAnswer::Complete(result),
            EndedElicitation::Suspended(round) => SourceAnswer::Suspended(round),
            // Only a tool call may become a task.
            EndedElicitation::Task(_) => return Err(GetError::NotWaiting),
        })
    }

    /// Returns the result of `completion/complete`. A server that does not support completion has no values.
    pub(crate) async fn complete(
        &self,
        of: &DecisionSubject,
        wanted: &CompletionRequest,
    ) -> Result<Value, GetError> {
        let reference = match of {
            DecisionSubject::Prompt(name) if self.prompts.has(name) => {
                json!({ "type": "ref/prompt", "name": name })
            }
            DecisionSubject::Resource(template) if self.resources.has(template) => {
                json!({ "type": "ref/resource", "uri": template })
            }
            DecisionSubject::Prompt(_) | DecisionSubject::Resource(_) => {
                return Err(GetError::Unknown);
            }
        };
        let argument = json!({ "name": wanted.argument, "value": wanted.value });
        let known = serde_json::from_slice(&wanted.known).ok();
        let deadline = Instant::now() + self.limit;
        let asking = self.upstream.complete(reference, argument, known, deadline);
        let asking = async {
            match asking.await {
                Err(UpstreamError::Rpc(error)) if error.code == METHOD_NOT_FOUND => Ok(None),
                completed => Ok(completed.map(Some)?),
            }
        };
        let completed = self.send_guarded(Box::pin(asking)).await?;
        let mut completion = match completed {
            None => json!({ "values": [] }),
            Some(completed) => to_value(&completed)?["completion"].take(),
        };
        let values = list(&mut completion, "values")?;
        let values = values.as_array().into_iter().flatten();
        let values: Vec<_> = values
            .filter(|it| it.is_string())
            .take(MAX_VALUES)
            .collect();
        let mut shown = json!({ "values": values });
        for member in ["total", "hasMore"] {
            if !completion[member].is_null() {
                shown[member] = completion[member].take();
            }
        }
        Ok(json!({ "completion": shown }))
    }

    /// Sends a request unless the circuit breaker of the server is open, and reports the outcome to the breaker.
    async fn send_guarded<T>(
        &self,
        asking: impl Future<Output = Result<T, ElicitationError>>,
    ) -> Result<T, GetError> {
        let Ok(mut turn) = self.guard.enter::<ExecutorError>(self.caller) else {
            return Err(GetError::with_reason(
                Reason::SOURCE_UNAVAILABLE,
                "The source failed repeatedly and is not called for now. Try again later.",
            ));
        };
        match asking.await {
            Ok(result) => {
                turn.shows(Health::Up);
                Ok(result)
            }
            Err(error) => {
                tracing::warn!(source = self.source, %error, "an MCP server did not return a prompt or resource");
                let client_error = match &error {
                    ElicitationError::Upstream(error) => client_error(error),
                    ElicitationError::NotWaiting => GetError::NotWaiting,
                    ElicitationError::Declined => GetError::with_reason(
                        Reason::DECLINED,
                        "The user declined the request of the source.",
                    ),
                };
                turn.shows(ExecutorError::from(error).health());
                Err(client_error)
            }
        }
    }
}

/// A server's answer to the request for a prompt or resource.
enum SourceAnswer {
    Complete(Box<RawValue>),
    /// The server waits for input from the client.
    Suspended(SuspendedRound),
}

/// Members of a server's result that the gateway writes itself.
const OF_ANSWER: [&str; 6] = [
    "_meta",
    "cacheScope",
    "inputRequests",
    "requestState",
    "resultType",
    "ttlMs",
];

/// Contents that a server returned.
pub(crate) enum UpstreamContent {
    Value(Value),
    /// A result of `parts` parts that is passed on unchanged.
    Text {
        result: String,
        parts: u64,
        /// The `_meta` of the server as one JSON object.
        meta: Option<String>,
    },
    /// The server waits for input from the client.
    Suspended(SuspendedRound),
}

fn to_value(raw: &RawValue) -> Result<Value, GetError> {
    serde_json::from_str(raw.get()).map_err(|_| cannot_be_shown())
}

/// Converts a failure for the client. Only a JSON-RPC error keeps the server's own words, for callers who may see
/// everything.
fn client_error(error: &UpstreamError) -> GetError {
    let failed = GetError::with_reason;
    match error {
        UpstreamError::Rpc(error) if error.code == RESOURCE_NOT_FOUND => GetError::Unknown,
        UpstreamError::Rpc(error) => GetError::Reported {
            is_about_arguments: error.code == INVALID_PARAMS,
            error: error.for_clients(),
        },
        UpstreamError::Status(_) => failed(Reason::TOOL_ERROR, "The source reported an error."),
        UpstreamError::InputRequired | UpstreamError::AsksOutOfTurn => failed(
            Reason::INPUT_REQUIRED,
            "The source requires input during a request, and its caller may not be asked for it.",
        ),
        UpstreamError::Timeout | UpstreamError::SourceTimeout(_) => GetError::Failed {
            status: Status::Timeout,
            kind: Reason::TIMEOUT,
            words: "The source exceeded its time limit.",
        },
        UpstreamError::TooLarge => GetError::too_large(),
        UpstreamError::BadResult(_) => cannot_be_shown(),
        UpstreamError::Busy => failed(Reason::SOURCE_UNAVAILABLE, "The source is busy. Try again later."),
        UpstreamError::NotConnected { .. } => failed(
            Reason::NOT_CONNECTED,
            "The source acts in your name, and you have not authorized it yet. Call one of its tools first.",
        ),
        UpstreamError::NoCallerToken => failed(
            Reason::NO_CREDENTIALS,
            "The source requires your own token, which was not sent with the request.",
        ),
        UpstreamError::Unreachable(_)
        | UpstreamError::Gone
        | UpstreamError::Broken(_)
        // This error occurs only for tool calls.
        | UpstreamError::ToolChanged => failed(
            Reason::SOURCE_UNAVAILABLE,
            "The source cannot be reached. Try again later.",
        ),
    }
}

fn cannot_be_shown() -> GetError {
    GetError::with_reason(
        Reason::BAD_RESULT,
        "The result of the source cannot be shown.",
    )
}

/// Takes the list `member` out of a result.
fn list(result: &mut Value, member: &str) -> Result<Value, GetError> {
    match result.get_mut(member).map(Value::take) {
        Some(list @ Value::Array(_)) => Ok(list),
        _ => Err(cannot_be_shown()),
    }
}
