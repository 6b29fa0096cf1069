//! Conversions of conversations, messages and holds.

use bytes::Bytes;
use wardgate_proto::memory::v1 as pb;

use super::{optional_digest, parse, parse_optional, require_field};
use crate::{
    AnsweredCall, Conversation, Digest, Hold, HoldTarget, InvalidMessage, Message, NewMessage,
    Role, Skeleton, Source, TurnState,
};

/// Maximum length of the name of a model, an operator or a call, in bytes.
const MAX_NAME: usize = 512;

macro_rules! enums {
    ($wire:ident, $name:ident, $field:literal, $($variant:ident),+) => {
        impl TryFrom<pb::$wire> for $name {
            type Error = InvalidMessage;

            fn try_from(wire: pb::$wire) -> Result<Self, InvalidMessage> {
                match wire {
                    pb::$wire::Unspecified => {
                        Err(InvalidMessage::field($field, "is unspecified"))
                    }
                    $(pb::$wire::$variant => Ok(Self::$variant),)+
                }
            }
        }

        impl From<$name> for pb::$wire {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }
    };
}

enums!(Role, Role, "role", User, Assistant, Tool, System);
enums!(
    Source, Source, "source", Person, Model, Tool, Summary, Approval
);
enums!(TurnState, TurnState, "state", Open, Complete, Abandoned);

fn name(text: String, field: &'static str) -> Result<String, InvalidMessage> {
    if text.len() > MAX_NAME || text.contains(char::is_control) {
        let problem = format!("exceeds {MAX_NAME} bytes or contains control characters");
        return Err(InvalidMessage::field(field, problem));
    }
    Ok(text)
}

impl TryFrom<pb::ToolCall> for AnsweredCall {
    type Error = InvalidMessage;

    fn try_from(call: pb::ToolCall) -> Result<Self, Self::Error> {
        Ok(Self {
            call_id: name(call.call_id, "tool_call.call_id")?,
            tool: require_field(call.tool, "tool_call.tool")?.try_into()?,
            arguments: call.arguments_json,
        })
    }
}

impl From<&AnsweredCall> for pb::ToolCall {
    fn from(call: &AnsweredCall) -> Self {
        Self {
            call_id: call.call_id.clone(),
            tool: Some((&call.tool).into()),
            arguments_json: call.arguments.clone(),
        }
    }
}

impl TryFrom<pb::Message> for NewMessage {
    type Error = InvalidMessage;

    fn try_from(message: pb::Message) -> Result<Self, Self::Error> {
        let (role, source) = (message.role().try_into()?, message.source().try_into()?);
        let call = message.tool_call.map(AnsweredCall::try_from).transpose()?;
        let of_tool = [role == Role::Tool, source == Source::Tool];
        if of_tool.contains(&call.is_none()) {
            let problem = "must be set exactly when role and source are those of a tool";
            return Err(InvalidMessage::field("tool_call", problem));
        }
        if (source == Source::Summary) != (message.covers_to > 0) {
            let problem = "must be set exactly when the message is a summary";
            return Err(InvalidMessage::field("covers_to", problem));
        }
        if !message.calls_json.is_empty() {
            if role != Role::Assistant {
                let problem = "is only valid in a message of the assistant";
                return Err(InvalidMessage::field("calls_json", problem));
            }
            json(&message.calls_json, b'[', "calls_json")?;
        }
        if let Some(call) = &call {
            json(&call.arguments, b'{', "tool_call.arguments_json")?;
        }
        Ok(Self {
            id: parse_optional(&message.message_id, "message_id")?,
            role,
            source,
            author: name(message.author, "author")?,
            content: message.content,
            calls: message.calls_json,
            call,
            is_error: message.is_error,
            covers_to: message.covers_to,
        })
    }
}

/// Checks that `text` is valid JSON and begins with the byte `first`.
fn json(text: &Bytes, first: u8, field: &'static str) -> Result<(), InvalidMessage> {
    let begins = text.trim_ascii_start().first() == Some(&first);
    if begins && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() {
        return Ok(());
    }
    let kind = if first == b'[' { "array" } else { "object" };
    Err(InvalidMessage::field(
        field,
        format!("is not a JSON {kind}"),
    ))
}

impl From<&NewMessage> for pb::Message {
    fn from(message: &NewMessage) -> Self {
        let id = message.id.as_ref().map(|id| id.as_str().to_owned());
        Self {
            message_id: id.unwrap_or_default(),
            role: pb::Role::from(message.role).into(),
            source: pb::Source::from(message.source).into(),
            author: message.author.clone(),
            content: message.content.clone(),
            calls_json: message.calls.clone(),
            tool_call: message.call.as_ref().map(Into::into),
            is_error: message.is_error,
            covers_to: message.covers_to,
            ..Self::default()
        }
    }
}

impl TryFrom<pb::Message> for Message {
    type Error = InvalidMessage;

    fn try_from(message: pb::Message) -> Result<Self, Self::Error> {
        Ok(Self {
            role: message.role().try_into()?,
            source: message.source().try_into()?,
            id: parse(&message.message_id, "message_id")?,
            position: message.position,
            turn: parse_optional(&message.turn_id, "turn_id")?,
            time: require_field(message.time, "time")?.try_into()?,
            author: message.author,
            content: message.content,
            calls: message.calls_json,
            call: message.tool_call.map(AnsweredCall::try_from).transpose()?,
            is_error: message.is_error,
            covers_to: message.covers_to,
            policy_hash: optional_digest(&message.policy_hash, "policy_hash")?,
            withheld: message.withheld,
        })
    }
}

impl From<Message> for pb::Message {
    fn from(message: Message) -> Self {
        let turn = message.turn.map(|turn| turn.as_str().to_owned());
        Self {
            message_id: message.id.as_str().to_owned(),
            role: pb::Role::from(message.role).into(),
            source: pb::Source::from(message.source).into(),
            author: message.author,
            content: message.content,
            calls_json: message.calls,
            tool_call: message.call.as_ref().map(Into::into),
            is_error: message.is_error,
            covers_to: message.covers_to,
            position: message.position,
            turn_id: turn.unwrap_or_default(),
            time: Some(message.time.into()),
            policy_hash: message.policy_hash.map(Digest::to_wire).unwrap_or_default(),
            withheld: message.withheld,
        }
    }
}

impl TryFrom<pb::Conversation> for Conversation {
    type Error = InvalidMessage;

    fn try_from(conversation: pb::Conversation) -> Result<Self, Self::Error> {
        Ok(Self {
            id: parse(&conversation.conversation_id, "conversation_id")?,
            key: parse(&conversation.key, "key")?,
            created_at: require_field(conversation.created_at, "created_at")?.try_into()?,
            updated_at: require_field(conversation.updated_at, "updated_at")?.try_into()?,
            messages: conversation.messages,
            held: conversation.held,
            shared: conversation.shared,
        })
    }
}

impl From<Conversation> for pb::Conversation {
    fn from(conversation: Conversation) -> Self {
        Self {
            conversation_id: conversation.id.as_str().to_owned(),
            key: conversation.key.to_string(),
            created_at: Some(conversation.created_at.into()),
            updated_at: Some(conversation.updated_at.into()),
            messages: conversation.messages,
            held: conversation.held,
            shared: conversation.shared,
        }
    }
}

impl TryFrom<pb::Skeleton> for Skeleton {
    type Error = InvalidMessage;

    fn try_from(skeleton: pb::Skeleton) -> Result<Self, Self::Error> {
        Ok(Self {
            key: parse(&skeleton.key, "key")?,
            tenant: skeleton.tenant,
            issuer: skeleton.issuer,
            subject: skeleton.subject,
            created_at: require_field(skeleton.created_at, "created_at")?.try_into()?,
            updated_at: require_field(skeleton.updated_at, "updated_at")?.try_into()?,
            messages: skeleton.messages,
            held: skeleton.held,
            erased_at: skeleton.erased_at.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<Skeleton> for pb::Skeleton {
    fn from(skeleton: Skeleton) -> Self {
        Self {
            key: skeleton.key.to_string(),
            tenant: skeleton.tenant,
            issuer: skeleton.issuer,
            subject: skeleton.subject,
            created_at: Some(skeleton.created_at.into()),
            updated_at: Some(skeleton.updated_at.into()),
            messages: skeleton.messages,
            held: skeleton.held,
            erased_at: skeleton.erased_at.map(Into::into),
        }
    }
}

impl TryFrom<pb::HoldTarget> for HoldTarget {
    type Error = InvalidMessage;

    fn try_from(target: pb::HoldTarget) -> Result<Self, Self::Error> {
        use pb::hold_target::Target as Wire;
        Ok(match require_field(target.target, "target")? {
            Wire::ConversationKey(key) => Self::Conversation(parse(&key, "conversation_key")?),
            Wire::Person(person) if person.subject.is_empty() => {
                return Err(InvalidMessage::field("person.subject", "is empty"));
            }
            Wire::Person(person) => Self::Person {
                tenant: name(person.tenant, "person.tenant")?,
                subject: name(person.subject, "person.subject")?,
            },
            Wire::Tenant(tenant) => Self::Tenant(name(tenant, "tenant")?),
        })
    }
}

impl From<&HoldTarget> for pb::HoldTarget {
    fn from(target: &HoldTarget) -> Self {
        use pb::hold_target::{Person, Target as Wire};
        let target = match target {
            HoldTarget::Conversation(key) => Wire::ConversationKey(key.to_string()),
            HoldTarget::Person { tenant, subject } => Wire::Person(Person {
                tenant: tenant.clone(),
                subject: subject.clone(),
            }),
            HoldTarget::Tenant(tenant) => Wire::Tenant(tenant.clone()),
        };
        Self {
            target: Some(target),
        }
    }
}

impl TryFrom<pb::Hold> for Hold {
    type Error = InvalidMessage;

    fn try_from(hold: pb::Hold) -> Result<Self, Self::Error> {
        Ok(Self {
            target: require_field(hold.target, "target")?.try_into()?,
            set_by: hold.set_by,
            set_at: require_field(hold.set_at, "set_at")?.try_into()?,
        })
    }
}

impl From<&Hold> for pb::Hold {
    fn from(hold: &Hold) -> Self {
        Self {
            target: Some((&hold.target).into()),
            set_by: hold.set_by.clone(),
            set_at: Some(hold.set_at.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ambient, ConversationKey, Timestamp};

    fn text_message(role: Role, source: Source) -> pb::Message {
        pb::Message::from(&NewMessage::text(role, source, "text"))
    }

    fn problem(message: pb::Message) -> &'static str {
        NewMessage::try_from(message).unwrap_err().name()
    }

    #[test]
    fn a_new_message_survives_the_wire() {
        let mut message = NewMessage::text(Role::Assistant, Source::Model, "text");
        message.id = "m-1".parse().ok();
        message.author = "llama".to_owned();
        message.calls = Bytes::from_static(br#"[{"id":"c","name":"n","arguments":{}}]"#);
        let wire = pb::Message::from(&message);
        assert_eq!(NewMessage::try_from(wire).unwrap(), message);
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_name() {
        assert_eq!(problem(text_message(Role::Tool, Source::Tool)), "tool_call");
        assert_eq!(
            problem(text_message(Role::Assistant, Source::Summary)),
            "covers_to"
        );
        let called = pb::Message {
            tool_call: Some(pb::ToolCall::default()),
            ..text_message(Role::User, Source::Person)
        };
        assert_eq!(problem(called), "tool_call.tool");
        let asks = |json: &'static [u8], role| pb::Message {
            calls_json: Bytes::from_static(json),
            ..text_message(role, Source::Model)
        };
        assert_eq!(problem(asks(b"[]", Role::User)), "calls_json");
        assert_eq!(problem(asks(b"{}", Role::Assistant)), "calls_json");
        assert_eq!(problem(asks(b"[{", Role::Assistant)), "calls_json");
        assert_eq!(problem(pb::Message::default()), "role");
    }

    #[test]
    fn a_hold_survives_the_wire() {
        for target in [
            HoldTarget::Conversation(ConversationKey::new(&Ambient::system())),
            HoldTarget::Person {
                tenant: String::new(),
                subject: "ada".to_owned(),
            },
            HoldTarget::Tenant("north".to_owned()),
        ] {
            let hold = Hold {
                target,
                set_by: "grace".to_owned(),
                set_at: Timestamp::from_seconds(1),
            };
            assert_eq!(Hold::try_from(pb::Hold::from(&hold)).unwrap(), hold);
        }
    }
}
