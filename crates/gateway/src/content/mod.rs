//! Prompts, resources and skills that sources offer. Lists show what the caller may use; each use is authorized and recorded.
//!
//! ```text
//!  tool-runner ──▶ index: every prompt, resource and template, by the names clients know
//!                    │
//!  */list ─────────▶ list: what the caller may use, a page at a time
//!  prompts/get    ─┐
//!  resources/read ─┼▶ get: find ──▶ authorize ──▶ run ──▶ the record ──receipt──▶ answer
//!  completion/*   ─┤
//!  skills/get, … ──┘
//! ```
//!
//! A request for content that the caller may not use gets the same answer as one for content that does not exist.

mod content_request;
mod get;
mod list;
mod reader;
mod resource;
mod skill;

use std::sync::Arc;

use wardgate_domain::MemoryMethod;
use wardgate_mcp::Version;
use wardgate_mcp_server::{ContentMethod, JsonRpcRequest, McpResponse, RpcError};
use wardgate_resilience::concurrency::Slot;

pub(crate) use self::content_request::ContentRequest;
use crate::governed_call::CallPipeline;
use crate::memory::{self, ConversationMemory};
use crate::post::Post;

pub(crate) use self::resource::{ResolvedResource, resolve_resource};

/// Answers `request`. A method for which the view has no content is unknown.
pub(crate) async fn answer(
    pipeline: &Arc<CallPipeline>,
    memory: Option<&Arc<ConversationMemory>>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
    method: ContentMethod,
    slot: &mut Option<Slot>,
) -> Result<McpResponse, RpcError> {
    let discovery = &*pipeline.services().discovery;
    let offered = discovery.offered_content(&post.view);
    let memory = memory.filter(|_| offered.conversations);
    let unknown = || RpcError::unknown_method(method.as_str(), version);
    match method {
        ContentMethod::ListPrompts if offered.prompts => {
            list::prompts(discovery, post, request, version).await
        }
        ContentMethod::ListResources if offered.resources => {
            list::resources(discovery, memory, post, request, version).await
        }
        ContentMethod::ListResources if let Some(memory) = memory => {
            memory
                .answer(post, request, version, MemoryMethod::List)
                .await
        }
        ContentMethod::ListTemplates if offered.resources || memory.is_some() => {
            list::templates(discovery, memory.is_some(), post, request, version).await
        }
        ContentMethod::ReadResource
            if let Some(memory) = memory
                && (!offered.resources || memory::is_about(request.params.uri)) =>
        {
            memory
                .answer(post, request, version, MemoryMethod::Read)
                .await
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
        ContentMethod::ListSkills => list::skills(discovery, post, request, version).await,
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
                    .with_source_cursor(&pipeline.services().sealer, &context)?;
            get::get(pipeline, post, request, context, content_request).await
        }
        ContentMethod::ListPrompts
        | ContentMethod::ListResources
        | ContentMethod::ListTemplates => Err(unknown()),
    }
}
