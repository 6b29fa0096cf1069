//! Subscriptions of clients whose requests do not last. Whether there is such a conversation is not looked at: whoever
//! subscribes to somebody else's, or to none, hears nothing.

use std::sync::Arc;

use wardgate_domain::{Ambient, Digest, InvalidMessage};
use wardgate_proto::memory::v1 as pb;

use crate::Error;
use crate::callers::CallerCache;
use crate::conversation_methods::id;
use crate::owner::Owner;
use crate::rights::Rights;
use crate::store::Store;

pub(crate) struct SubscriptionMethods<R> {
    pub(crate) callers: Arc<CallerCache<R>>,
    pub(crate) store: Store,
    pub(crate) ambient: Ambient,
}

impl<R: Rights> SubscriptionMethods<R> {
    pub(crate) async fn subscribe(
        &self,
        request: pb::SubscribeRequest,
    ) -> Result<pb::SubscribeResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let (session, id) = (session(&request.session)?, id(&request.conversation_id)?);
        let now = self.ambient.now();
        self.store.subscribe(&owner, session, &id, now).await?;
        Ok(pb::SubscribeResponse {})
    }

    pub(crate) async fn unsubscribe(
        &self,
        request: pb::UnsubscribeRequest,
    ) -> Result<pb::UnsubscribeResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let (session, id) = (session(&request.session)?, id(&request.conversation_id)?);
        self.store.unsubscribe(&owner, session, &id).await?;
        Ok(pb::UnsubscribeResponse {})
    }

    pub(crate) async fn list_subscriptions(
        &self,
        request: pb::ListSubscriptionsRequest,
    ) -> Result<pb::ListSubscriptionsResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let session = session(&request.session)?;
        let now = self.ambient.now();
        let conversation_ids = self.store.subscriptions(&owner, session, now).await?;
        Ok(pb::ListSubscriptionsResponse { conversation_ids })
    }
}

fn session(bytes: &[u8]) -> Result<Option<Digest>, InvalidMessage> {
    let digest = (!bytes.is_empty()).then(|| Digest::from_wire(bytes, "session"));
    digest.transpose()
}
