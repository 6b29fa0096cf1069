//! `subscriptions/listen`: the stream on which the gateway reports that a caller's tool list may have changed.

use std::time::Duration;

use axum::body::Body;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use http_body_util::Limited;
use serde::Deserialize;
use serde_json::{Map, json};
use wardgate_edge::{EdgeClient, GatewayRequest};
use wardgate_mcp::event_stream::EventReader;
use wardgate_mcp::header;

use super::exchange;
use super::fault::GatewayError;
use super::{MCP_PATH, TIME_LIMIT};
use crate::request::BearerToken;

/// Time without data after which a stream counts as broken. The gateway sends a keep-alive every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// Maximum size of a stream, in bytes, after which the stream ends and another may be opened. A change notification has about 200
/// bytes.
const MAX_STREAM: usize = 1024 * 1024;

/// The changes of a caller's tool list since the gateway's acknowledgement.
pub(super) struct ToolChanges(BoxStream<'static, Notification>);

/// A message of the stream, reduced to the members used here.
#[derive(Deserialize)]
struct Notification {
    #[serde(default)]
    method: String,
    #[serde(default)]
    params: NotificationParams,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NotificationParams {
    notifications: AcceptedNotifications,
}

/// The notifications that the gateway has agreed to send.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AcceptedNotifications {
    #[serde(rename = "toolsListChanged")]
    tools: bool,
}

/// Opens a stream and waits for the gateway's acknowledgement.
pub(super) async fn open(
    edge: &EdgeClient,
    token: &BearerToken,
) -> Result<ToolChanges, GatewayError> {
    let opened = tokio::time::timeout(TIME_LIMIT, request_stream(edge, token)).await;
    opened.unwrap_or(Err(GatewayError::Late))
}

async fn request_stream(
    edge: &EdgeClient,
    token: &BearerToken,
) -> Result<ToolChanges, GatewayError> {
    let mut params = Map::new();
    params.insert(
        "notifications".to_owned(),
        json!({ "toolsListChanged": true }),
    );
    let request = GatewayRequest {
        path: MCP_PATH,
        method: "subscriptions/listen",
        name: None,
        params,
        arguments: None,
        meta: &[],
    };
    let (id, response) = exchange::send(edge, token, request).await?;
    if !header::has_media_type(response.headers(), header::EVENT_STREAM) {
        let refused = exchange::read_response(response, id).await.err();
        return Err(refused.unwrap_or(GatewayError::Unreadable));
    }
    let mut messages = notifications(response.into_body()).boxed();
    while let Some(message) = messages.next().await {
        if message.method == "notifications/subscriptions/acknowledged" {
            let accepted = message.params.notifications.tools;
            return if accepted {
                Ok(ToolChanges(messages))
            } else {
                Err(GatewayError::Unreadable)
            };
        }
    }
    Err(GatewayError::Unreachable)
}

impl ToolChanges {
    /// Waits for a change. Returns `false` when the stream has ended, for whatever reason.
    pub(super) async fn changed(&mut self) -> bool {
        while let Some(message) = self.0.next().await {
            if message.method == "notifications/tools/list_changed" {
                return true;
            }
        }
        false
    }
}

/// Returns the messages of a stream until it ends.
fn notifications(body: Body) -> impl Stream<Item = Notification> + Send + 'static {
    let bytes = Body::new(Limited::new(body, MAX_STREAM)).into_data_stream();
    let events = EventReader::new(MAX_STREAM);
    stream::unfold((bytes, events), async |(mut bytes, mut events)| {
        loop {
            while let Some(data) = events.next_event() {
                // An unreadable message cannot be a notification that was requested.
                if let Ok(message) = serde_json::from_slice(&data) {
                    return Some((message, (bytes, events)));
                }
            }
            // Keep-alives are comments, which `EventReader` drops, but they reset this timeout.
            let chunk = tokio::time::timeout(SILENCE, bytes.next()).await.ok()??;
            events.feed(&chunk.ok()?).ok()?;
        }
    })
}
