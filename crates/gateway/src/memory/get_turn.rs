//! The method `memory/get_turn`: the messages of one turn, complete or not, from which an interrupted turn can continue.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod, TurnId};
use wardgate_mcp_server::{ObjectMembers, RpcError};

use super::message::MessageView;
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};

pub(super) struct GetTurn {
    id: ConversationId,
    turn: TurnId,
}

impl MemoryOperation for GetTurn {
    const METHOD: MemoryMethod = MemoryMethod::GetTurn;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id", "turn_id"])?;
        Ok(Self {
            id: params.parse_required("conversation_id")?,
            turn: params.parse_required("turn_id")?,
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let found = handler
            .memory
            .get_turn(handler.of, &self.id, &self.turn)
            .await?;
        let Some(turn) = found else {
            return Ok(MemoryOutput {
                result: json!({ "state": "none", "messages": [] }).to_string(),
                conversation: None,
                seen: MessageCounts::default(),
                recall: None,
            });
        };
        Ok(MemoryOutput {
            result: json!({
                "state": turn.state.as_str().to_string(),
                "messages": MessageView::list(&turn.messages),
            })
            .to_string(),
            conversation: Some(turn.key),
            seen: MessageCounts::count(&turn.messages),
            recall: None,
        })
    }
}
