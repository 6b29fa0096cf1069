//! The method `memory/clear`: erases all messages of a conversation, but keeps the conversation.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection};

pub(super) struct ClearConversation {
    id: ConversationId,
}

impl MemoryOperation for ClearConversation {
    const METHOD: MemoryMethod = MemoryMethod::Clear;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id"])?;
        Ok(Self {
            id: params.parse_required("conversation_id")?,
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let key = handler.memory.clear(handler.of, &self.id).await?;
        let result = json!({ "status": "success", "conversation_id": self.id.as_str() });
        Ok(MemoryOutput::about(key, &result))
    }
}
