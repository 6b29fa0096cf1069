//! The arguments of a tool call that became a task: a request about the task is decided on them again.
//!
//! ```text
//!   short   inline, sealed with the id of the task
//!   long    in the store, sealed
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::{CallId, Caller, Digest};
use wardgate_gateway_store::{Purpose, ReplicaMessageId};

use crate::Gateway;

/// The longest arguments that are kept inline, in bytes.
const SHORT: usize = 1_024;

/// The arguments, or the place where they are stored.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum StoredArguments {
    #[serde(rename = "h")]
    Inline(Box<RawValue>),
    /// In the store, under the id of the call.
    #[serde(rename = "s")]
    Stored(String),
}

/// The store is unavailable, so the arguments can be neither read nor stored.
#[derive(Debug)]
pub(crate) struct StoreUnavailable;

impl StoredArguments {
    /// Keeps short arguments inline. None if they are too long.
    pub(crate) fn inline(arguments: &Bytes) -> Option<Self> {
        let text = str::from_utf8(arguments).ok()?;
        let text = (text.len() <= SHORT).then(|| text.to_owned())?;
        RawValue::from_string(text).ok().map(Self::Inline)
    }

    /// Keeps long arguments in the store.
    pub(crate) async fn store(
        gateway: &Gateway,
        caller: &Caller,
        call: CallId,
        arguments: &Bytes,
    ) -> Result<Self, StoreUnavailable> {
        let call = call.to_string();
        let text = str::from_utf8(arguments).map_err(|_| StoreUnavailable)?;
        let purpose = Purpose::UpstreamArguments;
        let sealed = gateway.sealer().seal(purpose, caller, &call, &text);
        let sealed = sealed.ok_or(StoreUnavailable)?.into_bytes();
        let kept = gateway
            .store()
            .post_replica_message(replica_message(&call), sealed)
            .await;
        kept.map_err(|_| StoreUnavailable)?;
        Ok(Self::Stored(call))
    }

    /// The arguments, byte for byte. None if they have expired.
    pub(crate) async fn find(
        &self,
        gateway: &Gateway,
        caller: &Caller,
    ) -> Result<Option<Bytes>, StoreUnavailable> {
        let call = match self {
            Self::Inline(arguments) => return Ok(Some(arguments.get().to_owned().into())),
            Self::Stored(call) => call,
        };
        let kept = gateway
            .store()
            .fetch_replica_message(replica_message(call))
            .await;
        let sealed = kept.map_err(|_| StoreUnavailable)?.map(String::from_utf8);
        let purpose = Purpose::UpstreamArguments;
        let text = sealed.and_then(|sealed| {
            let sealer = gateway.sealer();
            sealer.open(purpose, caller, call, &sealed.ok()?)
        });
        Ok(text.map(|text: String| text.into()))
    }
}

fn replica_message(call: &str) -> ReplicaMessageId {
    let parts = ["upstream arguments".as_bytes(), call.as_bytes()];
    ReplicaMessageId(Digest::of_parts(parts))
}
