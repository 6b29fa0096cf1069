//! What surrounds every generated server, in process and behind a socket alike.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;
use tracing::Instrument;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_telemetry::trace_context;

use crate::access::{self, Trust};
use crate::in_flight::InFlight;
use crate::red::Measured;
use crate::status::{internal, with_reason};

/// A generated server in its surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Stack<S> {
    server: S,
    trust: Trust,
    in_flight: InFlight,
}

impl<S> Stack<S> {
    pub(crate) fn new(server: S, trust: Trust) -> Self {
        Self {
            server,
            trust,
            in_flight: InFlight::new(),
        }
    }

    /// The calls begun and not finished.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }
}

impl<S: NamedService> NamedService for Stack<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Stack<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.server.poll_ready(context)
    }

    /// The ordered list.
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // 1. Access first: a peer that may not call learns nothing, and costs nothing.
        let method = match access::check(&request, self.trust) {
            Ok(method) => method,
            Err(refusal) => return Box::pin(async move { Ok(refusal.into_http()) }),
        };
        // 2. The count: a server that is told to stop finishes what it has begun.
        let call = self.in_flight.begin(request.uri());
        // 3. The span joins the caller's trace, and covers all that follows.
        let span = tracing::debug_span!("rpc", rpc.method = method.trim_start_matches('/'));
        trace_context::adopt(&span, request.headers());
        // 4. The measure within the span, so that an exemplar leads to it; all that is refused below counts as well.
        let measured = Measured::begin(method, &span);
        // 5. The deadline, because tonic enforces it only on a socket.
        let deadline = deadline(request.headers());
        // 6. A panic becomes an answer: it must not take the caller in the same process with it.
        let answer = AssertUnwindSafe(self.server.call(request)).catch_unwind();
        let within = async move {
            let caught = match deadline {
                Some(limit) => match tokio::time::timeout(limit, answer).await {
                    Ok(caught) => caught,
                    Err(_) => return Ok(late().into_http()),
                },
                None => answer.await,
            };
            caught.unwrap_or_else(|_| {
                tracing::error!("a request ended in a panic");
                Ok(internal().into_http())
            })
        };
        Box::pin(
            within
                .map_ok(|response| call.until_sent(measured.until_sent(response)))
                .instrument(span),
        )
    }
}

fn late() -> tonic::Status {
    with_reason(
        ErrorReason::DeadlineExceeded,
        "the deadline of the call passed",
    )
}

/// The time left by `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount * 3_600),
        'M' => Duration::from_secs(amount * 60),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_header_is_read_as_grpc_writes_it() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            deadline(&headers)
        };
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(
            read("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3_600))
        );
        for bad in ["", "S", "123456789S", "-1S", "1x", "1.5S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
