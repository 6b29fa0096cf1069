//! The method `memory/get_context`: what a model needs of a conversation. An unknown conversation has an empty context.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::message::MessageView;
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};

/// Maximum number of messages. The memory service returns no more at once.
const MAX_MESSAGES: u32 = 500;

pub(super) struct GetContext {
    id: ConversationId,
    max_messages: u32,
    /// Maximum number of tokens, or 0 for no limit.
    max_tokens: u32,
}

impl MemoryOperation for GetContext {
    const METHOD: MemoryMethod = MemoryMethod::GetContext;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id", "max_messages", "max_tokens"])?;
        Ok(Self {
            id: params.parse_required("conversation_id")?,
            max_messages: params.count("max_messages", MAX_MESSAGES)?.unwrap_or(20),
            max_tokens: params.count("max_tokens", u32::MAX)?.unwrap_or(0),
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let window = handler
            .memory
            .get_context(handler.of, &self.id, self.max_messages, self.max_tokens)
            .await?;
        let mut result = json!({
            "messages": MessageView::list(&window.messages),
            "uncovered": window.uncovered,
        });
        if let Some(summary) = &window.summary {
            result["summary"] = json!({
                "content": summary.content,
                "covers_to": summary.covers_to,
                "withheld": summary.withheld,
            });
        }
        Ok(MemoryOutput {
            result: result.to_string(),
            conversation: window.key,
            seen: MessageCounts::count(window.messages.iter().chain(&window.summary)),
            recall: None,
        })
    }
}
