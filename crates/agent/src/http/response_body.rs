//! Response bodies made of events, with backpressure from the client.
//!
//! ```text
//!  events ─▶ render ─▶ buffer of one piece ─▶ connection
//!     ▲                                           │
//!     └── dropped when the client disconnects, or reads nothing for a minute
//! ```

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::HeaderName;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::Instrument;

use crate::{AgentEvent, EventStream};

/// The header that tells proxies not to buffer the response.
pub(super) const UNBUFFERED: (HeaderName, &str) =
    (HeaderName::from_static("x-accel-buffering"), "no");

/// Time without an event after which a keep-alive is sent, because proxies close idle connections.
const SILENCE: Duration = Duration::from_secs(15);
/// Time after which a client that reads nothing counts as gone.
const STALLED: Duration = Duration::from_secs(60);
/// Number of rendered pieces buffered for the client. The turn itself buffers some further events.
const AHEAD: usize = 1;

/// Returns a body that consists of the result of `render` for each event, and of `alive` as a keep-alive while there are no
/// events.
///
/// The next event is requested only when the client has caught up, so that the model is not read faster than its answer.
/// When the client disconnects, the events are dropped, which cancels the turn.
pub(super) fn body(
    events: EventStream,
    alive: &'static str,
    render: impl FnMut(AgentEvent) -> Bytes + Send + 'static,
) -> Body {
    let (out, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(drive(events, alive, render, out).in_current_span());
    Body::from_stream(ReceiverStream::new(pieces).map(Ok::<_, Infallible>))
}

async fn drive(
    mut events: EventStream,
    alive: &'static str,
    mut render: impl FnMut(AgentEvent) -> Bytes,
    out: mpsc::Sender<Bytes>,
) {
    loop {
        let piece = tokio::select! {
            () = out.closed() => return tracing::debug!("the client disconnected"),
            event = tokio::time::timeout(SILENCE, events.next()) => match event {
                Ok(Some(event)) => render(event),
                Ok(None) => return,
                Err(_) => Bytes::from_static(alive.as_bytes()),
            },
        };
        // Some events have no representation in some formats.
        if piece.is_empty() {
            continue;
        }
        if out.send_timeout(piece, STALLED).await.is_err() {
            return tracing::debug!("the client stopped reading");
        }
    }
}
