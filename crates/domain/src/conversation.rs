//! Conversations and their messages.
//!
//! People type the ids and the texts, so nothing here prints them: `Debug` shows what kind of thing it is.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::ids::version_7;
use crate::{Ambient, ConversationKey, Digest, Timestamp, ToolFacts};

/// A text that cannot be an id.
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
            /// A new id: the text of a UUID version 7.
            pub fn new(ambient: &Ambient) -> Self {
                Self(version_7(ambient).to_string())
            }

            /// The id as its author wrote it. It may hold anything, so it belongs in no log.
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
    /// What the owner of a conversation calls it: 1 to 256 characters, none of them a control character.
    ConversationId, 256
}
text_id! {
    /// A message, unique in its conversation: 1 to 128 characters, none of them a control character.
    MessageId, 128
}
text_id! {
    /// A turn, unique in its conversation: 1 to 128 characters, none of them a control character.
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word as JSON spells it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// Who says a message.
    Role {
        /// The person.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool.
        Tool = "tool",
        /// Whoever runs the conversation.
        System = "system",
    }
}

words! {
    /// Where a text comes from, and so how far it may be trusted.
    Source {
        /// The caller wrote it.
        Person = "person",
        /// A model wrote it.
        Model = "model",
        /// A tool returned it: data, never instructions.
        Tool = "tool",
        /// A model's summary of earlier messages.
        Summary = "summary",
        /// A person's approval or refusal of a call.
        Approval = "approval",
    }
}

words! {
    /// How far a turn is.
    TurnState {
        /// More is to come; no context shows it yet.
        Open = "open",
        /// It is said.
        Complete = "complete",
        /// Given up; no context ever shows it.
        Abandoned = "abandoned",
    }
}

/// The call that a tool's result answers.
#[derive(Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    /// As the model named it.
    pub call_id: String,
    /// What the policy needs to know of the tool.
    pub tool: ToolFacts,
    /// One JSON object.
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
    /// None: the service makes one.
    pub id: Option<MessageId>,
    /// Who says it; `Tool` exactly when there is a `call`.
    pub role: Role,
    /// Where it comes from; `Tool` exactly when there is a `call`.
    pub source: Source,
    /// Name of the model or the tool; of a person the service sets it.
    pub author: String,
    /// The text.
    pub content: String,
    /// What a model asks for: a JSON array of `{"id","name","arguments"}`; empty when nothing.
    pub calls: Bytes,
    /// The call it answers, of a tool's result.
    pub call: Option<AnsweredCall>,
    /// The tool failed.
    pub is_error: bool,
    /// Of a summary, the last position that is in it; of anything else 0.
    pub covers_to: u64,
}

impl NewMessage {
    /// A text of `source`, said by `role`.
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

/// A message as it is stored. In the answer to an addition its texts are left out.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Unique in its conversation.
    pub id: MessageId,
    /// Its place in the one order of the conversation, from 1.
    pub position: u64,
    /// The turn it is part of; a message that is a turn of its own has none.
    pub turn: Option<TurnId>,
    /// When it was stored.
    pub time: Timestamp,
    /// Who says it.
    pub role: Role,
    /// Where it comes from.
    pub source: Source,
    /// Subject of the caller, name of the model, or name of the tool.
    pub author: String,
    /// The text.
    pub content: String,
    /// What a model asks for: a JSON array of `{"id","name","arguments"}`; empty when nothing.
    pub calls: Bytes,
    /// The call it answers, of a tool's result.
    pub call: Option<AnsweredCall>,
    /// The tool failed.
    pub is_error: bool,
    /// Of a summary, the last position that is in it; of anything else 0.
    pub covers_to: u64,
    /// The policies under which a tool's result was given.
    pub policy_hash: Option<Digest>,
    /// Its texts are withheld from this reader.
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

/// A conversation, as one who may read it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// What its owner calls it.
    pub id: ConversationId,
    /// Its own key; what records and URIs of shared conversations name.
    pub key: ConversationKey,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Complete messages.
    pub messages: u64,
    /// A legal hold is on it.
    pub held: bool,
    /// Another caller owns it.
    pub shared: bool,
}

/// What is known of a conversation without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    /// Its own key.
    pub key: ConversationKey,
    /// Tenant of its owner.
    pub tenant: String,
    /// Token issuer of its owner.
    pub issuer: String,
    /// Token subject of its owner.
    pub subject: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Complete messages, up to the end where it is erased.
    pub messages: u64,
    /// A legal hold is on it.
    pub held: bool,
    /// When it was erased.
    pub erased_at: Option<Timestamp>,
}

/// What a legal hold is on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldTarget {
    /// One conversation.
    Conversation(ConversationKey),
    /// Everything of one person.
    Person {
        /// Tenant of the person.
        tenant: String,
        /// Token subject, of whichever issuer.
        subject: String,
    },
    /// Everything of a tenant.
    Tenant(String),
}

/// A legal hold: what it is on is not erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// What it is on.
    pub target: HoldTarget,
    /// The operator, by name.
    pub set_by: String,
    /// Since when.
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
