//! The method `memory/add_message`: adds one message, or several at once.

use std::sync::Arc;

use serde_json::{Value, json};
use wardgate_domain::{
    AnsweredCall, ConversationId, MemoryMethod, Message, NewMessage, Reason, Status, ToolFacts,
    TurnId, TurnState,
};
use wardgate_mcp_server::{ObjectMembers, RpcError};
use wardgate_rpc::client::MessageBatch;

use super::message::{FIELDS, SubmittedMessage, SubmittedToolCall};
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};
use crate::catalogue::{self, Tool};

pub(super) struct AddMessage {
    id: ConversationId,
    turn: Option<(TurnId, TurnState)>,
    messages: Vec<SubmittedMessage>,
    /// Whether the message was sent by itself instead of in a list. The result has the same form.
    alone: bool,
}

impl MemoryOperation for AddMessage {
    const METHOD: MemoryMethod = MemoryMethod::AddMessage;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        let turn = params.object("turn")?.as_ref().map(turn).transpose()?;
        let of_list = ["conversation_id", "turn", "messages"];
        let list = params.objects("messages")?;
        let messages = if let Some(list) = &list {
            params.only(&of_list)?;
            if list.is_empty() && turn.is_none() {
                return Err(params.wrong("messages", "is empty, and no `turn` is given"));
            }
            let given = |fields: &ObjectMembers<'_>| {
                fields.only(&FIELDS)?;
                SubmittedMessage::parse(fields)
            };
            list.iter().map(given).collect::<Result<_, _>>()?
        } else {
            params.only(&[&of_list, &FIELDS[..]].concat())?;
            vec![SubmittedMessage::parse(params)?]
        };
        Ok(Self {
            id: params.parse_required("conversation_id")?,
            turn,
            messages,
            alone: list.is_none(),
        })
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let tools = tools(handler, &self.messages).await?;
        let messages = self.messages.iter().zip(tools);
        let messages = messages.map(|(given, tool)| complete(given, tool));
        let addition = MessageBatch {
            messages: messages.collect(),
            turn: self.turn.clone(),
        };
        let added = handler
            .memory
            .add_messages(handler.of, &self.id, &addition)
            .await?;
        let mut result = json!({ "status": "success", "conversation_id": self.id.as_str() });
        match added.messages.as_slice() {
            [message] if self.alone => {
                result["message_id"] = message.id.as_str().into();
                result["position"] = message.position.into();
            }
            messages => result["messages"] = messages.iter().map(place).collect(),
        }
        Ok(MemoryOutput {
            result: result.to_string(),
            conversation: Some(added.key),
            seen: MessageCounts {
                phi: false,
                ..MessageCounts::count(&added.messages)
            },
            recall: None,
        })
    }
}

fn turn(fields: &ObjectMembers<'_>) -> Result<(TurnId, TurnState), RpcError> {
    fields.only(&["id", "state"])?;
    Ok((
        fields.parse_required("id")?,
        fields.required_word("state", TurnState::ALL, TurnState::as_str)?,
    ))
}

fn place(message: &Message) -> Value {
    json!({ "message_id": message.id.as_str(), "position": message.position })
}

/// Returns the message with the catalogue's facts about its tool.
fn complete(given: &SubmittedMessage, tool: Option<Arc<Tool>>) -> NewMessage {
    let mut message = given.message.clone();
    if let (Some(call), Some(tool)) = (&given.tool, tool) {
        message.author = tool.facts.name.to_string();
        message.call = Some(answered_call(call, &tool.facts));
    }
    message
}

fn answered_call(call: &SubmittedToolCall, tool: &ToolFacts) -> AnsweredCall {
    AnsweredCall {
        call_id: call.call_id.clone(),
        tool: tool.clone(),
        arguments: call.arguments.clone(),
    }
}

/// Returns the tool of each message that has one. A tool that the caller may not see is treated as unknown.
async fn tools(
    handler: &MemoryHandler<'_>,
    given: &[SubmittedMessage],
) -> Result<Vec<Option<Arc<Tool>>>, MemoryRejection> {
    let mut tools = Vec::with_capacity(given.len());
    for message in given {
        tools.push(match &message.tool {
            Some(call) => Some(find(handler, &call.name)?),
            None => None,
        });
    }
    let named = || tools.iter().flatten();
    if named().next().is_none() {
        return Ok(tools);
    }
    let caller = handler.of.caller;
    let authority = handler.discovery.authority();
    let visible = authority.visible(caller, named().map(|tool| &tool.facts));
    let visible = visible
        .await
        .map_err(|error| MemoryRejection::neighbour(authority.undecided_error(&error)))?;
    for (message, tool) in given.iter().zip(&tools) {
        if let (Some(call), Some(tool)) = (&message.tool, tool)
            && !visible.iter().any(|name| *name == tool.facts.name.as_str())
        {
            return Err(MemoryRejection::unknown_tool(
                Status::Denied,
                Reason::HIDDEN,
                &call.name,
            ));
        }
    }
    Ok(tools)
}

fn find(handler: &MemoryHandler<'_>, name: &str) -> Result<Arc<Tool>, MemoryRejection> {
    let (reason, _) = catalogue::NOT_KNOWN;
    let catalogue = handler.discovery.catalogue().current();
    let catalogue = catalogue.ok_or_else(|| MemoryRejection::unavailable(reason))?;
    let Some(tool) = catalogue.find(name) else {
        return Err(MemoryRejection::unknown_tool(
            Status::UnknownTool,
            Reason::UNKNOWN_TOOL,
            name,
        ));
    };
    if !tool.switches.allow(handler.of.caller) {
        return Err(MemoryRejection::unknown_tool(
            Status::Denied,
            Reason::DISABLED,
            name,
        ));
    }
    Ok(Arc::clone(tool))
}
