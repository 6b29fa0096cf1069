//! Prompts, resources and skills that sources offer: listed as far as the caller may have them, given by decision and on record.
//!
//! ```text
//!  tool-runner ──▶ index: every prompt, resource and template, by the names clients know
//!                    │
//!  */list ─────────▶ list: what the policy lets the caller have, a page at a time
//!  prompts/get    ─┐
//!  resources/read ─┼▶ get: find ──▶ authorise ──▶ run ──▶ the record ──receipt──▶ answer
//!  completion/*   ─┤
//!  skills/get, … ──┘
//! ```
//!
//! What a caller may not have is answered like what there is not.

mod content_request;
mod get;
mod list;
mod reader;
mod resource;
mod skill;

use std::sync::Arc;

use wardgate_domain::{MemoryMethod, OfferKind};
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, RpcError};
use wardgate_resilience::concurrency::Slot;
use wardgate_rpc::client::Skills;

pub(crate) use self::content_request::ContentRequest;
use crate::Gateway;
use crate::catalogue::View;
use crate::content_method::ContentMethod;
use crate::memory;
use crate::post::Post;

pub(crate) use self::resource::{ResolvedResource, resolve_resource};

/// What there is in a view, whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferedContent {
    pub(crate) prompts: bool,
    /// Of sources; conversations aside.
    pub(crate) resources: bool,
    /// Conversations of the memory.
    pub(crate) conversations: bool,
    pub(crate) skills: Option<Skills>,
}

/// What there is, as last heard.
pub(crate) fn offered(gateway: &Gateway, view: &View) -> OfferedContent {
    let catalogue = gateway.catalogue().current();
    let offers = |kind| {
        let catalogue = catalogue.as_ref();
        catalogue.is_some_and(|catalogue| catalogue.content().offers(kind, view))
    };
    OfferedContent {
        prompts: offers(OfferKind::Prompts),
        resources: offers(OfferKind::Resources),
        conversations: gateway.memory().is_some() && view.has_conversations(),
        skills: catalogue.as_ref().and_then(|it| it.content().skills(view)),
    }
}

/// Answers `request`. A method for which there is nothing is none.
pub(crate) async fn answer(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    (version, method): (Version, ContentMethod),
    slot: &mut Option<Slot>,
) -> Result<McpResponse, RpcError> {
    let offered = offered(gateway, &post.view);
    let remembers = offered.conversations;
    let unknown = || RpcError::unknown_method(method.as_str(), version);
    match method {
        ContentMethod::ListPrompts if offered.prompts => {
            list::prompts(gateway, post, request, version).await
        }
        ContentMethod::ListResources if offered.resources => {
            list::resources(gateway, post, request, version).await
        }
        ContentMethod::ListResources if remembers => {
            memory::answer(gateway, post, request, version, MemoryMethod::List).await
        }
        ContentMethod::ListTemplates if offered.resources || remembers => {
            list::templates(gateway, post, request, version).await
        }
        ContentMethod::ReadResource
            if remembers && (!offered.resources || memory::is_about(request.params.uri)) =>
        {
            memory::answer(gateway, post, request, version, MemoryMethod::Read).await
        }
        ContentMethod::ListSkills | ContentMethod::GetSkill
            if offered.skills.is_none() || !version.is_modern() =>
        {
            Err(unknown())
        }
        ContentMethod::ReadDirectory
            if !offered.skills.is_some_and(|skills| skills.directories) || !version.is_modern() =>
        {
            Err(unknown())
        }
        ContentMethod::ListSkills => list::skills(gateway, post, request, version).await,
        ContentMethod::GetPrompt if !offered.prompts => Err(unknown()),
        ContentMethod::ReadResource if !offered.resources => Err(unknown()),
        ContentMethod::Complete if !(offered.prompts || offered.resources) => Err(unknown()),
        ContentMethod::GetPrompt
        | ContentMethod::ReadResource
        | ContentMethod::Complete
        | ContentMethod::GetSkill
        | ContentMethod::ReadDirectory => {
            let context = post.request_context(request, version, slot.take());
            let content_request =
                ContentRequest::from_request(method, request, post.protocol(version))?
                    .with_source_cursor(gateway, &context)?;
            get::get(gateway, post, request, context, content_request).await
        }
        ContentMethod::ListPrompts
        | ContentMethod::ListResources
        | ContentMethod::ListTemplates => Err(unknown()),
    }
}
