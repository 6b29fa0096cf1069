//! The arguments of a tool call that became a task. Each request about the task is authorized with them again.
//!
//! ```text
//!   short   inline, sealed with the id of the task
//!   long    in the store, sealed
//! ```

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::{CallId, Caller, Digest};

use crate::{Purpose, ReplicaMessageId, Sealer, Store};

/// Maximum size of arguments that are stored inline, in bytes.
const SHORT: usize = 1_024;

/// The arguments of a call, or the key by which they are stored.
#[derive(Clone, Serialize, Deserialize)]
pub enum StoredArguments {
    /// The arguments, as part of this value.
    #[serde(rename = "h")]
    Inline(Box<RawValue>),
    /// The arguments are in the store, under the id of the call.
    #[serde(rename = "s")]
    Stored(String),
}

/// The error for an unavailable store: the arguments can be neither read nor stored.
#[derive(Debug)]
pub struct StoreUnavailable;

/// Stores the arguments of calls that became tasks.
pub struct ArgumentStore {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
}

impl ArgumentStore {
    /// Creates an argument store in the store of all replicas.
    pub fn new(store: &Arc<Store>, sealer: &Arc<Sealer>) -> Self {
        Self {
            store: Arc::clone(store),
            sealer: Arc::clone(sealer),
        }
    }

    /// Stores the arguments of `call`: inline if they are short, otherwise in the store.
    pub async fn store(
        &self,
        caller: &Caller,
        call: CallId,
        arguments: &Bytes,
    ) -> Result<StoredArguments, StoreUnavailable> {
        let text = str::from_utf8(arguments).map_err(|_| StoreUnavailable)?;
        if text.len() <= SHORT
            && let Ok(inline) = RawValue::from_string(text.to_owned())
        {
            return Ok(StoredArguments::Inline(inline));
        }
        let call = call.to_string();
        let purpose = Purpose::UpstreamArguments;
        let sealed = self.sealer.seal(purpose, caller, &call, &text);
        let sealed = sealed.ok_or(StoreUnavailable)?.into_bytes();
        let message = replica_message(&call);
        let stored = self.store.post_replica_message(message, sealed).await;
        stored.map_err(|_| StoreUnavailable)?;
        Ok(StoredArguments::Stored(call))
    }

    /// Returns the arguments, byte for byte, or `None` if they have expired.
    pub async fn find(
        &self,
        caller: &Caller,
        arguments: &StoredArguments,
    ) -> Result<Option<Bytes>, StoreUnavailable> {
        let call = match arguments {
            StoredArguments::Inline(arguments) => {
                return Ok(Some(arguments.get().to_owned().into()));
            }
            StoredArguments::Stored(call) => call,
        };
        let message = replica_message(call);
        let stored = self.store.fetch_replica_message(message).await;
        let sealed = stored.map_err(|_| StoreUnavailable)?.map(String::from_utf8);
        let purpose = Purpose::UpstreamArguments;
        let text = sealed.and_then(|sealed| self.sealer.open(purpose, caller, call, &sealed.ok()?));
        Ok(text.map(|text: String| text.into()))
    }
}

fn replica_message(call: &str) -> ReplicaMessageId {
    let parts = ["upstream arguments".as_bytes(), call.as_bytes()];
    ReplicaMessageId(Digest::of_parts(parts))
}
