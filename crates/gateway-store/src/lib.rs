//! What outlives a request to a gateway: sealed with its client, or in the store that all replicas share.

mod sealer;
mod store;

pub use sealer::{Purpose, Sealer, SessionKey};
pub use store::{
    LAYOUT, ReplicaId, ReplicaMessageId, SessionId, SessionSettings, Store, StoreError, StreamId,
    StreamPage, StreamState, SubscriptionsId, TakenOverStream, WriteResult,
};
