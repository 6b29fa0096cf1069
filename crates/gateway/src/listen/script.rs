//! What a stream says, in the words of its version.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::{Request, object};
use crate::reply::{RpcError, SERVER_INFO};

/// Every message of a subscription repeats its id; the gateway keeps none longer than this.
const ID_BYTES: usize = 256;

/// The messages of one stream, each a whole event.
#[derive(Debug)]
pub(crate) struct Script {
    /// At once.
    pub(super) first: Bytes,
    /// When the list changed; none for a client that did not ask to hear of it.
    pub(super) changed: Option<Bytes>,
    /// When the gateway ends the stream.
    pub(super) last: Option<Bytes>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    notifications: &'a RawValue,
}

/// Of what there is to hear, the gateway has this.
#[derive(Deserialize)]
struct Wanted {
    #[serde(default, rename = "toolsListChanged")]
    tools: bool,
}

impl Script {
    /// Of a GET before 2026-07-28.
    pub(crate) fn of_get() -> Self {
        Self {
            // Says nothing, but shows whoever waits that the stream is there.
            first: Bytes::from_static(b":\n\n"),
            changed: Some(event(
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
            )),
            last: None,
        }
    }

    /// Of `subscriptions/listen`.
    pub(crate) fn of_subscription(request: &Request<'_>) -> Result<Self, RpcError> {
        let id = request.id.get();
        if id.len() > ID_BYTES {
            return Err(RpcError::invalid_params(format!(
                "the `id` of a subscription has at most {ID_BYTES} bytes"
            )));
        }
        let wanted: Wanted = request
            .raw_params
            .and_then(|params| object::<Params<'_>>(params.get()))
            .and_then(|params| object(params.notifications.get()))
            .ok_or_else(|| {
                RpcError::invalid_params(
                    "`params.notifications` must be an object, for example {\"toolsListChanged\":true}",
                )
            })?;
        let accepted = if wanted.tools {
            r#"{"toolsListChanged":true}"#
        } else {
            "{}"
        };
        let meta = format!(r#""io.modelcontextprotocol/subscriptionId":{id}"#);
        let changed = || {
            event(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{{meta}}}}}}}"#
            ))
        };
        Ok(Self {
            first: event(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{{meta}}},"notifications":{accepted}}}}}"#
            )),
            changed: wanted.tools.then(changed),
            last: Some(event(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{{meta},"io.modelcontextprotocol/serverInfo":{SERVER_INFO}}}}}}}"#
            ))),
        })
    }
}

fn event(message: &str) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}
