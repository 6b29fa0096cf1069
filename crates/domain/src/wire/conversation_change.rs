//! Conversions of conversation changes.

use wardgate_proto::memory::v1 as pb;
use wardgate_proto::memory::v1::conversation_change::What as Wire;

use super::{parse, require_field};
use crate::{ChangedPart, ConversationChange, ConversationChanges, Digest, InvalidMessage};

impl TryFrom<pb::WatchConversationsResponse> for ConversationChanges {
    type Error = InvalidMessage;

    fn try_from(response: pb::WatchConversationsResponse) -> Result<Self, Self::Error> {
        let changes = response.changes.into_iter().map(TryInto::try_into);
        Ok(Self {
            unseen: response.unseen,
            changes: changes.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&ConversationChanges> for pb::WatchConversationsResponse {
    fn from(changes: &ConversationChanges) -> Self {
        Self {
            changes: changes.changes.iter().map(Into::into).collect(),
            unseen: changes.unseen,
        }
    }
}

impl TryFrom<pb::ConversationChange> for ConversationChange {
    type Error = InvalidMessage;

    fn try_from(change: pb::ConversationChange) -> Result<Self, Self::Error> {
        Ok(Self {
            owner: Digest::from_wire(&change.owner, "owner")?,
            what: match require_field(change.what, "what")? {
                Wire::ConversationId(id) => ChangedPart::Messages(parse(&id, "conversation_id")?),
                Wire::List(_) => ChangedPart::List,
                Wire::Subscriptions(_) => ChangedPart::Subscriptions,
            },
        })
    }
}

impl From<&ConversationChange> for pb::ConversationChange {
    fn from(change: &ConversationChange) -> Self {
        let what = match &change.what {
            ChangedPart::Messages(id) => Wire::ConversationId(id.as_str().to_owned()),
            ChangedPart::List => Wire::List(pb::ListChanged {}),
            ChangedPart::Subscriptions => Wire::Subscriptions(pb::SubscriptionsChanged {}),
        };
        Self {
            owner: change.owner.to_wire(),
            what: Some(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_the_wire_and_one_of_nobody_is_refused() {
        let of = |what| ConversationChange {
            owner: Digest::compute(b"ada"),
            what,
        };
        let changes = ConversationChanges {
            unseen: true,
            changes: vec![
                of(ChangedPart::Messages("chat".parse().unwrap())),
                of(ChangedPart::List),
                of(ChangedPart::Subscriptions),
            ],
        };
        let wire = pb::WatchConversationsResponse::from(&changes);
        assert_eq!(ConversationChanges::try_from(wire.clone()), Ok(changes));
        let nobodys = pb::ConversationChange {
            owner: bytes::Bytes::new(),
            ..wire.changes[0].clone()
        };
        let refused = ConversationChange::try_from(nobodys).unwrap_err();
        assert_eq!(refused.name(), "owner");
    }
}
