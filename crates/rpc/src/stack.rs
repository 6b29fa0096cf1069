//! The middleware of every generated server, in process and behind a socket.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{FutureExt, TryFutureExt};
use http::{Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;
use tracing::Instrument;
use wardgate_resilience::concurrency::Limiter;
use wardgate_telemetry::trace_context;

use crate::access::{self, Trust};
use crate::deadline;
use crate::in_flight::{self, InFlight};
use crate::local;
use crate::methods::{Method, ResponseKind};
use crate::red::CallMeasurement;
use crate::status::{internal, overload_status};
use crate::streamed_calls::StreamedCalls;

/// A generated server with its middleware.
#[derive(Debug, Clone)]
pub(crate) struct Stack<S> {
    server: S,
    trust: Trust,
    in_flight: InFlight,
    /// The concurrency limiter, or `None` to accept all calls.
    limiter: Option<Limiter>,
}

impl<S> Stack<S> {
    /// Wraps a generated server.
    pub(crate) fn new(server: S, trust: Trust) -> Self {
        Self {
            server,
            trust,
            in_flight: InFlight::new(),
            limiter: None,
        }
    }

    /// Sets the concurrency limiter.
    pub(crate) fn with_limiter(self, limiter: Option<Limiter>) -> Self {
        Self { limiter, ..self }
    }

    /// Returns the counter of calls in flight.
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

    /// Handles a request in seven steps, whose order matters.
    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // 1. Access check: a peer that may not call the method learns nothing and causes no work.
        let method = match access::check(&request, self.trust) {
            Ok(method) => method,
            Err(refusal) => return Box::pin(async move { Ok(refusal.into_http()) }),
        };
        if method.answer == ResponseKind::Results {
            // Each message of the stream is a call, which has the other steps.
            let calls = StreamedCalls {
                method,
                in_flight: self.in_flight.clone(),
                limiter: self.limiter.clone(),
            };
            request.extensions_mut().insert(calls);
            return Box::pin(self.server.call(request));
        }
        // 2. Count of calls in flight: a server that shuts down finishes the calls that it has begun.
        let call = self.in_flight.begin(method.path);
        // 3. Span: it joins the caller's trace and covers all following steps.
        let span = local::span(method);
        trace_context::adopt(&span, request.headers());
        // 4. Measurement, within the span so that an exemplar refers to it. Calls that are refused below are measured too.
        let measured = CallMeasurement::begin(method.path, &span);
        // 5. Deadline, because tonic enforces it only for calls over a socket.
        let limit = deadline::parse_timeout(request.headers());
        // 6. Concurrency limit: excess calls are refused before any work is done for them.
        let limiter = self.limiter.clone().filter(|_| is_limited(method));
        // 7. Panic handler: a panic becomes an error response, so that it does not end a caller in the same process.
        let next = self.server.clone();
        let mut server = std::mem::replace(&mut self.server, next);
        let answer = async move {
            let place = match limiter {
                Some(limiter) => match limiter.enter("", "").await {
                    Ok(slot) => Some((slot, method.path)),
                    Err(refused) => return Ok(overload_status(&refused).into_http()),
                },
                None => None,
            };
            let response = AssertUnwindSafe(server.call(request)).catch_unwind().await;
            let response = response.unwrap_or_else(|_| {
                tracing::error!("a request panicked");
                Ok(internal().into_http())
            })?;
            Ok(call.until_sent(response, place))
        };
        let within = async move {
            match limit {
                Some(limit) => match deadline::within(limit, answer).await {
                    Some(answered) => answered,
                    None => Ok(deadline::late().into_http()),
                },
                None => answer.await,
            }
        };
        let within = within.map_ok(|response| measured.until_sent(response));
        Box::pin(within.instrument(span))
    }
}

/// Returns whether calls of `method` are subject to the concurrency limit. Streams that last as long as their client occupy no
/// slot, and operators are never refused, because they may be resolving the overload.
fn is_limited(method: &Method) -> bool {
    !in_flight::is_watch(method.path) && !method.is_for_operators()
}
