//! The method `resources/read` for a conversation. Owners also use it to export their conversations.

use serde_json::json;
use wardgate_domain::{MemoryMethod, Reason, Status};
use wardgate_mcp_server::{ObjectMembers, RpcError};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::ConversationSelector;

use super::list_resources::private;
use super::message::MessageView;
use super::uri::ConversationUri;
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};

/// Maximum number of messages in one result.
const PAGE: u32 = 500;

pub(super) struct ReadResource {
    uri: ConversationUri,
}

impl MemoryOperation for ReadResource {
    const METHOD: MemoryMethod = MemoryMethod::Read;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        Ok(Self {
            uri: params.parse_required("uri")?,
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let page = handler
            .memory
            .read_conversation(
                handler.of,
                ConversationSelector::Own(&self.uri.id),
                self.uri.after,
                PAGE,
            )
            .await
            .map_err(|error| match error.reason() {
                ErrorReason::UnknownConversation => MemoryRejection::new(
                    Status::InvalidArguments,
                    Reason::UNKNOWN_CONVERSATION,
                    RpcError::unknown_resource(handler.version),
                ),
                _ => error.into(),
            })?;
        let conversation = &page.conversation;
        let mut text = json!({
            "conversation_id": conversation.id.as_str(),
            "key": conversation.key.to_string(),
            "created_at": conversation.created_at.to_string(),
            "updated_at": conversation.updated_at.to_string(),
            "shared": conversation.shared,
            "held": conversation.held,
            "messages": MessageView::list(&page.messages),
        });
        if let Some(last) = page.messages.last().filter(|_| page.more) {
            let next = ConversationUri {
                after: last.position,
                ..self.uri.clone()
            };
            text["next"] = next.write().into();
        }
        let mut result = json!({
            "contents": [{
                "uri": self.uri.write(),
                "mimeType": "application/json",
                "text": text.to_string(),
            }],
        });
        private(&mut result, handler.version);
        Ok(MemoryOutput {
            result: result.to_string(),
            conversation: Some(conversation.key),
            seen: MessageCounts::count(&page.messages),
            recall: page.recall,
        })
    }
}
