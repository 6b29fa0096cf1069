//! RED metrics (rate, errors, duration) of every method, with the names of OpenTelemetry's conventions for gRPC.
//!
//! A call lasts until its last message is sent, and its status code follows in the trailers, so the response body is
//! observed while it is sent. Streams that last as long as their client are not measured, because their duration says
//! nothing about the server.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Code;
use tonic::body::Body;
use tracing::Span;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_telemetry::names;

use crate::in_flight;
use crate::status::{code_name, code_of};

/// The measurement of one call, recorded on drop. Watches are not measured.
#[derive(Debug)]
pub(crate) struct CallMeasurement(Option<MeasuredCall>);

/// A call that is being measured.
#[derive(Debug)]
struct MeasuredCall {
    method: &'static str,
    started: Instant,
    /// The span that the exemplar of the measurement refers to.
    span: Span,
    /// The status code of the call. It is `Cancelled` until another code is known, because a call without a code was
    /// abandoned by its caller.
    code: Code,
}

impl CallMeasurement {
    /// Begins the measurement of a call of `method`, a path from the table of methods, so that labels
    /// have a bounded set of values.
    pub(crate) fn begin(method: &'static str, span: &Span) -> Self {
        Self((!in_flight::is_watch(method)).then(|| MeasuredCall {
            method: method.trim_start_matches('/'),
            started: Instant::now(),
            span: span.clone(),
            code: Code::Cancelled,
        }))
    }

    /// Sets the outcome of the call: an error with this reason, or success.
    pub(crate) fn set_outcome(&mut self, error: Option<ErrorReason>) {
        if let Some(call) = &mut self.0 {
            call.code = error.map_or(Code::Ok, code_of);
        }
    }

    /// Runs `work` in the span of the call.
    pub(crate) fn in_span<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(call) => call.span.in_scope(work),
            None => work(),
        }
    }

    /// Continues the measurement until the response is sent or given up.
    pub(crate) fn until_sent(mut self, response: Response<Body>) -> Response<Body> {
        self.read_status(response.headers());
        if self.0.is_none() || response.body().is_end_stream() {
            return response;
        }
        response.map(|body| {
            Body::new(MeasuredBody {
                body,
                measured: self,
            })
        })
    }

    /// Takes the status code from `headers` if they contain it.
    fn read_status(&mut self, headers: &HeaderMap) {
        if let (Some(call), Some(code)) = (&mut self.0, headers.get("grpc-status")) {
            call.code = Code::from_bytes(code.as_bytes());
        }
    }
}

impl Drop for CallMeasurement {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.span.in_scope(|| {
                let labels = [
                    (names::RPC_METHOD, call.method),
                    (names::RPC_CODE, code_name(call.code)),
                ];
                metrics::histogram!(names::RPC_SERVER_SECONDS, &labels)
                    .record(call.started.elapsed());
            });
        }
    }
}

/// A response body whose call is measured until the body is dropped.
struct MeasuredBody {
    body: Body,
    measured: CallMeasurement,
}

impl HttpBody for MeasuredBody {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body, measured } = self.get_mut();
        // A stream does its work while it is polled, which is a part of the call as well.
        let frame = ready!(measured.in_span(|| Pin::new(body).poll_frame(context)));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            measured.read_status(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http::{HeaderValue, StatusCode};
    use http_body_util::{BodyExt, StreamBody};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    const METHOD: &str = "/wardgate.policy.v1.PolicyService/Authorize";

    /// Returns a response with one message followed by a status code.
    fn answer(code: &'static str) -> Response<Body> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(code));
        let frames = [
            Frame::data(bytes::Bytes::from_static(b"message")),
            Frame::trailers(trailers),
        ];
        let frames = futures::stream::iter(frames).map(Ok::<_, tonic::Status>);
        Response::new(Body::new(StreamBody::new(frames)))
    }

    fn begin(method: &'static str) -> CallMeasurement {
        CallMeasurement::begin(method, &Span::none())
    }

    /// Returns the counts by code after `calls`.
    fn count_calls(calls: impl AsyncFnOnce()) -> Vec<String> {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        metrics::with_local_recorder(&recorder, || runtime.unwrap().block_on(calls()));
        let text = handle.render();
        let counts = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("rpc_server_call_duration_seconds_count")?;
            Some(rest.to_owned())
        });
        let mut counts: Vec<_> = counts.collect();
        counts.sort();
        counts
    }

    #[test]
    fn a_call_counts_under_the_code_that_ends_it() {
        let counts = count_calls(async || {
            for code in ["0", "0", "5"] {
                let response = begin(METHOD).until_sent(answer(code));
                response.into_body().collect().await.unwrap();
            }
            let refused = tonic::Status::unavailable("later").into_http();
            assert_eq!(begin(METHOD).until_sent(refused).status(), StatusCode::OK);
            // One response is dropped before its end, the other call before it has a response.
            drop(begin(METHOD).until_sent(answer("0")));
            drop(begin(METHOD));
        });
        let line = |code: &str, count: u32| {
            let method = METHOD.trim_start_matches('/');
            format!("{{rpc_method=\"{method}\",rpc_response_status_code=\"{code}\"}} {count}")
        };
        let expected = [
            line("CANCELLED", 2),
            line("NOT_FOUND", 1),
            line("OK", 2),
            line("UNAVAILABLE", 1),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn what_lasts_as_long_as_its_client_is_not_measured() {
        let counts = count_calls(async || {
            let watch = "/wardgate.policy.v1.PolicyService/WatchVersion";
            drop(begin(watch).until_sent(answer("0")));
        });
        assert!(counts.is_empty(), "{counts:?}");
    }
}
