//! The HTTP response of a call: a single answer, or a stream of events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wardgate_mcp_server::{KEEP_ALIVE, McpResponse, format_event};

/// Number of events that are buffered for a slow client before the sender has to wait.
const AHEAD: usize = 16;

/// Maximum time that an event waits for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sending end of a response. `T` is the type of the HTTP response.
#[derive(Debug)]
pub(crate) enum ResponseSender<T> {
    /// Nothing has been sent.
    Unsent(oneshot::Sender<T>),
    Streaming(mpsc::Sender<Bytes>),
    /// The response is complete, or the client is gone.
    Closed,
}

/// Creates a sender, and the receiver of its response.
pub(crate) fn response_channel<T>() -> (ResponseSender<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (ResponseSender::Unsent(sender), receiver)
}

impl<T: From<McpResponse>> ResponseSender<T> {
    /// Sends the whole response, unless one was sent. A dropped receiver is ignored.
    pub(crate) fn send_response(&mut self, response: T) {
        if let Self::Unsent(sender) = std::mem::replace(self, Self::Closed) {
            let _ = sender.send(response);
        }
    }

    /// Begins a stream.
    pub(crate) fn start_stream(&mut self, response: impl FnOnce(Body) -> T) {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let events = stream::unfold(receiver, async |mut receiver| {
            let event = match timeout(KEEP_ALIVE, receiver.recv()).await {
                Ok(event) => event?,
                // A comment event keeps proxies from closing an idle stream.
                Err(_) => Bytes::from_static(b":\n\n"),
            };
            Some((Ok::<_, Infallible>(event), receiver))
        });
        self.send_response(response(Body::from_stream(events)));
        *self = Self::Streaming(sender);
    }

    /// Sends `event`. If the client is gone or does not read for [`PATIENCE`], it receives nothing more, but the call continues.
    pub(crate) async fn send_event(&mut self, event: Bytes) {
        if let Self::Streaming(sender) = self
            && sender.send_timeout(event, PATIENCE).await.is_err()
        {
            *self = Self::Closed;
        }
    }

    /// Sends `answer`: as the response, or as the last event of the stream.
    pub(crate) async fn send_answer(&mut self, answer: McpResponse) {
        match self {
            Self::Streaming(_) => {
                let message = answer.into_text().unwrap_or_default();
                self.send_last_event(format_event(None, None, &message))
                    .await;
            }
            Self::Unsent(_) | Self::Closed => self.send_response(answer.into()),
        }
    }

    /// Sends `event` and ends the stream.
    pub(crate) async fn send_last_event(&mut self, event: Bytes) {
        self.send_event(event).await;
        *self = Self::Closed;
    }

    /// Waits until the client disconnects.
    pub(crate) async fn disconnected(&mut self) {
        match self {
            Self::Unsent(sender) => sender.closed().await,
            Self::Streaming(sender) => sender.closed().await,
            Self::Closed => {}
        }
    }
}

#[cfg(test)]
mod tests;
