//! Converts requests of the wire format into the checked types that the rest of the service works on.

use std::sync::Arc;

use bytes::Bytes;
use wardgate_domain::{BearerToken, Caller, InvalidId, InvalidMessage};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::Wanted;
use wardgate_rpc::client::{CallTool, PassthroughMeta};

use crate::call::CallRequest;
use crate::content::{CompletionRequest, DecisionSubject};
use crate::get_content::{ContentQuery, ContentTarget};
use crate::interaction::UncheckedInteraction;
use crate::watch_resources::{MAX_RESOURCES, WatchRequest, WatchedResource};

impl TryFrom<pb::CallToolRequest> for CallRequest {
    type Error = InvalidMessage;

    fn try_from(request: pb::CallToolRequest) -> Result<Self, Self::Error> {
        let id = call_id(&request.call_id)?;
        let mut caller = caller(request.caller)?;
        if !request.caller_token.is_empty() {
            caller = caller.with_token(BearerToken::new(&request.caller_token));
        }
        Ok(Self {
            id,
            caller: Arc::new(caller),
            tool: request.tool,
            arguments: request.arguments_json,
            // An empty permit counts as no permit.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
            caller_token: present(request.caller_token),
            idempotency_key: present(request.idempotency_key),
            interaction: request.interaction.map(Into::into),
        })
    }
}

impl From<CallTool<'_>> for CallRequest {
    fn from(call: CallTool<'_>) -> Self {
        let interaction = call.interaction;
        let capabilities = interaction.capabilities.unwrap_or_default();
        Self {
            id: call.call_id,
            caller: Arc::clone(call.caller),
            tool: call.tool.to_string(),
            arguments: call.arguments,
            permit: Some(call.permit.clone()),
            caller_token: call.caller_token.map(str::to_owned),
            idempotency_key: call.idempotency_key.map(str::to_owned),
            interaction: Some(UncheckedInteraction {
                capabilities: Bytes::copy_from_slice(capabilities.as_bytes()),
                log_level: interaction.log_level.unwrap_or_default().to_owned(),
                resumption: interaction.resumption,
                passthrough: interaction.passthrough,
                is_legacy: interaction.is_legacy,
            }),
        }
    }
}

impl TryFrom<pb::GetContentRequest> for ContentQuery {
    type Error = InvalidMessage;

    fn try_from(request: pb::GetContentRequest) -> Result<Self, Self::Error> {
        let wanted = request.wanted;
        let wanted = wanted.ok_or_else(|| InvalidMessage::field("wanted", "is missing"))?;
        let target = content_target(&request.decided_json, wanted)
            .ok_or_else(|| InvalidMessage::field("decided_json", "does not match `wanted`"))?;
        let interaction = request.interaction.map(UncheckedInteraction::from);
        Ok(Self {
            id: call_id(&request.call_id)?,
            caller: caller(request.caller)?,
            source: request.source,
            // An empty permit counts as no permit.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
            decided: request.decided_json,
            target,
            caller_token: present(request.caller_token),
            interaction: interaction.map(TryInto::try_into).transpose()?,
        })
    }
}

fn content_target(decided: &[u8], wanted: Wanted) -> Option<ContentTarget> {
    Some(match (DecisionSubject::parse(decided)?, wanted) {
        (of, Wanted::Completion(wanted)) => ContentTarget::Completion {
            of,
            wanted: CompletionRequest {
                argument: wanted.argument,
                value: wanted.value,
                known: wanted.known_json,
            },
        },
        (DecisionSubject::Prompt(name), Wanted::Prompt(wanted)) => ContentTarget::Prompt {
            name,
            arguments: wanted.arguments_json,
        },
        (DecisionSubject::Resource(uri), Wanted::Resource(_)) => ContentTarget::Resource { uri },
        (DecisionSubject::Resource(uri), Wanted::Skill(_)) => ContentTarget::Skill { uri },
        (DecisionSubject::Resource(uri), Wanted::Directory(wanted)) => ContentTarget::Directory {
            uri,
            cursor: wanted.cursor,
        },
        (DecisionSubject::Prompt(_), _) | (DecisionSubject::Resource(_), Wanted::Prompt(_)) => {
            return None;
        }
    })
}

impl TryFrom<pb::WatchResourcesRequest> for WatchRequest {
    type Error = InvalidMessage;

    fn try_from(request: pb::WatchResourcesRequest) -> Result<Self, Self::Error> {
        let caller = request.caller;
        let caller = caller.ok_or_else(|| InvalidMessage::field("caller", "is missing"))?;
        if request.resources.len() > MAX_RESOURCES {
            return Err(InvalidMessage::field(
                "resources",
                "contains more than 256 entries",
            ));
        }
        let resources = request.resources.into_iter();
        Ok(Self {
            caller: caller.try_into()?,
            source: request.source,
            resources: resources.map(TryInto::try_into).collect::<Result<_, _>>()?,
            token: present(request.caller_token),
        })
    }
}

impl TryFrom<pb::WatchedResource> for WatchedResource {
    type Error = InvalidMessage;

    fn try_from(resource: pb::WatchedResource) -> Result<Self, Self::Error> {
        match DecisionSubject::parse(&resource.decided_json) {
            Some(DecisionSubject::Resource(uri)) => Ok(Self {
                uri,
                decided: resource.decided_json,
                // An empty permit counts as no permit.
                permit: resource.permit.and_then(|permit| permit.try_into().ok()),
            }),
            Some(DecisionSubject::Prompt(_)) | None => {
                let problem = "does not name a resource";
                Err(InvalidMessage::field("resources.decided_json", problem))
            }
        }
    }
}

impl From<pb::Interaction> for UncheckedInteraction {
    fn from(interaction: pb::Interaction) -> Self {
        Self {
            capabilities: interaction.client_capabilities_json,
            log_level: interaction.log_level,
            resumption: interaction.resumption.map(Into::into),
            passthrough: PassthroughMeta {
                meta: interaction.meta_json,
                unsolicited_responses: interaction.unasked_responses_json,
            },
            is_legacy: interaction.legacy,
        }
    }
}

/// Returns the state with which a request resumes a call, or `None` if it does not resume one.
pub(super) fn resumed_state(interaction: Option<&pb::Interaction>) -> Option<&[u8]> {
    let resumption = interaction?.resumption.as_ref();
    resumption.map(|resumption| &*resumption.state)
}

fn call_id(text: &str) -> Result<wardgate_domain::CallId, InvalidMessage> {
    text.parse()
        .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))
}

fn caller(caller: Option<wardgate_proto::common::v1::Caller>) -> Result<Caller, InvalidMessage> {
    let caller = caller.ok_or_else(|| InvalidMessage::field("caller", "is missing"))?;
    caller.try_into()
}

/// Returns `None` for an empty text.
fn present(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
