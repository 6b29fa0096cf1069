//! The JSON format of a message, as a client submits it and as a client reads it.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use wardgate_domain::{Message, NewMessage, Role, Source, TurnId};
use wardgate_mcp_server::{ObjectMembers, RpcError};

/// A message as a client submitted it. Of the tool whose result it is, only the name is known yet.
#[derive(Debug)]
pub(super) struct SubmittedMessage {
    pub(super) message: NewMessage,
    pub(super) tool: Option<SubmittedToolCall>,
}

/// The call whose result the message is, as the client names it.
pub(super) struct SubmittedToolCall {
    pub(super) call_id: String,
    /// The name of the tool, or an alias.
    pub(super) name: String,
    pub(super) arguments: Bytes,
}

impl std::fmt::Debug for SubmittedToolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SubmittedToolCall(…)")
    }
}

/// The fields of a message.
pub(super) const FIELDS: [&str; 8] = [
    "role",
    "content",
    "message_id",
    "source",
    "author",
    "tool_calls",
    "tool",
    "covers_to",
];

impl SubmittedMessage {
    pub(super) fn parse(fields: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        let role = fields.required_word("role", Role::ALL, Role::as_str)?;
        let source = fields.word("source", Source::ALL, Source::as_str)?;
        let covers_to = fields.position("covers_to")?.unwrap_or(0);
        let source = source.unwrap_or(match role {
            _ if covers_to > 0 => Source::Summary,
            Role::Assistant => Source::Model,
            Role::Tool => Source::Tool,
            Role::User | Role::System => Source::Person,
        });
        if (source == Source::Summary) != (covers_to > 0) {
            return Err(fields.wrong(
                "covers_to",
                "is required for a summary, and only valid for a summary",
            ));
        }
        if (role == Role::Tool) != (source == Source::Tool) {
            return Err(fields.wrong("source", "must be `tool` exactly when `role` is `tool`"));
        }
        let tool = fields.object("tool")?;
        if (role == Role::Tool) != tool.is_some() {
            return Err(fields.wrong(
                "tool",
                "is required when `role` is `tool`, and not valid otherwise",
            ));
        }
        let is_error = tool
            .as_ref()
            .map_or(Ok(false), |tool| tool.flag("is_error"))?;
        let calls = calls(fields)?;
        if !calls.is_empty() && role != Role::Assistant {
            return Err(fields.wrong("tool_calls", "is only valid in a message of the assistant"));
        }
        Ok(Self {
            message: NewMessage {
                id: fields.parse_optional("message_id")?,
                author: fields.text("author")?.unwrap_or_default(),
                calls,
                is_error,
                covers_to,
                ..NewMessage::text(role, source, fields.required_text("content")?)
            },
            tool: tool.as_ref().map(SubmittedToolCall::parse).transpose()?,
        })
    }
}

impl SubmittedToolCall {
    fn parse(fields: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        fields.only(&["call_id", "name", "arguments", "is_error"])?;
        Ok(Self {
            call_id: fields.required_text("call_id")?,
            name: fields.required_text("name")?,
            arguments: arguments(fields)?,
        })
    }
}

/// Returns the member `arguments`, an object, byte for byte as it was sent. An absent member is an empty object.
fn arguments(fields: &ObjectMembers<'_>) -> Result<Bytes, RpcError> {
    match fields.value("arguments").map(RawValue::get) {
        None => Ok(Bytes::from_static(b"{}")),
        Some(object) if object.starts_with('{') => Ok(Bytes::copy_from_slice(object.as_bytes())),
        Some(_) => Err(fields.wrong("arguments", "must be an object")),
    }
}

/// Checks arguments that a model wrote: an object, or a string of any content.
fn check_arguments(call: &ObjectMembers<'_>) -> Result<(), RpcError> {
    match call.value("arguments").map(RawValue::get) {
        Some(text) if !text.starts_with(['{', '"']) => {
            Err(call.wrong("arguments", "must be an object or a string"))
        }
        _ => Ok(()),
    }
}

/// Returns the tool calls that a model requested, as they were sent. Empty if there are none.
fn calls(fields: &ObjectMembers<'_>) -> Result<Bytes, RpcError> {
    let (Some(calls), Some(raw)) = (fields.objects("tool_calls")?, fields.value("tool_calls"))
    else {
        return Ok(Bytes::new());
    };
    for call in &calls {
        call.only(&["id", "name", "arguments"])?;
        call.required_text("id")?;
        call.required_text("name")?;
        check_arguments(call)?;
    }
    if calls.is_empty() {
        return Ok(Bytes::new());
    }
    Ok(Bytes::copy_from_slice(raw.get().as_bytes()))
}

/// A message as a client reads it. Absent members are left out.
#[derive(Debug, Serialize)]
pub(super) struct MessageView<'a> {
    role: &'static str,
    content: &'a str,
    message_id: &'a str,
    position: u64,
    source: &'static str,
    /// How far a model may trust the content.
    trust: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    author: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    withheld: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    covers_to: u64,
    time: String,
}

impl<'a> MessageView<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        let call = message.call.as_ref();
        Self {
            role: message.role.as_str(),
            content: &message.content,
            message_id: message.id.as_str(),
            position: message.position,
            source: message.source.as_str(),
            trust: trust(message.source),
            author: &message.author,
            tool_calls: serde_json::from_slice(&message.calls).ok(),
            tool_call_id: call.map(|call| call.call_id.as_str()),
            tool_name: call.map(|call| call.tool.name.as_str()),
            is_error: call.map(|_| message.is_error),
            withheld: message.withheld,
            turn_id: message.turn.as_ref().map(TurnId::as_str),
            covers_to: message.covers_to,
            time: message.time.to_string(),
        }
    }

    pub(super) fn list(messages: &'a [Message]) -> Vec<Self> {
        messages.iter().map(Self::new).collect()
    }
}

/// Returns who wrote a message, from which a model can tell whether it may follow the content as an instruction.
fn trust(source: Source) -> &'static str {
    match source {
        Source::Person | Source::Approval => "person",
        Source::Model => "model",
        Source::Tool => "data",
        Source::Summary => "summary",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
