//! The memory of a conversation, accessed through the gateway's `memory/…` methods.
//!
//! Types that hold texts do not implement `Debug`, so that no text gets into a log.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use wardgate_json::parse_strict;
use wardgate_mcp::error_code::INVALID_PARAMS;

use crate::clients::{GatewayClient, GatewayFailure};
use crate::model::FunctionCall;

/// A conversation of the caller.
#[derive(Clone)]
pub(crate) struct Conversation {
    gateway: Arc<dyn GatewayClient>,
    id: String,
}

/// The role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    User,
    Assistant,
    Tool,
    System,
}

/// The source of a message's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageSource {
    Person,
    Model,
    Tool,
    Summary,
    Approval,
}

/// A message read from memory.
#[derive(Clone, Deserialize)]
pub(crate) struct StoredMessage {
    pub(crate) role: Role,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default, rename = "message_id")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) source: Option<MessageSource>,
    #[serde(default)]
    pub(crate) author: String,
    #[serde(default)]
    pub(crate) tool_calls: Vec<StoredCall>,
    #[serde(default)]
    pub(crate) tool_call_id: String,
    #[serde(default)]
    pub(crate) is_error: bool,
    #[serde(default)]
    pub(crate) withheld: bool,
    #[serde(default)]
    pub(crate) turn_id: String,
    #[serde(default)]
    pub(crate) position: u64,
}

/// A function call requested by a model.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredCall {
    id: String,
    name: String,
    /// The arguments. Memory accepts only objects, so arguments of any other form are stored as text under [`UNREADABLE`] and are
    /// judged the same way when they are read back.
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// The name of the only member that represents arguments that are not an object. No tool has an argument with an empty name.
const UNREADABLE: &str = "";

impl From<&FunctionCall> for StoredCall {
    fn from(call: &FunctionCall) -> Self {
        let arguments = match parse_strict(call.arguments.as_bytes()) {
            Ok(Value::Object(arguments)) => arguments,
            _ => Map::from_iter([(UNREADABLE.to_owned(), storable(&call.arguments).into())]),
        };
        Self {
            id: storable(&call.id),
            name: storable(&call.name),
            arguments,
        }
    }
}

impl From<StoredCall> for FunctionCall {
    fn from(call: StoredCall) -> Self {
        let unreadable = call.arguments.get(UNREADABLE).and_then(Value::as_str);
        let arguments = match unreadable.filter(|_| call.arguments.len() == 1) {
            Some(text) => text.to_owned(),
            None => Value::Object(call.arguments).to_string(),
        };
        Self {
            id: call.id,
            name: call.name,
            arguments,
        }
    }
}

/// Replaces NUL characters, which the gateway rejects even in escaped form.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A message to be added to memory.
#[derive(Clone, Serialize)]
pub(crate) struct NewMessage {
    pub(crate) message_id: String,
    pub(crate) role: Role,
    pub(crate) source: MessageSource,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) author: String,
    pub(crate) content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<StoredCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<AnsweredCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) covers_to: Option<u64>,
}

impl NewMessage {
    pub(crate) fn text(message_id: &str, role: Role, source: MessageSource, content: &str) -> Self {
        Self {
            message_id: message_id.to_owned(),
            role,
            source,
            author: String::new(),
            content: storable(content),
            tool_calls: Vec::new(),
            tool: None,
            covers_to: None,
        }
    }
}

/// The call that a tool result answers.
#[derive(Clone, Serialize)]
pub(crate) struct AnsweredCall {
    pub(crate) call_id: String,
    /// The gateway's name of the tool.
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) is_error: bool,
}

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnState {
    None,
    Open,
    Complete,
    Abandoned,
}

/// The part of earlier turns that the model may see.
#[derive(Default, Deserialize)]
pub(crate) struct Window {
    pub(crate) messages: Vec<StoredMessage>,
    #[serde(default)]
    pub(crate) summary: Option<Summary>,
    /// Number of messages before the window that no summary covers.
    #[serde(default)]
    pub(crate) uncovered: u64,
}

#[derive(Deserialize)]
pub(crate) struct Summary {
    pub(crate) content: String,
}

/// The messages and the state of one turn.
#[derive(Deserialize)]
pub(crate) struct StoredTurn {
    pub(crate) state: TurnState,
    #[serde(default)]
    pub(crate) messages: Vec<StoredMessage>,
}

impl Conversation {
    /// Returns a handle to the conversation `id` without checking that it exists.
    pub(crate) fn with_id(gateway: Arc<dyn GatewayClient>, id: &str) -> Self {
        Self {
            gateway,
            id: id.to_owned(),
        }
    }

    /// Returns the conversation `id`, creating it if it does not exist. Without an id, creates a new conversation.
    pub(crate) async fn get_or_create(
        gateway: Arc<dyn GatewayClient>,
        id: Option<&str>,
    ) -> Result<Self, GatewayFailure> {
        #[derive(Deserialize)]
        struct CreatedConversation {
            conversation_id: String,
        }
        let params = match id {
            Some(id) => json!({"conversation_id": id}),
            None => json!({}),
        };
        let created: CreatedConversation =
            parse_result(gateway.memory("memory/get_or_create", params).await?)?;
        Ok(Self {
            gateway,
            id: created.conversation_id,
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the most recent messages that fit the limits. 0 tokens means no limit on tokens.
    pub(crate) async fn window(
        &self,
        messages: u32,
        tokens: u32,
    ) -> Result<Window, GatewayFailure> {
        let mut params = json!({"conversation_id": self.id, "max_messages": messages});
        if tokens > 0 {
            params["max_tokens"] = tokens.into();
        }
        parse_result(self.gateway.memory("memory/get_context", params).await?)
    }

    /// Returns the messages and the state of a turn. In a conversation that does not exist, every turn is empty.
    pub(crate) async fn turn(&self, turn: &str) -> Result<StoredTurn, GatewayFailure> {
        let params = json!({"conversation_id": self.id, "turn_id": turn});
        match self.gateway.memory("memory/get_turn", params).await {
            Err(GatewayFailure::Refused {
                code: INVALID_PARAMS,
                ..
            }) => Ok(StoredTurn {
                state: TurnState::None,
                messages: Vec::new(),
            }),
            answer => parse_result(answer?),
        }
    }

    /// Appends messages to a turn: either all or none.
    pub(crate) async fn add(
        &self,
        messages: &[NewMessage],
        turn: &str,
        state: TurnState,
    ) -> Result<(), GatewayFailure> {
        let params = json!({
            "conversation_id": self.id,
            "messages": messages,
            "turn": {"id": turn, "state": state},
        });
        self.gateway.memory("memory/add_message", params).await?;
        Ok(())
    }

    /// Appends one message without a turn id, which memory treats as a complete turn.
    pub(crate) async fn add_alone(&self, message: &NewMessage) -> Result<(), GatewayFailure> {
        let params = json!({"conversation_id": self.id, "messages": [message]});
        self.gateway.memory("memory/add_message", params).await?;
        Ok(())
    }
}

fn parse_result<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, GatewayFailure> {
    serde_json::from_value(value).map_err(|_| GatewayFailure::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_back_as_the_model_wrote_them_whatever_that_was() {
        for (written, stored) in [
            (r#"{"b":1,"a":[2]}"#, r#"{"b":1,"a":[2]}"#),
            (r#"{"a": "#, r#"{"":"{\"a\": "}"#),
            (r#"{"a":1,"a":2}"#, r#"{"":"{\"a\":1,\"a\":2}"}"#),
            ("[1]", r#"{"":"[1]"}"#),
            ("", r#"{"":""}"#),
        ] {
            let call = FunctionCall {
                id: "c".to_owned(),
                name: "t".to_owned(),
                arguments: written.to_owned(),
            };
            let stored_call = StoredCall::from(&call);
            assert_eq!(
                Value::Object(stored_call.arguments.clone()).to_string(),
                stored
            );
            assert_eq!(FunctionCall::from(stored_call), call);
        }
        let message = NewMessage::text("m", Role::Assistant, MessageSource::Model, "a\0b");
        assert_eq!(message.content, "a\u{fffd}b");
    }
}
