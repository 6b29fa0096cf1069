//! The way back to the client: one answer, or the beginning of a stream and its events.

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

/// Events that wait for a slow client before whoever speaks has to.
const AHEAD: usize = 16;

/// How long an event waits for a client that reads nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever tells a story speaks to the client through this; `T` is what begins a response.
#[derive(Debug)]
pub(crate) enum ResponseSender<T> {
    /// Nothing was said yet.
    Silent(oneshot::Sender<T>),
    Speaking(mpsc::Sender<Bytes>),
    /// All was said, or nobody listens.
    Over,
}

/// The way out, and what comes of it.
pub(crate) fn response_channel<T>() -> (ResponseSender<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (ResponseSender::Silent(sender), receiver)
}

impl<T: From<Answer>> ResponseSender<T> {
    /// Gives the whole answer. Whether anyone is there to take it makes no difference.
    pub(crate) fn answer(&mut self, response: T) {
        if let Self::Silent(sender) = std::mem::replace(self, Self::Over) {
            let _ = sender.send(response);
        }
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, response: impl FnOnce(Body) -> T) {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let events = stream::unfold(receiver, async |mut receiver| {
            let event = match timeout(KEEP_ALIVE, receiver.recv()).await {
                Ok(event) => event?,
                // So that no proxy takes a quiet stream for a dead one.
                Err(_) => Bytes::from_static(b":\n\n"),
            };
            Some((Ok::<_, Infallible>(event), receiver))
        });
        self.answer(response(Body::from_stream(events)));
        *self = Self::Speaking(sender);
    }

    /// Says `event`. To a client that is gone, or has read nothing for a while, it says nothing: the story has to go
    /// on to its end.
    pub(crate) async fn say(&mut self, event: Bytes) {
        if let Self::Speaking(sender) = self
            && sender.send_timeout(event, PATIENCE).await.is_err()
        {
            *self = Self::Over;
        }
    }

    /// Says the last word, in the way that is left.
    pub(crate) async fn finish(&mut self, answer: Answer) {
        match self {
            Self::Speaking(_) => {
                let message = answer.into_text().unwrap_or_default();
                self.end(format_event(None, None, &message)).await;
            }
            Self::Silent(_) | Self::Over => self.answer(answer.into()),
        }
    }

    /// Says `event`, which nothing follows.
    pub(crate) async fn end(&mut self, event: Bytes) {
        self.say(event).await;
        *self = Self::Over;
    }

    /// Waits until the client hangs up.
    pub(crate) async fn gone(&mut self) {
        match self {
            Self::Silent(sender) => sender.closed().await,
            Self::Speaking(sender) => sender.closed().await,
            Self::Over => {}
        }
    }
}

/// One event as text, under the id that the client may come back with.
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
        out.begin(|stream| {
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
            assert!(matches!(out, ResponseSender::Speaking(_)));
            out.say(Bytes::from_static(b"data:\n\n")).await;
        }
        assert!(matches!(out, ResponseSender::Over));
        out.gone().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_says_that_it_lives() {
        let (mut out, body) = begun();
        let mut heard = body.into_data_stream();
        assert_eq!(heard.next().await.unwrap().unwrap(), ":\n\n");
        out.say(format_event(None, None, "1")).await;
        assert_eq!(
            heard.next().await.unwrap().unwrap(),
            "event: message\ndata: 1\n\n"
        );
    }

    #[tokio::test]
    async fn nothing_follows_the_last_word() {
        let (mut out, body) = begun();
        let id = serde_json::value::to_raw_value(&7).unwrap();
        out.finish(Answer::empty(&id)).await;
        out.say(format_event(None, None, "late")).await;
        let heard = to_bytes(body, 1_000).await.unwrap();
        let heard = std::str::from_utf8(&heard).unwrap();
        assert!(heard.contains(r#""result":{}"#) && !heard.contains("late"));
    }
}
