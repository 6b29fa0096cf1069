//! The state of a gateway that outlives a request: sealed and held by the client, or in the store that all replicas share.

mod refusal_report;
mod sealer;
mod store;
mod stored_arguments;

pub use refusal_report::RefusalReportId;
pub use sealer::{Purpose, Sealer, SessionKey};
pub use store::{
    ApprovalState, LAYOUT, NewApprovalRequest, ReplicaId, ReplicaMessageId, SessionId,
    SessionSettings, Store, StoreError, StoredApproval, StreamId, StreamPage, StreamState,
    SubscriptionsId, TakenOverStream, WriteResult,
};
pub use stored_arguments::{ArgumentStore, StoreUnavailable, StoredArguments};
