//! What goes down a stream: answers, and the changes that every client hears of.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use crate::session::OpenStream;

/// One stream. When listening ends, with the token or the gateway, it takes no further message, but answers those
/// that are under way.
pub(super) struct EventStream {
    /// None when it has ended.
    listening: Option<(BoxStream<'static, Bytes>, OpenStream)>,
    messages: mpsc::Receiver<Bytes>,
}

impl EventStream {
    pub(super) fn new(
        listening: BoxStream<'static, Bytes>,
        (open, messages): (OpenStream, mpsc::Receiver<Bytes>),
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
        // Every sender is gone once nothing is under way.
        self.messages.poll_recv(context)
    }
}
