//! From events to the bytes of a response, no faster than its client reads.
//!
//! ```text
//!  events ─▶ render ─▶ one piece at most ─▶ connection
//!     ▲                                        │
//!     └── dropped when the client hangs up, or reads nothing for a minute
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

/// Tells proxies to pass on what they get at once.
pub(super) const UNBUFFERED: (HeaderName, &str) =
    (HeaderName::from_static("x-accel-buffering"), "no");

/// After so long without an event the stream shows that it lives: proxies close what is silent.
const SILENCE: Duration = Duration::from_secs(15);
/// A client that takes nothing for so long is gone.
const STALLED: Duration = Duration::from_secs(60);
/// Pieces made before the client took them; the turn itself keeps some events more.
const AHEAD: usize = 1;

/// A body of what `render` makes of each event; `alive` is sent in silence.
///
/// Events are asked for one by one, and not while the client is behind: a model is read no faster than its answer.
/// When the client hangs up, the events are dropped, and with them the work behind them.
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
            () = out.closed() => return tracing::debug!("the client hung up"),
            event = tokio::time::timeout(SILENCE, events.next()) => match event {
                Ok(Some(event)) => render(event),
                Ok(None) => return,
                Err(_) => Bytes::from_static(alive.as_bytes()),
            },
        };
        // Some events have nothing to show in some dialects.
        if piece.is_empty() {
            continue;
        }
        if out.send_timeout(piece, STALLED).await.is_err() {
            return tracing::debug!("the client stopped reading");
        }
    }
}
