//! URIs of conversations: `memory://conversation/{id}`, with `?after=N` for the messages after position N.

use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use wardgate_domain::ConversationId;

/// The scheme of all URIs of conversations.
pub(super) const SCHEME: &str = "memory:";
/// The part before the id.
const BASE: &str = "memory://conversation/";
/// The part before the position.
const AFTER: &str = "?after=";

/// The URI template of conversations (RFC 6570).
pub(crate) const TEMPLATE: &str = "memory://conversation/{id}";

/// The characters of an id that are percent-encoded: all but the unreserved ones (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The URI of a conversation, or of its messages after some position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationUri {
    pub(super) id: ConversationId,
    /// The position after which the messages begin, or 0 for all messages.
    pub(super) after: u64,
}

impl ConversationUri {
    /// Creates the URI of a whole conversation.
    pub(crate) fn whole(id: &ConversationId) -> Self {
        Self {
            id: id.clone(),
            after: 0,
        }
    }

    /// Returns the id of the conversation if `uri` names a whole conversation, without a position.
    pub(crate) fn id_of_whole(uri: &str) -> Option<ConversationId> {
        let parsed = uri.parse::<Self>().ok()?;
        (parsed.after == 0).then_some(parsed.id)
    }

    pub(crate) fn write(&self) -> String {
        let id = utf8_percent_encode(self.id.as_str(), ESCAPED);
        match self.after {
            0 => format!("{BASE}{id}"),
            after => format!("{BASE}{id}{AFTER}{after}"),
        }
    }
}

impl FromStr for ConversationUri {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, Self::Err> {
        let unfit = || format!("must match {TEMPLATE}, as listed by resources/list");
        let rest = uri.strip_prefix(BASE).ok_or_else(unfit)?;
        let (id, after) = match rest.split_once(AFTER) {
            Some((id, after)) => (id, after.parse().map_err(|_| unfit())?),
            None => (rest, 0),
        };
        let id = percent_decode_str(id).decode_utf8().map_err(|_| unfit())?;
        Ok(Self {
            id: id.parse().map_err(|_| unfit())?,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_its_owner_calls_it_a_conversation_has_a_uri_that_reads_back() {
        for id in [
            "chat_123456",
            "a/b?after=3#c",
            "đau răng?",
            "100%",
            "..",
            "a b",
        ] {
            for after in [0, 17] {
                let id = id.parse().unwrap();
                let uri = ConversationUri { id, after };
                let written = uri.write();
                assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
                assert_eq!(written.parse().as_ref(), Ok(&uri), "{written}");
            }
        }
    }

    #[test]
    fn a_uri_of_anything_else_is_refused() {
        for uri in [
            "",
            "memory://conversation/",
            "memory://other/x",
            "file:///etc/passwd",
            "memory://conversation/a?after=b",
            "memory://conversation/%00",
            "memory://conversation/%ff",
        ] {
            assert!(uri.parse::<ConversationUri>().is_err(), "{uri}");
        }
    }
}
