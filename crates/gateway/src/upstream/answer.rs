//! The way back to the client: one answer, or the beginning of a stream and its events.

use std::fmt::Write;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::sync::{mpsc, oneshot};
use wardgate_rpc::client::{RelayEvent, RelayHead};

use crate::reply::Answer;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// No proxy may hold events back.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Events that wait for a slow client before the upstream has to.
const AHEAD: usize = 16;

/// How long an event waits for a client that reads nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever tells the story speaks to the client through this.
pub(super) enum Out {
    /// Nothing was said yet.
    Silent(oneshot::Sender<Response>),
    Speaking(mpsc::Sender<Bytes>),
    /// All was said, or nobody listens.
    Over,
}

/// The way out, and the response that comes of it.
pub(super) fn channel() -> (Out, oneshot::Receiver<Response>) {
    let (sender, receiver) = oneshot::channel();
    (Out::Silent(sender), receiver)
}

impl Out {
    /// Gives the whole answer. Whether anyone is there to take it makes no difference.
    pub(super) fn answer(&mut self, response: Response) {
        if let Self::Silent(sender) = std::mem::replace(self, Self::Over) {
            let _ = sender.send(response);
        }
    }

    /// Begins a stream.
    pub(super) fn begin(&mut self, head: &RelayHead, session: Option<&str>) {
        let (sender, mut receiver) = mpsc::channel(AHEAD);
        let events = stream::poll_fn(move |context| receiver.poll_recv(context));
        let events = events.map(Ok::<_, std::convert::Infallible>);
        let mut response = (status(head), Body::from_stream(events)).into_response();
        let headers = response.headers_mut();
        let stream = HeaderValue::from_static("text/event-stream");
        headers.insert(header::CONTENT_TYPE, stream);
        let no_store = HeaderValue::from_static("no-store");
        headers.insert(header::CACHE_CONTROL, no_store);
        headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
        name_session(&mut response, session);
        self.answer(response);
        *self = Self::Speaking(sender);
    }

    /// Says `event`. To a client that is gone, or has read nothing for a while, it says nothing: the story has to go
    /// on to its end.
    pub(super) async fn say(&mut self, event: Bytes) {
        if let Self::Speaking(sender) = self
            && sender.send_timeout(event, PATIENCE).await.is_err()
        {
            *self = Self::Over;
        }
    }

    /// Says what went wrong, in the way that is left.
    pub(super) async fn fail(&mut self, answer: Answer) {
        match self {
            Self::Speaking(_) => {
                let message = answer.into_text().unwrap_or_default();
                self.say(event(None, None, &message)).await;
            }
            Self::Silent(_) | Self::Over => self.answer(answer.into_response()),
        }
    }

    /// Waits until the client hangs up.
    pub(super) async fn gone(&mut self) {
        match self {
            Self::Silent(sender) => sender.closed().await,
            Self::Speaking(sender) => sender.closed().await,
            Self::Over => {}
        }
    }
}

/// A whole answer.
pub(super) fn whole(head: &RelayHead, session: Option<&str>, body: Option<String>) -> Response {
    let mut response = match body {
        Some(body) => {
            let json = HeaderValue::from_static("application/json");
            (status(head), [(header::CONTENT_TYPE, json)], body).into_response()
        }
        None => status(head).into_response(),
    };
    name_session(&mut response, session);
    let wait = head.retry_after.as_deref();
    if let Some(wait) = wait.and_then(|wait| HeaderValue::from_str(wait).ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

/// The upstream's own status. What it says of the gateway's credentials is not for the client.
fn status(head: &RelayHead) -> StatusCode {
    match StatusCode::from_u16(head.status) {
        Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) | Err(_) => StatusCode::BAD_GATEWAY,
        Ok(status) => status,
    }
}

fn name_session(response: &mut Response, session: Option<&str>) {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.headers_mut().insert(SESSION, id);
    }
}

/// One event as text, under the id that the client may come back with.
pub(super) fn event(id: Option<&str>, of: Option<&RelayEvent>, message: &str) -> Bytes {
    let mut text = String::with_capacity(message.len() + 64);
    // Writing to a string cannot fail.
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    if let Some(retry) = of.and_then(|event| event.retry) {
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
    use super::*;

    #[test]
    fn a_message_is_one_event_whatever_ends_its_lines() {
        let told = event(Some("i"), None, "{\r\"a\":\r\n1,\n\"b\":\"\u{2028}\"}");
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
        let (mut out, response) = channel();
        let head = RelayHead {
            status: 200,
            session: None,
            content: wardgate_rpc::client::RelayContent::Events,
            retry_after: None,
        };
        out.begin(&head, None);
        let _unread = response.await.unwrap();
        for _ in 0..=AHEAD {
            assert!(matches!(out, Out::Speaking(_)));
            out.say(Bytes::from_static(b"data:\n\n")).await;
        }
        assert!(matches!(out, Out::Over));
        out.gone().await;
    }
}
