//! `memory/delete`: erases the conversation; the record keeps that it was.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod};

use super::{Desk, Done, Endpoint, Fields, MemoryRejection};
use crate::reply::RpcError;

pub(super) struct Delete {
    id: ConversationId,
}

impl Endpoint for Delete {
    const METHOD: MemoryMethod = MemoryMethod::Delete;

    fn read(params: &Fields<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id"])?;
        Ok(Self {
            id: params.required("conversation_id")?,
        })
    }

    async fn run(&self, desk: &Desk<'_>) -> Result<Done, MemoryRejection> {
        let key = desk.memory.delete(desk.of, &self.id).await?;
        let result = json!({ "status": "success", "conversation_id": self.id.as_str() });
        Ok(Done::about(key, &result))
    }
}
