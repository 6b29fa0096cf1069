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
use wardgate_telemetry::trace_context;

use crate::access::{self, Trust};
use crate::deadline;
use crate::in_flight::InFlight;
use crate::status::internal;

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
        if let Err(refusal) = access::check(&request, self.trust) {
            return Box::pin(async move { Ok(refusal.into_http()) });
        }
        // 2. The count: a server that is told to stop finishes what it has begun.
        let call = self.in_flight.begin(request.uri());
        // 3. The span joins the caller's trace, and covers all that follows.
        let span = tracing::debug_span!("rpc", rpc.method = request.uri().path());
        trace_context::adopt(&span, request.headers());
        // 4. The deadline, because tonic enforces it only on a socket.
        let limit = deadline::of(request.headers());
        // 5. A panic becomes an answer: it must not take the caller in the same process with it.
        let answer = AssertUnwindSafe(self.server.call(request)).catch_unwind();
        let within = async move {
            let caught = match limit {
                Some(limit) => match deadline::within(limit, answer).await {
                    Some(caught) => caught,
                    None => return Ok(deadline::late().into_http()),
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
                .map_ok(|response| call.until_sent(response))
                .instrument(span),
        )
    }
}
