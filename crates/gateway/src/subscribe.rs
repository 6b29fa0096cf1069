//! The methods `resources/subscribe` and `resources/unsubscribe` of the versions before 2026-07-28: choose the resources whose
//! changes the caller's stream reports.
//!
//! Subscriptions to conversations are stored by the memory service, all others by the gateway.
//!
//! A subscription to a conversation is not recorded as an access to the memory, because it releases nothing and does not reveal
//! whether the conversation exists. Reading a changed conversation is recorded.

use std::sync::Arc;

use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, ObjectMembers, RpcError};
use wardgate_rpc::client::{ConversationSubscriber, MemoryClient};

use crate::listen::{self, ListeningClient, ResourceWatcher, Subscriber};
use crate::memory::{self, ConversationUri, MemoryRejection, TEMPLATE};
use crate::post::Post;

/// A method that begins or ends a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionMethod {
    Begin,
    End,
}

impl SubscriptionMethod {
    /// Returns the method of this name.
    pub(crate) fn from_name(method: &str) -> Option<Self> {
        match method {
            listen::SUBSCRIBE => Some(Self::Begin),
            "resources/unsubscribe" => Some(Self::End),
            _ => None,
        }
    }

    pub(crate) async fn answer(
        self,
        watcher: &Arc<ResourceWatcher>,
        memory: Option<&MemoryClient>,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        version: Version,
    ) -> Result<McpResponse, RpcError> {
        let offered = watcher.discovery().offered_content(&post.view);
        if !offered.conversations && !offered.resources {
            return Err(RpcError::unknown_method(&request.method, version));
        }
        let params = ObjectMembers::of_params(request.raw_params())?;
        let uri = params.required_text("uri")?;
        let memory = memory.filter(|_| offered.conversations);
        let is_of_memory = !offered.resources || memory::is_uri(&uri);
        let Some(memory) = memory.filter(|_| is_of_memory) else {
            let who = ListeningClient::for_post(watcher, post, listen::SUBSCRIBE);
            let subscriber = Subscriber::for_post(post);
            match self {
                Self::Begin => listen::subscribe(&who, &subscriber, uri, version).await?,
                Self::End => listen::unsubscribe(&who, &subscriber, &uri).await?,
            }
            return Ok(McpResponse::empty(request.id));
        };
        let id = ConversationUri::id_of_whole(&uri).ok_or_else(|| {
            params.wrong(
                "uri",
                &format!("must match {TEMPLATE}, as listed by resources/list"),
            )
        })?;
        let session = ConversationSubscriber {
            caller: &post.caller,
            session: post.session_digest(),
        };
        let done = match self {
            Self::Begin => memory.subscribe(session, &id).await,
            Self::End => memory.unsubscribe(session, &id).await,
        };
        done.map_err(|error| MemoryRejection::from(error).error)?;
        Ok(McpResponse::empty(request.id))
    }
}
