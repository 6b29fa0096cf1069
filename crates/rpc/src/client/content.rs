//! Prompts and resources, as the tool-runner's callers see them.

use bytes::Bytes;
use wardgate_domain::{CallId, Caller, InvalidMessage, OfferKind, SignedPermit};
use wardgate_proto::toolrunner::v1 as pb;

use super::interaction::text;
use super::{InputRequired, Interaction, ResultFacts};

/// Every prompt and resource, with the sources they are of.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// Of the catalogue.
    pub version: Bytes,
    /// What has any.
    pub sources: Vec<ContentSource>,
    /// In the order of their names.
    pub prompts: Vec<ContentEntry>,
    /// In the order of their URIs.
    pub resources: Vec<ContentEntry>,
    /// In the order of their texts.
    pub templates: Vec<ContentEntry>,
    /// In the order of the URIs of their SKILL.md.
    pub skills: Vec<ContentEntry>,
}

/// A source of prompts or resources.
#[derive(Debug, Clone)]
pub struct ContentSource {
    /// Its name.
    pub name: String,
    /// Whether it has prompts, resources or both, now or when it answers again.
    pub kinds: Vec<OfferKind>,
    /// The toolsets they are in.
    pub toolsets: Vec<String>,
    /// It is an MCP server: clients know its resources by URIs that name it.
    pub is_upstream: bool,
    /// It does not answer.
    pub is_missing: bool,
    /// It has skills, and they are offered.
    pub skills: Option<Skills>,
}

/// What a source has of the skills extension (SEP-2640).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skills {
    /// It reads directories of resources.
    pub directories: bool,
}

/// A prompt, resource, template or skill.
#[derive(Debug, Clone)]
pub struct ContentEntry {
    /// Name of its source.
    pub source: String,
    /// What clients call it.
    pub name: String,
    /// What the source calls it.
    pub own_name: String,
    /// The MCP definition without that name, a JSON object.
    pub definition_json: String,
}

/// What to get.
/// It is no `Debug`: it can hold the caller's token.
#[derive(Clone)]
pub struct GetContent<'a> {
    /// Its id.
    pub call_id: CallId,
    /// Who asks.
    pub caller: &'a Caller,
    /// Name of the source.
    pub source: &'a str,
    /// The right to it.
    pub permit: &'a SignedPermit,
    /// What the permit was decided on, byte for byte: `{"name": …}` or `{"uri": …}`.
    pub decided: Bytes,
    /// What is wanted of that.
    pub wanted: ContentPart,
    /// The caller's bearer token, only for a source that needs it.
    pub caller_token: Option<&'a str>,
    /// What the client can take part in.
    pub interaction: Interaction<'a>,
}

/// Resources of one source to hear of when they change.
#[derive(Debug, Clone)]
pub struct WatchResources<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Name of the source.
    pub source: &'a str,
    /// What each permit was decided on, byte for byte `{"uri": …}`, with the right to read it.
    pub resources: Vec<(Bytes, &'a SignedPermit)>,
    /// The caller's own, only where the source needs it.
    pub caller_token: Option<&'a str>,
}

/// What is wanted of a prompt, resource or template.
#[derive(Debug, Clone)]
pub enum ContentPart {
    /// The prompt, filled in with these arguments, one JSON object.
    Prompt(Bytes),
    /// The resource's contents.
    Resource,
    /// How `value` of an argument may go on where these others, one JSON object, are known.
    Completion {
        /// Its name.
        argument: String,
        /// What is written so far.
        value: String,
        /// One JSON object.
        known: Bytes,
    },
    /// The entry of the skill whose SKILL.md the resource is.
    Skill,
    /// What is directly in the directory that the resource is, from the server's own cursor on.
    Directory(Option<String>),
}

/// What came of it, redacted.
#[derive(Debug, Clone)]
pub struct ContentResult {
    /// What is given.
    pub given: ContentOutcome,
    /// The `_meta` of an MCP server's result, a JSON object; empty when there is none.
    pub meta: Bytes,
    /// What the record says of it.
    pub facts: ResultFacts,
}

/// What is given of a prompt or resource.
#[derive(Debug, Clone)]
pub enum ContentOutcome {
    /// The MCP result, a JSON object.
    Result(String),
    /// None; why, in words for the client.
    Nothing(String),
    /// None: an MCP server answered with this JSON-RPC error, one JSON object.
    Error(Bytes),
    /// Not yet: it waits for the client.
    InputRequired(InputRequired),
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
                Some(waits) => ContentOutcome::InputRequired(waits.try_into()?),
                None if !answer.error_json.is_empty() => ContentOutcome::Error(answer.error_json),
                None if result.is_empty() => ContentOutcome::Nothing(answer.error),
                None => ContentOutcome::Result(result),
            },
            meta: answer.meta_json,
            facts: facts.try_into()?,
        })
    }
}
