//! What surrounds every generated server, in process and behind a socket alike.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;
use tracing::Instrument;
use wardgate_concurrency::Limiter;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_telemetry::trace_context;

use crate::access::{self, Trust};
use crate::in_flight::{self, InFlight};
use crate::status::{internal, overloaded, with_reason};

/// A generated server in its surroundings.
#[derive(Debug, Clone)]
pub(crate) struct Stack<S> {
    server: S,
    trust: Trust,
    in_flight: InFlight,
    /// None: everything is taken.
    limiter: Option<Limiter>,
}

impl<S> Stack<S> {
    pub(crate) fn new(server: S, trust: Trust) -> Self {
        Self {
            server,
            trust,
            in_flight: InFlight::new(),
            limiter: None,
        }
    }

    /// The same, which turns away what is more than it can do.
    pub(crate) fn limited(self, limiter: Option<Limiter>) -> Self {
        Self { limiter, ..self }
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
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
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
        if let Err(refusal) = access::check(&request, self.trust) {
            return Box::pin(async move { Ok(refusal.into_http()) });
        }
        // 2. The count: a server that is told to stop finishes what it has begun.
        let call = self.in_flight.begin(request.uri());
        // 3. The span joins the caller's trace, and covers all that follows.
        let span = tracing::debug_span!("rpc", rpc.method = request.uri().path());
        trace_context::adopt(&span, request.headers());
        // 4. The deadline, because tonic enforces it only on a socket.
        let deadline = deadline(request.headers());
        // 5. The limit: what is more than can be done is turned away before anything was done for it.
        let limiter = self.limiter.as_ref().filter(|_| is_limited(request.uri()));
        let limiter = limiter.map(|limiter| (limiter.clone(), request.uri().path().to_owned()));
        // 6. A panic becomes an answer: it must not take the caller in the same process with it.
        let next = self.server.clone();
        let mut server = std::mem::replace(&mut self.server, next);
        let answer = async move {
            let place = match limiter {
                Some((limiter, kind)) => match limiter.enter("", "").await {
                    Ok(slot) => Some((slot, kind)),
                    Err(refused) => return Ok(overloaded(&refused).into_http()),
                },
                None => None,
            };
            let response = AssertUnwindSafe(server.call(request)).catch_unwind().await;
            let response = response.unwrap_or_else(|_| {
                tracing::error!("a request ended in a panic");
                Ok(internal().into_http())
            })?;
            Ok(call.until_sent(response, place))
        };
        let within = async move {
            match deadline {
                Some(limit) => match tokio::time::timeout(limit, answer).await {
                    Ok(answered) => answered,
                    Err(_) => Ok(late().into_http()),
                },
                None => answer.await,
            }
        };
        Box::pin(within.instrument(span))
    }
}

/// Streams that last as long as their client hold no place, and nobody who mends something is turned away.
fn is_limited(uri: &Uri) -> bool {
    !in_flight::is_watch(uri) && !access::is_for_operators(uri.path())
}

pub(crate) fn late() -> tonic::Status {
    with_reason(
        ErrorReason::DeadlineExceeded,
        "the deadline of the call passed",
    )
}

/// The time left by `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
pub(crate) fn deadline(headers: &HeaderMap) -> Option<Duration> {
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

/// `left` as `grpc-timeout` has it.
pub(crate) fn timeout(left: Duration) -> HeaderValue {
    const DIGITS: u128 = 100_000_000;
    let units = [(left.as_micros(), 'u'), (left.as_millis(), 'm')];
    let fits = units.into_iter().find(|(amount, _)| *amount < DIGITS);
    let (amount, unit) = fits.unwrap_or((u128::from(left.as_secs()).min(DIGITS - 1), 'S'));
    // Digits and a letter always are a header's value.
    HeaderValue::try_from(format!("{amount}{unit}")).unwrap_or(HeaderValue::from_static("0u"))
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

    #[test]
    fn the_time_that_is_left_survives_the_header() {
        for left in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_micros(99_999_999),
            Duration::from_millis(99_999_999),
            Duration::from_secs(99_999_999),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-timeout"),
                timeout(left),
            )]);
            assert_eq!(deadline(&headers), Some(left));
        }
        assert_eq!(timeout(Duration::MAX), "99999999S");
    }
}
