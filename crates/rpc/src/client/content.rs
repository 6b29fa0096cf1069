//! Messages about prompts, resources and skills of the tool-runner's API.

use bytes::Bytes;
use wardgate_domain::{CallId, Caller, InvalidMessage, OfferKind, SignedPermit};
use wardgate_proto::toolrunner::v1 as pb;

use super::interaction::text;
use super::{InputRequired, Interaction, ResultFacts};

/// All prompts, resources, templates and skills, with their sources.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// The version of the catalogue.
    pub version: Bytes,
    /// The sources that have prompts or resources.
    pub sources: Vec<ContentSource>,
    /// The prompts, ordered by name.
    pub prompts: Vec<ContentEntry>,
    /// The resources, ordered by URI.
    pub resources: Vec<ContentEntry>,
    /// The templates, ordered by URI template.
    pub templates: Vec<ContentEntry>,
    /// The skills, ordered by the URI of their SKILL.md.
    pub skills: Vec<ContentEntry>,
}

/// A source of prompts or resources.
#[derive(Debug, Clone)]
pub struct ContentSource {
    /// The name of the source.
    pub name: String,
    /// The kinds that the source offers: prompts, resources or both. Includes those of a source that does
    /// not respond at the moment.
    pub kinds: Vec<OfferKind>,
    /// The toolsets that the source is in.
    pub toolsets: Vec<String>,
    /// Whether the source is an MCP server. Clients see the resources of an MCP server under URIs that contain its name.
    pub is_upstream: bool,
    /// Whether the source does not respond at the moment.
    pub is_missing: bool,
    /// The skills that the source offers, or `None` if it has none or they are not offered.
    pub skills: Option<Skills>,
}

/// The features of the skills extension that a source supports (SEP-2640).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skills {
    /// Whether the source can list directories of resources.
    pub directories: bool,
}

/// A prompt, resource, template or skill.
#[derive(Debug, Clone)]
pub struct ContentEntry {
    /// The name of the source.
    pub source: String,
    /// The name for clients.
    pub name: String,
    /// The name that the source uses.
    pub own_name: String,
    /// The MCP definition without the name, a JSON object.
    pub definition_json: String,
}

/// A request for a prompt, resource, completion or skill. It does not implement `Debug` because it can
/// contain the caller's token.
#[derive(Clone)]
pub struct GetContent<'a> {
    /// The id of the call.
    pub call_id: CallId,
    /// The caller.
    pub caller: &'a Caller,
    /// The name of the source.
    pub source: &'a str,
    /// The permit for the content.
    pub permit: &'a SignedPermit,
    /// The input of the policy decision, byte for byte: `{"name": …}` or `{"uri": …}`.
    pub decided: Bytes,
    /// The requested part of the content.
    pub wanted: ContentPart,
    /// The caller's bearer token, if the source needs it.
    pub caller_token: Option<&'a str>,
    /// The interaction that the client supports.
    pub interaction: Interaction<'a>,
}

/// A request to watch resources of one source for changes.
#[derive(Debug, Clone)]
pub struct WatchResources<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The name of the source.
    pub source: &'a str,
    /// The resources: the input of each policy decision, byte for byte `{"uri": …}`, with the permit to read the resource.
    pub resources: Vec<(Bytes, &'a SignedPermit)>,
    /// The caller's bearer token, if the source needs it.
    pub caller_token: Option<&'a str>,
}

/// The requested part of a prompt, resource or template.
#[derive(Debug, Clone)]
pub enum ContentPart {
    /// The prompt, filled in with these arguments, a JSON object.
    Prompt(Bytes),
    /// The contents of the resource.
    Resource,
    /// Completions of the value of an argument, given the values of other arguments.
    Completion {
        /// The name of the argument.
        argument: String,
        /// The beginning of the value.
        value: String,
        /// The values of other arguments, a JSON object.
        known: Bytes,
    },
    /// The entry of the skill whose SKILL.md is the resource.
    Skill,
    /// The direct children of the directory that is the resource, from this cursor of the server on.
    Directory(Option<String>),
}

/// The redacted response to [`GetContent`].
#[derive(Debug, Clone)]
pub struct ContentResult {
    /// The outcome.
    pub given: ContentOutcome,
    /// The `_meta` of the result of an MCP server, a JSON object, or empty if there is none.
    pub meta: Bytes,
    /// The facts about the result, for the audit record.
    pub facts: ResultFacts,
}

/// The outcome of a request for content.
#[derive(Debug, Clone)]
pub enum ContentOutcome {
    /// The MCP result, a JSON object.
    Result(String),
    /// There is no result, for this reason in words for the client.
    Nothing(String),
    /// There is no result, because an MCP server responded with this JSON-RPC error, a JSON object.
    Error(Bytes),
    /// The request waits for input of the client.
    InputRequired(Box<InputRequired>),
}

impl TryFrom<pb::ListContentResponse> for Content {
    type Error = InvalidMessage;

    fn try_from(listed: pb::ListContentResponse) -> Result<Self, Self::Error> {
        let entries = |entries: Vec<pb::ContentEntry>| {
            let entries = entries.into_iter().map(ContentEntry::try_from);
            entries.collect::<Result<_, _>>()
        };
        Ok(Self {
            version: listed.catalogue_version,
            sources: listed.sources.into_iter().map(Into::into).collect(),
            prompts: entries(listed.prompts)?,
            resources: entries(listed.resources)?,
            templates: entries(listed.resource_templates)?,
            skills: entries(listed.skills)?,
        })
    }
}

impl From<pb::ContentSource> for ContentSource {
    fn from(source: pb::ContentSource) -> Self {
        Self {
            name: source.name,
            kinds: [
                (source.prompts, OfferKind::Prompts),
                (source.resources, OfferKind::Resources),
            ]
            .into_iter()
            .filter_map(|(has, kind)| has.then_some(kind))
            .collect(),
            toolsets: source.toolsets,
            is_upstream: source.is_upstream,
            is_missing: source.is_missing,
            skills: source.skills.then_some(Skills {
                directories: source.directories,
            }),
        }
    }
}

impl From<&ContentSource> for pb::ContentSource {
    fn from(source: &ContentSource) -> Self {
        Self {
            name: source.name.clone(),
            prompts: source.kinds.contains(&OfferKind::Prompts),
            resources: source.kinds.contains(&OfferKind::Resources),
            toolsets: source.toolsets.clone(),
            is_upstream: source.is_upstream,
            is_missing: source.is_missing,
            skills: source.skills.is_some(),
            directories: source.skills.is_some_and(|skills| skills.directories),
        }
    }
}

impl TryFrom<pb::ContentEntry> for ContentEntry {
    type Error = InvalidMessage;

    fn try_from(entry: pb::ContentEntry) -> Result<Self, Self::Error> {
        Ok(Self {
            source: entry.source,
            name: entry.name,
            own_name: entry.own_name,
            definition_json: text(entry.definition_json, "content.definition_json")?,
        })
    }
}

impl From<GetContent<'_>> for pb::GetContentRequest {
    fn from(get: GetContent<'_>) -> Self {
        use pb::get_content_request as of;
        let wanted = match get.wanted {
            ContentPart::Prompt(arguments_json) => {
                of::Wanted::Prompt(of::Prompt { arguments_json })
            }
            ContentPart::Resource => of::Wanted::Resource(of::Resource {}),
            ContentPart::Completion {
                argument,
                value,
                known,
            } => of::Wanted::Completion(of::Completion {
                argument,
                value,
                known_json: known,
            }),
            ContentPart::Skill => of::Wanted::Skill(of::Skill {}),
            ContentPart::Directory(cursor) => of::Wanted::Directory(of::Directory { cursor }),
        };
        Self {
            call_id: get.call_id.to_string(),
            caller: Some(get.caller.into()),
            source: get.source.to_owned(),
            permit: Some(get.permit.into()),
            decided_json: get.decided,
            wanted: Some(wanted),
            interaction: Some(get.interaction.into()),
            caller_token: get.caller_token.unwrap_or_default().to_owned(),
        }
    }
}

impl From<WatchResources<'_>> for pb::WatchResourcesRequest {
    fn from(watch: WatchResources<'_>) -> Self {
        let resources = watch.resources.into_iter();
        let resources = resources.map(|(decided_json, permit)| pb::WatchedResource {
            decided_json,
            permit: Some(permit.into()),
        });
        Self {
            caller: Some(watch.caller.into()),
            source: watch.source.to_owned(),
            resources: resources.collect(),
            caller_token: watch.caller_token.unwrap_or_default().to_owned(),
        }
    }
}

impl TryFrom<pb::GetContentResponse> for ContentResult {
    type Error = InvalidMessage;

    fn try_from(answer: pb::GetContentResponse) -> Result<Self, Self::Error> {
        let facts = answer
            .facts
            .ok_or_else(|| InvalidMessage::field("content.facts", "is missing"))?;
        let result = text(answer.result_json, "content.result_json")?;
        Ok(Self {
            given: match answer.input_required {
                Some(waits) => ContentOutcome::InputRequired(Box::new(waits.try_into()?)),
                None if !answer.error_json.is_empty() => ContentOutcome::Error(answer.error_json),
                None if result.is_empty() => ContentOutcome::Nothing(answer.error),
                None => ContentOutcome::Result(result),
            },
            meta: answer.meta_json,
            facts: facts.try_into()?,
        })
    }
}
