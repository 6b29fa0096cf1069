//! What the record says of the use of remembered conversations.

use std::str::FromStr;
use std::time::Duration;

use crate::{CallFacts, ConversationKey, Status};

/// A method that reads or changes conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryMethod {
    /// Finds or makes a conversation.
    GetOrCreate,
    /// What a model needs to know of one.
    GetContext,
    /// Adds messages.
    AddMessage,
    /// One turn, complete or not.
    GetTurn,
    /// Erases the messages.
    Clear,
    /// Erases the conversation.
    Delete,
    /// Finds messages by their words.
    Search,
    /// Lists conversations.
    List,
    /// Reads one.
    Read,
}

impl MemoryMethod {
    /// Every method.
    pub const ALL: [Self; 9] = [
        Self::GetOrCreate,
        Self::GetContext,
        Self::AddMessage,
        Self::GetTurn,
        Self::Clear,
        Self::Delete,
        Self::Search,
        Self::List,
        Self::Read,
    ];

    /// The method as JSON-RPC and records spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GetOrCreate => "memory/get_or_create",
            Self::GetContext => "memory/get_context",
            Self::AddMessage => "memory/add_message",
            Self::GetTurn => "memory/get_turn",
            Self::Clear => "memory/clear",
            Self::Delete => "memory/delete",
            Self::Search => "memory/search",
            Self::List => "resources/list",
            Self::Read => "resources/read",
        }
    }
}

impl FromStr for MemoryMethod {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut methods = Self::ALL.into_iter();
        methods
            .find(|method| method.as_str() == name)
            .ok_or("is no method of the memory")
    }
}

/// A caller read or changed remembered conversations.
#[derive(Debug, Clone)]
pub struct MemoryAccess {
    /// Who, when and how; it names no tool, and its arguments are the parameters of the method.
    pub call: CallFacts,
    /// What was asked.
    pub method: MemoryMethod,
    /// Which conversation, where it is one.
    pub conversation: Option<ConversationKey>,
    /// Messages released or stored.
    pub messages: u64,
    /// Messages released without their text.
    pub withheld: u64,
    /// Among the released is the result of a tool that gives health information.
    pub phi: bool,
    /// How it ended.
    pub status: Status,
    /// Short kind of refusal or failure; empty when it succeeded.
    pub reason: String,
    /// From arrival to this record.
    pub duration: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_reads_back_and_junk_does_not() {
        for method in MemoryMethod::ALL {
            assert_eq!(method.as_str().parse(), Ok(method));
        }
        assert!("memory/forget".parse::<MemoryMethod>().is_err());
    }
}
