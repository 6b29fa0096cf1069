//! Converts responses of the service into the wire format.

use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{Digest, OfferKind};
use wardgate_proto::toolrunner::v1 as pb;

use crate::content::{ContentLists, ListedContent};
use crate::get_content::{ContentAnswer, ContentOutcome};
use crate::loaded::{LoadedCatalogue, RunnableTool, SourceOffers};
use crate::switchboard::Switches;
use wardgate_catalogue::Toolset;

/// Returns the list of the tools in force. `version` is the version of the whole list, and `shown` that of the part
/// that callers are shown.
pub(super) fn tools(
    loaded: &LoadedCatalogue,
    switches: &Switches,
    version: Digest,
    shown: Digest,
) -> pb::ListToolsResponse {
    let tools = loaded.listed_tools().iter();
    let sources = loaded.source_offers();
    pb::ListToolsResponse {
        tools: tools
            .map(|tool| self::tool(tool, loaded, switches))
            .collect(),
        catalogue_version: version.to_wire(),
        toolsets: loaded.toolsets().iter().map(toolset).collect(),
        missing_upstreams: loaded.missing_upstreams().to_vec(),
        sources: sources.map(|of| source(of, loaded, switches)).collect(),
        shown_version: shown.to_wire(),
    }
}

fn tool(runnable: &RunnableTool, loaded: &LoadedCatalogue, switches: &Switches) -> pb::Tool {
    let tool = &runnable.tool;
    let (needed, alternatives) = tool.required_capabilities().to_wire();
    pb::Tool {
        facts: Some(tool.facts().into()),
        aliases: tool.aliases().iter().map(ToString::to_string).collect(),
        definition_json: tool.definition_json().clone(),
        time_limit: runnable.time_limit.try_into().ok(),
        toolsets: runnable.toolsets.clone(),
        needs_caller_token: tool.plan().needs_caller_token(),
        switches: (&runnable.switches(switches)).into(),
        may_be_task: loaded.may_be_task(runnable),
        required_capabilities_json: needed.into(),
        alternative_capabilities_json: alternatives.into_iter().map(Bytes::from).collect(),
    }
}

fn toolset(toolset: &Toolset) -> pb::Toolset {
    pb::Toolset {
        name: toolset.name.clone(),
        description: toolset.description.clone(),
    }
}

fn source(of: &SourceOffers, loaded: &LoadedCatalogue, switches: &Switches) -> pb::Source {
    let ttl = |kind| of.ttl(kind).map(Duration::try_into)?.ok();
    let offers = &of.offers;
    let tools = offers.tools.iter();
    let declared = loaded.capabilities(&offers.source);
    pb::Source {
        name: offers.source.clone(),
        prefix: offers.prefix.clone(),
        facts: offers.facts.iter().map(Into::into).collect(),
        tools: tools
            .map(|(own, name)| (own.clone(), name.to_string()))
            .collect(),
        switches: (&switches.of_source(&offers.source)).into(),
        instructions: of.instructions.clone(),
        tools_ttl: ttl(OfferKind::Tool),
        prompts_ttl: ttl(OfferKind::Prompts),
        resources_ttl: ttl(OfferKind::Resources),
        needs_caller_token: offers.exchanges_token,
        capabilities: declared.map(Into::into),
    }
}

/// Returns every prompt and resource of the catalogue of the given version.
pub(super) fn content(lists: &ContentLists, version: Digest) -> pb::ListContentResponse {
    let entries = |list: &[ListedContent]| list.iter().map(content_entry).collect();
    pb::ListContentResponse {
        catalogue_version: version.to_wire(),
        sources: lists.sources.iter().map(Into::into).collect(),
        prompts: entries(&lists.prompts),
        resources: entries(&lists.resources),
        resource_templates: entries(&lists.templates),
        skills: entries(&lists.skills),
    }
}

fn content_entry(listed: &ListedContent) -> pb::ContentEntry {
    pb::ContentEntry {
        source: listed.source.clone(),
        name: listed.name.clone(),
        own_name: listed.own_name.clone(),
        definition_json: listed.definition.clone(),
    }
}

impl From<ContentAnswer> for pb::GetContentResponse {
    fn from(ContentAnswer { outcome, facts }: ContentAnswer) -> Self {
        let mut response = Self::default();
        match outcome {
            ContentOutcome::Result { result, meta } => {
                response.result_json = result.into();
                response.meta_json = meta.into();
            }
            ContentOutcome::InputRequired(round) => {
                let required = round.into_input_required(facts.clone());
                response.input_required = Some(required.into());
            }
            ContentOutcome::Failure { text, error } => {
                response.error = text;
                response.error_json = error.into();
            }
        }
        response.facts = Some(facts.into());
        response
    }
}
