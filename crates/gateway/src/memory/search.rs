//! The method `memory/search`: those of the caller's messages that contain every word of the query.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::message::MessageView;
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};

/// Maximum number of results. The memory service returns no more at once.
const MAX_HITS: u32 = 100;

pub(super) struct SearchMessages {
    query: String,
    /// The conversation to search, or `None` for all of them.
    id: Option<ConversationId>,
    limit: u32,
}

impl MemoryOperation for SearchMessages {
    const METHOD: MemoryMethod = MemoryMethod::Search;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["query", "conversation_id", "limit"])?;
        Ok(Self {
            query: params.required_text("query")?,
            id: params.parse_optional("conversation_id")?,
            limit: params.count("limit", MAX_HITS)?.unwrap_or(20),
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let hits = handler
            .memory
            .search(handler.of, &self.query, self.id.as_ref(), self.limit)
            .await?;
        let shown: Vec<_> = hits
            .iter()
            .map(|hit| {
                json!({
                    "conversation_id": hit.conversation_id.as_str(),
                    "message": MessageView::new(&hit.message),
                })
            })
            .collect();
        Ok(MemoryOutput {
            result: json!({ "hits": shown }).to_string(),
            conversation: None,
            seen: MessageCounts::count(hits.iter().map(|hit| &hit.message)),
            recall: None,
        })
    }
}
