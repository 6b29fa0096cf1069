//! `memory/get_turn`: what is there of one turn, complete or not: from where an interrupted one goes on.

use serde_json::json;
use wardgate_domain::{ConversationId, MemoryMethod, TurnId};

use super::message::Shown;
use super::{Desk, Done, Endpoint, Fields, MemoryRejection, Seen};
use crate::reply::RpcError;

pub(super) struct GetTurn {
    id: ConversationId,
    turn: TurnId,
}

impl Endpoint for GetTurn {
    const METHOD: MemoryMethod = MemoryMethod::GetTurn;

    fn read(params: &Fields<'_>) -> Result<Self, RpcError> {
        params.only(&["conversation_id", "turn_id"])?;
        Ok(Self {
            id: params.required("conversation_id")?,
            turn: params.required("turn_id")?,
        })
    }

    async fn run(&self, desk: &Desk<'_>) -> Result<Done, MemoryRejection> {
        let found = desk.memory.get_turn(desk.of, &self.id, &self.turn).await?;
        let Some(turn) = found else {
            return Ok(Done {
                result: json!({ "state": "none", "messages": [] }).to_string(),
                conversation: None,
                seen: Seen::default(),
            });
        };
        Ok(Done {
            result: json!({
                "state": turn.state.as_str().to_string(),
                "messages": Shown::all(&turn.messages),
            })
            .to_string(),
            conversation: Some(turn.key),
            seen: Seen::of(&turn.messages),
        })
    }
}
