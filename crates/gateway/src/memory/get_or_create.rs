//! The method `memory/get_or_create`: the caller's conversation with an id, which is created if it does not exist.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection};

pub(super) struct GetOrCreate {
    /// The id, or `None` for a new conversation.
    id: Option<ConversationId>,
}

impl MemoryOperation for GetOrCreate {
    const METHOD: MemoryMethod = MemoryMethod::GetOrCreate;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id"])?;
        Ok(Self {
            id: params.parse_optional("conversation_id")?,
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let (conversation, created) = handler
            .memory
            .get_or_create(handler.of, self.id.as_ref())
            .await?;
        let result = json!({ "conversation_id": conversation.id.as_str(), "created": created });
        Ok(MemoryOutput::about(conversation.key, &result))
    }
}
