//! The HTTP response of a call: one answer, or the beginning of a stream and its events.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::listen::KEEP_ALIVE;
use crate::reply::Answer;

/// Events that are buffered for a slow client before the sender has to wait.
const AHEAD: usize = 16;

/// The time that an event waits for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sending end of a response; `T` is the type of its beginning.
#[derive(Debug)]
pub(crate) enum ResponseSender<T> {
    /// Nothing has been sent.
    Unsent(oneshot::Sender<T>),
    Streaming(mpsc::Sender<Bytes>),
    /// The response is complete, or the client is gone.
    Closed,
}

/// A sender, and the receiver of the response that it begins.
pub(crate) fn response_channel<T>() -> (ResponseSender<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (ResponseSender::Unsent(sender), receiver)
}

impl<T: From<Answer>> ResponseSender<T> {
    /// Sends the whole response, if none was sent. A receiver that is gone makes no difference.
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
                // So that no proxy takes a quiet stream for a dead one.
                Err(_) => Bytes::from_static(b":\n\n"),
            };
            Some((Ok::<_, Infallible>(event), receiver))
        });
        self.send_response(response(Body::from_stream(events)));
        *self = Self::Streaming(sender);
    }

    /// Sends `event`. A client that is gone, or does not read for a while, gets nothing more: the call goes on to its end.
    pub(crate) async fn send_event(&mut self, event: Bytes) {
        if let Self::Streaming(sender) = self
            && sender.send_timeout(event, PATIENCE).await.is_err()
        {
            *self = Self::Closed;
        }
    }

    /// Sends `answer`: as the response, or as the last event of the stream.
    pub(crate) async fn send_answer(&mut self, answer: Answer) {
        match self {
            Self::Streaming(_) => {
                let message = answer.into_text().unwrap_or_default();
                self.send_last_event(format_event(None, None, &message))
                    .await;
            }
            Self::Unsent(_) | Self::Closed => self.send_response(answer.into()),
        }
    }

    /// Sends `event`, which nothing follows.
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

/// One event of the stream as text; `id` is the one that the client may resume from.
pub(crate) fn format_event(id: Option<&str>, retry: Option<Duration>, message: &str) -> Bytes {
    let mut text = String::with_capacity(message.len() + 64);
    // Writing to a string cannot fail.
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    if let Some(retry) = retry {
        let _ = writeln!(text, "retry: {}", retry.as_millis());
    }
    if message.is_empty() {
        text.push_str("data:\n\n");
        return text.into();
    }
    text.push_str("event: message\n");
    for line in message.split(['\n', '\r']) {
        let _ = writeln!(text, "data: {line}");
    }
    text.push('\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::StreamExt;

    use super::*;

    /// A stream that began, and its body.
    fn begun() -> (ResponseSender<Answer>, Body) {
        let (mut out, mut answer) = response_channel();
        let mut body = None;
        out.start_stream(|stream| {
            body = Some(stream);
            Answer::accepted()
        });
        answer.try_recv().unwrap();
        (out, body.unwrap())
    }

    #[test]
    fn a_message_is_one_event_whatever_ends_its_lines() {
        let told = format_event(Some("i"), None, "{\r\"a\":\r\n1,\n\"b\":\"\u{2028}\"}");
        let told = std::str::from_utf8(&told).unwrap();
        assert!(told.starts_with("id: i\nevent: message\n"), "{told}");
        let lines: Vec<_> = told.trim_end().split(['\n', '\r']).skip(2).collect();
        assert!(
            lines.iter().all(|line| line.starts_with("data: ")),
            "{told}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_holds_nothing_up() {
        let (mut out, _unread) = begun();
        for _ in 0..=AHEAD {
            assert!(matches!(out, ResponseSender::Streaming(_)));
            out.send_event(Bytes::from_static(b"data:\n\n")).await;
        }
        assert!(matches!(out, ResponseSender::Closed));
        out.disconnected().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_says_that_it_lives() {
        let (mut out, body) = begun();
        let mut heard = body.into_data_stream();
        assert_eq!(heard.next().await.unwrap().unwrap(), ":\n\n");
        out.send_event(format_event(None, None, "1")).await;
        assert_eq!(
            heard.next().await.unwrap().unwrap(),
            "event: message\ndata: 1\n\n"
        );
    }

    #[tokio::test]
    async fn nothing_follows_the_last_word() {
        let (mut out, body) = begun();
        let id = serde_json::value::to_raw_value(&7).unwrap();
        out.send_answer(Answer::empty(&id)).await;
        out.send_event(format_event(None, None, "late")).await;
        let heard = to_bytes(body, 1_000).await.unwrap();
        let heard = std::str::from_utf8(&heard).unwrap();
        assert!(heard.contains(r#""result":{}"#) && !heard.contains("late"));
    }
}
