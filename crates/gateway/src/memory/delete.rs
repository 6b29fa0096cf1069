//! The method `memory/delete`: erases a conversation. The audit record of it remains.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection};

pub(super) struct DeleteConversation {
    id: ConversationId,
}

impl MemoryOperation for DeleteConversation {
    const METHOD: MemoryMethod = MemoryMethod::Delete;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id"])?;
        Ok(Self {
            id: params.parse_required("conversation_id")?,
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let key = handler.memory.delete(handler.of, &self.id).await?;
        let result = json!({ "status": "success", "conversation_id": self.id.as_str() });
        Ok(MemoryOutput::about(key, &result))
    }
}
