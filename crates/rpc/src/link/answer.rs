//! The outcome of sending a call to one replica.

use std::error::Error as _;
use std::fmt::Debug;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tonic::body::Body;
use tonic::{Code, ConnectError, Status};

use crate::status::PUSHBACK;

/// Maximum number of bytes of a single-message response that are buffered until it is complete. A larger one is
/// passed on as it arrives.
const HELD: usize = 1 << 20;

/// The outcome of one attempt of a call.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The server responded, possibly with an error.
    Answered(Response<Body>),
    /// The server responded that it is unavailable.
    Unavailable(Response<Body>),
    /// No server received the call.
    Unsent,
    /// The connection was lost, and it is unknown whether the server executed the call.
    Lost,
    /// The server did not respond in time, and the call is sent to another replica.
    Silent,
}

/// The time after which an unavailable server may be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushback {
    /// The server does not specify it.
    None,
    /// After this number of milliseconds.
    After(u64),
    /// Never.
    Never,
}

impl Pushback {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        match headers.get(PUSHBACK).map(|value| value.to_str()) {
            None => Self::None,
            // The proposal defines that a negative or invalid number means never.
            Some(text) => text
                .ok()
                .and_then(|text| text.parse().ok())
                .map_or(Self::Never, Self::After),
        }
    }
}

/// Returns the outcome for an error of the transport.
pub(super) fn classify_error(error: &tonic::transport::Error) -> AttemptOutcome {
    let mut source = error.source();
    while let Some(cause) = source {
        let unsent = cause.is::<ConnectError>()
            || cause.downcast_ref().is_some_and(hyper::Error::is_canceled)
            || cause.downcast_ref().is_some_and(not_taken);
        if unsent {
            return AttemptOutcome::Unsent;
        }
        source = cause.source();
    }
    AttemptOutcome::Lost
}

/// Returns whether the server reported that it did not process the stream: it refused the stream, or sent GOAWAY before it.
fn not_taken(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns the outcome according to the headers of a response.
pub(super) fn classify_response(response: Response<Body>) -> AttemptOutcome {
    if is_unavailable(response.headers()) {
        AttemptOutcome::Unavailable(response)
    } else {
        AttemptOutcome::Answered(response)
    }
}

/// Reads a single-message response to its end, so that a connection that breaks in between is detected before the caller
/// gets a part of the response.
pub(super) async fn buffer_response(response: Response<Body>) -> AttemptOutcome {
    let (head, mut body) = response.into_parts();
    let mut frames: Vec<Result<Frame<Bytes>, Status>> = Vec::with_capacity(2);
    let mut held = 0;
    let mut unavailable = is_unavailable(&head.headers);
    while held <= HELD {
        match body.frame().await {
            None => break,
            Some(Err(_)) => return AttemptOutcome::Lost,
            Some(Ok(frame)) => {
                held += frame.data_ref().map_or(0, Bytes::len);
                unavailable |= frame.trailers_ref().is_some_and(is_unavailable);
                frames.push(Ok(frame));
            }
        }
    }
    let frames = stream::iter(frames).chain(BodyStream::new(body));
    let response = Response::from_parts(head, Body::new(StreamBody::new(frames)));
    if unavailable {
        AttemptOutcome::Unavailable(response)
    } else {
        AttemptOutcome::Answered(response)
    }
}

fn is_unavailable(headers: &HeaderMap) -> bool {
    headers
        .get(Status::GRPC_STATUS)
        .is_some_and(|code| Code::from_bytes(code.as_bytes()) == Code::Unavailable)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn response(frames: Vec<Frame<Bytes>>, end: Option<Status>) -> Response<Body> {
        let frames = frames.into_iter().map(Ok).chain(end.map(Err));
        Response::new(Body::new(StreamBody::new(stream::iter(frames))))
    }

    fn data(length: usize) -> Frame<Bytes> {
        Frame::data(Bytes::from(vec![7; length]))
    }

    fn trailers(code: &'static str) -> Frame<Bytes> {
        let code = HeaderValue::from_static(code);
        let trailers = [(http::HeaderName::from_static("grpc-status"), code)];
        Frame::trailers(trailers.into_iter().collect())
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_was_lost_and_a_whole_one_stays_as_it_is() {
        let broken = response(vec![data(10)], Some(Status::unknown("reset")));
        assert!(matches!(
            buffer_response(broken).await,
            AttemptOutcome::Lost
        ));
        let complete = response(vec![data(10), trailers("0")], None);
        let AttemptOutcome::Answered(answered) = buffer_response(complete).await else {
            panic!("it was whole");
        };
        let body = answered.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes().len(), 10);
    }

    #[tokio::test]
    async fn more_than_is_held_is_passed_on_as_it_comes() {
        let frames = vec![data(HELD), data(1), data(HELD), trailers("0")];
        let AttemptOutcome::Answered(answered) = buffer_response(response(frames, None)).await
        else {
            panic!("it was whole");
        };
        let body = answered.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), 2 * HELD + 1);
    }

    #[tokio::test]
    async fn a_server_may_say_at_the_end_that_it_cannot() {
        let late = buffer_response(response(vec![trailers("14")], None)).await;
        assert!(matches!(late, AttemptOutcome::Unavailable(_)));
        let refused = buffer_response(response(vec![trailers("7")], None)).await;
        assert!(matches!(refused, AttemptOutcome::Answered(_)));
    }

    #[test]
    fn a_pushback_that_is_no_number_of_milliseconds_means_not_at_all() {
        let pushback = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            let name = http::HeaderName::from_static(PUSHBACK);
            Pushback::from_headers(&HeaderMap::from_iter([(name, value)]))
        };
        assert_eq!(Pushback::from_headers(&HeaderMap::new()), Pushback::None);
        assert_eq!(pushback("0"), Pushback::After(0));
        assert_eq!(pushback("1500"), Pushback::After(1500));
        for no in ["-1", "", "soon", "1.5"] {
            assert_eq!(pushback(no), Pushback::Never, "{no:?}");
        }
    }
}
