//! The events of an HTTP+SSE stream: answers, and the changes that are sent to every client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use crate::session::OpenStream;

/// A stream of events. When the stream of changes ends, because the token expires or the gateway shuts down, the session
/// accepts no further messages, but those in progress are still answered.
pub(super) struct EventStream {
    /// The changes, and the guard that keeps the session open. `None` after the changes have ended.
    listening: Option<(BoxStream<'static, Bytes>, OpenStream)>,
    messages: mpsc::Receiver<Bytes>,
}

impl EventStream {
    pub(super) fn new(
        listening: BoxStream<'static, Bytes>,
        open: OpenStream,
        messages: mpsc::Receiver<Bytes>,
    ) -> Self {
        Self {
            listening: Some((listening, open)),
            messages,
        }
    }
}

impl futures::Stream for EventStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Poll::Ready(Some(message)) = self.messages.poll_recv(context) {
            return Poll::Ready(Some(message));
        }
        if let Some((listening, _)) = &mut self.listening {
            match listening.poll_next_unpin(context) {
                Poll::Ready(None) => self.listening = None,
                event => return event,
            }
        }
        // All senders are dropped once no message is in progress.
        self.messages.poll_recv(context)
    }
}
