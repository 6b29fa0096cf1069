//! Conversations and their messages.
//!
//! Ids and texts are typed by people, so no `Debug` output of this module contains them: it shows only the kind of the
//! value.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::ids::version_7;
use crate::{Ambient, ConversationKey, Digest, Timestamp, ToolFacts};

/// An error for a text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not 1 to {max} characters without control characters")]
pub struct InvalidText {
    max: usize,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Creates a new id: the text of a UUID version 7.
            pub fn new(ambient: &Ambient) -> Self {
                Self(version_7(ambient).to_string())
            }

            /// Returns the id as its author wrote it. It may hold any text, so it must not be logged.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let fits = !text.is_empty() && text.chars().nth($max).is_none();
                if fits && !text.contains(char::is_control) {
                    return Ok(Self(text.to_owned()));
                }
                Err(InvalidText { max: $max })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }
    };
}

text_id! {
    /// The name that the owner gave to a conversation: 1 to 256 characters without control characters.
    ConversationId, 256
}
text_id! {
    /// The id of a message, unique in its conversation: 1 to 128 characters without control characters.
    MessageId, 128
}
text_id! {
    /// The id of a turn, unique in its conversation: 1 to 128 characters without control characters.
    TurnId, 128
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word that stands for the value in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// The speaker of a message.
    Role {
        /// The person.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool.
        Tool = "tool",
        /// The operator of the conversation.
        System = "system",
    }
}

words! {
    /// The origin of a text, which determines how far the text may be trusted.
    Source {
        /// The caller wrote the text.
        Person = "person",
        /// A model wrote the text.
        Model = "model",
        /// A tool returned the text. It is data, never instructions.
        Tool = "tool",
        /// The text is a model's summary of earlier messages.
        Summary = "summary",
        /// The text is a person's approval or refusal of a call.
        Approval = "approval",
    }
}

words! {
    /// The state of a turn.
    TurnState {
        /// More messages will follow. No context includes the turn yet.
        Open = "open",
        /// All messages of the turn were added.
        Complete = "complete",
        /// The turn was given up. No context ever includes it.
        Abandoned = "abandoned",
    }
}

/// The call that the result of a tool answers.
#[derive(Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The id that the model gave to the call.
    pub call_id: String,
    /// The facts about the tool that the policy needs.
    pub tool: ToolFacts,
    /// The arguments, one JSON object.
    pub arguments: Bytes,
}

impl fmt::Debug for AnsweredCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnsweredCall").finish_non_exhaustive()
    }
}

/// A message to be added.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The id of the message, or `None` to let the service choose one.
    pub id: Option<MessageId>,
    /// The speaker; `Tool` exactly if there is a `call`.
    pub role: Role,
    /// The origin of the text; `Tool` exactly if there is a `call`.
    pub source: Source,
    /// The name of the model or the tool. For a message of a person, the service sets it.
    pub author: String,
    /// The text.
    pub content: String,
    /// The calls that a model asks for: a JSON array of `{"id","name","arguments"}`; empty if there are none.
    pub calls: Bytes,
    /// The call that the message answers, if the message is the result of a tool.
    pub call: Option<AnsweredCall>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The last position that a summary covers; 0 if the message is not a summary.
    pub covers_to: u64,
}

impl NewMessage {
    /// Creates a message with the text `content`, of the origin `source` and the speaker `role`.
    pub fn text(role: Role, source: Source, content: impl Into<String>) -> Self {
        Self {
            id: None,
            role,
            source,
            author: String::new(),
            content: content.into(),
            calls: Bytes::new(),
            call: None,
            is_error: false,
            covers_to: 0,
        }
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("role", &self.role)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A message as it is stored. The response to an added message leaves out its texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The id of the message, unique in its conversation.
    pub id: MessageId,
    /// The position in the conversation, counted from 1.
    pub position: u64,
    /// The turn that the message is part of, or `None` if the message is a turn by itself.
    pub turn: Option<TurnId>,
    /// The time at which the message was stored.
    pub time: Timestamp,
    /// The speaker.
    pub role: Role,
    /// The origin of the text.
    pub source: Source,
    /// The subject of the caller, the name of the model, or the name of the tool.
    pub author: String,
    /// The text.
    pub content: String,
    /// The calls that a model asks for: a JSON array of `{"id","name","arguments"}`; empty if there are none.
    pub calls: Bytes,
    /// The call that the message answers, if the message is the result of a tool.
    pub call: Option<AnsweredCall>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The last position that a summary covers; 0 if the message is not a summary.
    pub covers_to: u64,
    /// The digest of the policies under which the result of a tool was released.
    pub policy_hash: Option<Digest>,
    /// Whether the texts of the message are withheld from this reader.
    pub withheld: bool,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("position", &self.position)
            .field("role", &self.role)
            .field("source", &self.source)
            .field("withheld", &self.withheld)
            .finish_non_exhaustive()
    }
}

/// A conversation, as a caller who may read it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The name that the owner gave to the conversation.
    pub id: ConversationId,
    /// The key of the conversation, by which records and the URIs of shared conversations refer to it.
    pub key: ConversationKey,
    /// The time at which the conversation was created.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The number of complete messages.
    pub messages: u64,
    /// Whether the conversation is under a legal hold.
    pub held: bool,
    /// Whether another caller owns the conversation.
    pub shared: bool,
}

/// The metadata of a conversation that can be read without its encryption key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    /// The key by which records refer to the conversation.
    pub key: ConversationKey,
    /// The tenant of the owner.
    pub tenant: String,
    /// The token issuer of the owner.
    pub issuer: String,
    /// The token subject of the owner.
    pub subject: String,
    /// The time at which the conversation was created.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The number of complete messages; if the conversation is erased, their number before the erasure.
    pub messages: u64,
    /// Whether the conversation is under a legal hold.
    pub held: bool,
    /// The time of the erasure, or `None` if the conversation is not erased.
    pub erased_at: Option<Timestamp>,
}

/// The target of a legal hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldTarget {
    /// One conversation.
    Conversation(ConversationKey),
    /// Everything of one person.
    Person {
        /// The tenant of the person.
        tenant: String,
        /// The token subject of the person, under any issuer.
        subject: String,
    },
    /// Everything of a tenant.
    Tenant(String),
}

/// A legal hold, which prevents its target from being erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The target of the hold.
    pub target: HoldTarget,
    /// The name of the operator who set the hold.
    pub set_by: String,
    /// The time at which the hold was set.
    pub set_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_short_text_without_control_characters() {
        for good in ["chat_123456", "đau răng?", &"ß".repeat(256)] {
            assert_eq!(good.parse::<ConversationId>().unwrap().as_str(), good);
        }
        for bad in ["", "a\0b", "a\nb", &"x".repeat(257)] {
            assert!(bad.parse::<ConversationId>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(129).parse::<MessageId>().is_err());
    }

    #[test]
    fn a_printed_message_shows_no_text() {
        let mut message = NewMessage::text(Role::User, Source::Person, "canary");
        message.id = "canary".parse().ok();
        message.author = "canary".to_owned();
        assert!(!format!("{message:?} {:?}", message.id).contains("canary"));
    }
}
