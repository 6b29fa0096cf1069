//! Records of access to stored conversations.

use std::str::FromStr;
use std::time::Duration;

use crate::{CallFacts, ConversationKey, Status};

/// A method that reads or changes conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryMethod {
    /// Finds or creates a conversation.
    GetOrCreate,
    /// Returns the context of a conversation for a model.
    GetContext,
    /// Adds messages.
    AddMessage,
    /// Returns one turn, complete or not.
    GetTurn,
    /// Erases the messages of a conversation.
    Clear,
    /// Erases a conversation.
    Delete,
    /// Searches messages by their words.
    Search,
    /// Lists conversations.
    List,
    /// Reads a conversation.
    Read,
}

impl MemoryMethod {
    /// All methods.
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

    /// Returns the name of the method in JSON-RPC and in records.
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
            .ok_or("is not a method of the memory service")
    }
}

/// The record of one access, in which a caller read or changed stored conversations.
#[derive(Debug, Clone)]
pub struct MemoryAccess {
    /// The facts of the call. It names no tool, and its arguments are the parameters of the method.
    pub call: CallFacts,
    /// The method that was called.
    pub method: MemoryMethod,
    /// The conversation, or `None` if the access does not concern a single one.
    pub conversation: Option<ConversationKey>,
    /// The number of messages that were released or stored.
    pub messages: u64,
    /// The number of messages that were released without their text.
    pub withheld: u64,
    /// Whether the released messages include the result of a tool that returns health information.
    pub phi: bool,
    /// The status with which the access ended.
    pub status: Status,
    /// The kind of refusal or failure in short; empty if the access succeeded.
    pub reason: String,
    /// The time from the arrival of the request to this record.
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
