//! The gRPC methods of subscriptions, for clients without a lasting connection. Whether the conversation exists is not
//! checked: a subscription to somebody else's conversation, or to a missing one, receives no events.

use wardgate_domain::{Digest, InvalidMessage};
use wardgate_proto::memory::v1 as pb;

use super::{MemoryHandler, parse_conversation_id};
use crate::Error;
use crate::owner::Owner;
use crate::rights::Rights;

impl<R: Rights> MemoryHandler<R> {
    pub(super) async fn subscribe(
        &self,
        request: pb::SubscribeRequest,
    ) -> Result<pb::SubscribeResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let session = parse_session(&request.session)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let now = self.ambient.now();
        self.store.subscribe(&owner, session, &id, now).await?;
        Ok(pb::SubscribeResponse {})
    }

    pub(super) async fn unsubscribe(
        &self,
        request: pb::UnsubscribeRequest,
    ) -> Result<pb::UnsubscribeResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let session = parse_session(&request.session)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        self.store.unsubscribe(&owner, session, &id).await?;
        Ok(pb::UnsubscribeResponse {})
    }

    pub(super) async fn list_subscriptions(
        &self,
        request: pb::ListSubscriptionsRequest,
    ) -> Result<pb::ListSubscriptionsResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let session = parse_session(&request.session)?;
        let now = self.ambient.now();
        let conversation_ids = self.store.subscriptions(&owner, session, now).await?;
        Ok(pb::ListSubscriptionsResponse { conversation_ids })
    }
}

fn parse_session(bytes: &[u8]) -> Result<Option<Digest>, InvalidMessage> {
    let digest = (!bytes.is_empty()).then(|| Digest::from_wire(bytes, "session"));
    digest.transpose()
}
