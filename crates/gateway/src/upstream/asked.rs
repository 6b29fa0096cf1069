//! What was asked of a tool, kept until its answer has come: whoever takes up a broken stream gets an answer that was
//! decided on that, and not on nothing.
//!
//! ```text
//!   short   with the id of the event, sealed like it
//!   long    in the store, sealed, once the first event can be come back to
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::{CallId, Caller, Digest};

use crate::Gateway;
use crate::session::Purpose;
use crate::store::LetterId;

/// Arguments that an id of the client's has room for, in bytes.
const SHORT: usize = 1_024;

/// Where the arguments are.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Asked {
    #[serde(rename = "h")]
    Here(Box<RawValue>),
    /// In the store, under the id of the call.
    #[serde(rename = "s")]
    Stored(String),
}

/// They cannot be had, or kept, now.
#[derive(Debug)]
pub(super) struct Away;

impl Asked {
    /// Arguments that need no store.
    pub(super) fn inline(arguments: &Bytes) -> Option<Self> {
        let text = str::from_utf8(arguments).ok()?;
        let text = (text.len() <= SHORT).then(|| text.to_owned())?;
        RawValue::from_string(text).ok().map(Self::Here)
    }

    /// Keeps those that do.
    pub(super) async fn store(
        gateway: &Gateway,
        caller: &Caller,
        call: CallId,
        arguments: &Bytes,
    ) -> Result<Self, Away> {
        let call = call.to_string();
        let text = str::from_utf8(arguments).map_err(|_| Away)?;
        let purpose = Purpose::UpstreamArguments;
        let sealed = gateway.sealer().seal(purpose, caller, &call, &text);
        let sealed = sealed.ok_or(Away)?.into_bytes();
        let kept = gateway.store().post_letter(letter(&call), sealed).await;
        kept.map_err(|_| Away)?;
        Ok(Self::Stored(call))
    }

    /// The arguments again, byte for byte.
    pub(super) async fn fetch(&self, gateway: &Gateway, caller: &Caller) -> Result<Bytes, Away> {
        let call = match self {
            Self::Here(arguments) => return Ok(arguments.get().to_owned().into()),
            Self::Stored(call) => call,
        };
        let sealed = gateway.store().fetch_letter(letter(call)).await;
        let sealed = sealed.ok().flatten().ok_or(Away)?;
        let sealed = String::from_utf8(sealed).map_err(|_| Away)?;
        let purpose = Purpose::UpstreamArguments;
        let text = gateway.sealer().open(purpose, caller, call, &sealed);
        text.map(|text: String| text.into()).ok_or(Away)
    }
}

fn letter(call: &str) -> LetterId {
    let parts = ["upstream arguments".as_bytes(), call.as_bytes()];
    LetterId(Digest::of_parts(parts))
}
