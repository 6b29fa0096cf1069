//! What surrounds every generated server, in process and behind a socket alike.

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
use crate::methods::Method;
use crate::red::CallMeasurement;
use crate::status::{internal, overloaded};

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
        let method = match access::check(&request, self.trust) {
            Ok(method) => method,
            Err(refusal) => return Box::pin(async move { Ok(refusal.into_http()) }),
        };
        // 2. The count: a server that is told to stop finishes what it has begun.
        let call = self.in_flight.begin(method.path);
        // 3. The span joins the caller's trace, and covers all that follows.
        let span = tracing::debug_span!("rpc", rpc.method = method.path.trim_start_matches('/'));
        trace_context::adopt(&span, request.headers());
        // 4. The measure within the span, so that an exemplar leads to it; all that is refused below counts as well.
        let measured = CallMeasurement::begin(method.path, &span);
        // 5. The deadline, because tonic enforces it only on a socket.
        let limit = deadline::of(request.headers());
        // 6. The limit: what is more than can be done is turned away before anything was done for it.
        let limiter = self.limiter.clone().filter(|_| is_limited(method));
        // 7. A panic becomes an answer: it must not take the caller in the same process with it.
        let next = self.server.clone();
        let mut server = std::mem::replace(&mut self.server, next);
        let answer = async move {
            let place = match limiter {
                Some(limiter) => match limiter.enter("", "").await {
                    Ok(slot) => Some((slot, method.path)),
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

/// Streams that last as long as their client hold no place, and nobody who mends something is turned away.
fn is_limited(method: &Method) -> bool {
    !in_flight::is_watch(method.path) && !method.is_for_operators()
}
