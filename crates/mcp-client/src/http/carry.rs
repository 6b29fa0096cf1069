//! An exchange that is somebody else's: what a client sent goes to the server as it is, and what the server answers
//! comes back as it is.
//!
//! Nothing of the connection that [`Exchange`](super::exchange::Exchange) keeps is used: era, version and session are
//! the client's own.

use std::collections::VecDeque;

use bytes::Bytes;
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::exchange::{EVENT_STREAM, JSON, is};
use super::sse::{Event, Parser};
use super::{Dialer, is_session_id};
use crate::error::UpstreamError;
use crate::message::MAX_MESSAGE_BYTES;
use wardgate_egress::{Body, Response};
use wardgate_mcp::header;

/// What a client sent.
pub struct Outbound {
    /// What is sent.
    pub content: Content,
    /// The protocol version the client says it speaks.
    pub version: Option<HeaderValue>,
    /// The server's own session id.
    pub session: Option<HeaderValue>,
    /// The server's own event id.
    pub last_event: Option<HeaderValue>,
    /// `Mcp-Param-*`.
    pub params: Vec<(HeaderName, HeaderValue)>,
    /// No request waits for its answer. The places of a server may all be held by requests that wait for such a message,
    /// so it needs none; how many there are at the same time is bounded where they are admitted.
    pub is_one_way: bool,
}

/// What it is about.
pub enum Content {
    /// A message of the client.
    Post {
        /// It goes byte for byte, with the client's own id: each exchange is an HTTP request of its own, so ids of
        /// several clients never meet.
        message: Bytes,
        /// The headers in which 2026-07-28 repeats the message's method and what it names.
        repeats: Option<(HeaderValue, Option<HeaderValue>)>,
    },
    /// The client listens.
    Get,
    /// The client ends its session.
    Delete,
}

/// What the server answered.
pub struct ForwardedResponse {
    /// Of the server's response.
    pub status: StatusCode,
    /// The session that the server named.
    pub session: Option<String>,
    /// Seconds, or an HTTP date.
    pub retry_after: Option<String>,
    /// What follows the headers.
    pub answer: Answer,
}

/// The body of a response.
pub enum Answer {
    /// There is none.
    Nothing,
    /// One message.
    Json(Bytes),
    /// An event stream.
    Events(Box<Events>),
}

/// A stream as it comes. Dropped, it tells the server that nobody listens any more.
pub struct Events {
    body: Body,
    parser: Parser,
    ready: VecDeque<Event>,
    /// Among the streams of the source.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// The value of a header that repeats a part of the message.
pub fn repeated(text: &str) -> HeaderValue {
    header::encode_value(text)
}

impl Outbound {
    fn into_request(self, url: url::Url) -> wardgate_egress::Request {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        let mut request = match self.content {
            Content::Post { message, repeats } => {
                let mut request = wardgate_egress::Request::new(Method::POST, url)
                    .body(JSON, message)
                    .header(ACCEPT, both);
                if let Some((method, name)) = repeats {
                    request = request.header(header::METHOD, method);
                    if let Some(name) = name {
                        request = request.header(header::NAME, name);
                    }
                }
                request
            }
            Content::Get => wardgate_egress::Request::new(Method::GET, url)
                .header(ACCEPT, HeaderValue::from_static(EVENT_STREAM)),
            Content::Delete => wardgate_egress::Request::new(Method::DELETE, url),
        };
        // 2025-03-26 does not know the header yet.
        let version = self.version.filter(|version| version > "2025-03-26");
        let terms = [
            (header::PROTOCOL_VERSION, version),
            (header::SESSION_ID, self.session),
            (header::LAST_EVENT_ID, self.last_event),
        ];
        for (name, value) in terms {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let params = self.params.into_iter();
        params
            .fold(request, |request, (name, value)| {
                request.header(name, value)
            })
            .open_ended()
    }
}

impl Dialer {
    /// Carries one exchange up to the answer's head, or to the end of an answer that is no stream.
    pub(crate) async fn carry(
        &self,
        outbound: Outbound,
    ) -> Result<ForwardedResponse, UpstreamError> {
        let request = outbound.into_request(self.url.clone());
        let response = self.client.send(request, None).await?;
        let status = response.status;
        let session = match response.headers.get(header::SESSION_ID) {
            Some(id) if is_session_id(id) => id.to_str().ok().map(str::to_owned),
            Some(_) => {
                return Err(UpstreamError::BadResult(
                    "its session id is not a legal one",
                ));
            }
            None => None,
        };
        let retry_after = retry_after(&response);
        let answer = if status.is_success() && is(&response, EVENT_STREAM) {
            Answer::Events(Box::new(Events {
                body: response.body,
                parser: Parser::new(self.max_bytes.min(MAX_MESSAGE_BYTES)),
                ready: VecDeque::new(),
                place: None,
            }))
        } else {
            timeout(self.timeout, whole(response))
                .await
                .unwrap_or(Err(UpstreamError::Timeout))?
        };
        Ok(ForwardedResponse {
            status,
            session,
            retry_after,
            answer,
        })
    }
}

/// When the server wants to be asked again, where that is one of the two things the header can say.
fn retry_after(response: &Response) -> Option<String> {
    let said = response.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match said.parse::<u64>() {
        Ok(seconds) => Some(seconds.to_string()),
        Err(_) => httpdate::parse_http_date(said)
            .ok()
            .map(httpdate::fmt_http_date),
    }
}

/// An answer that is no stream. A page for people, or an error's that is no end, is no message.
async fn whole(response: Response) -> Result<Answer, UpstreamError> {
    if !is(&response, JSON) {
        return Ok(Answer::Nothing);
    }
    let is_error = !response.status.is_success();
    match response.body.bytes().await.map_err(UpstreamError::from) {
        Ok(body) if body.is_empty() => Ok(Answer::Nothing),
        Ok(body) if body.len() <= MAX_MESSAGE_BYTES => Ok(Answer::Json(body)),
        _ if is_error => Ok(Answer::Nothing),
        outcome => Err(outcome.err().unwrap_or(UpstreamError::TooLarge)),
    }
}

impl Events {
    /// The next event; none once the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, UpstreamError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(chunk) = self.body.chunk().await? else {
                return Ok(None);
            };
            let events = self.parser.feed(&chunk);
            self.ready
                .extend(events.map_err(|_| UpstreamError::TooLarge)?);
        }
    }
}
