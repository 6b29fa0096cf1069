//! Calls to a service in this process as functions, with the same steps that the stack performs for gRPC calls.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use tracing::{Instrument, Span};

use crate::call_error::CallError;
use crate::methods::Method;
use crate::peer::Peer;
use crate::red::CallMeasurement;
use crate::{access, deadline, status};

/// A method of a service in this process, for the calls of one peer.
#[derive(Debug, Clone)]
pub(crate) struct LocalMethod<L> {
    pub(crate) service: L,
    /// The method, or the error if the peer may not call it.
    method: Result<&'static Method, CallError>,
}

impl<L> LocalMethod<L> {
    /// Creates the method at `path` of the service, for calls by `caller`.
    pub(crate) fn new(service: L, caller: Peer, path: &str) -> Self {
        Self {
            service,
            method: access::check_peer(path, caller).map_err(CallError::from),
        }
    }

    /// Awaits `work`, which calls the method. It may take `limit`, or the time left of the call that is being
    /// served, if that is less.
    pub(crate) fn call<T, W>(
        &self,
        limit: Duration,
        work: W,
    ) -> impl Future<Output = Result<T, CallError>> + use<T, W, L>
    where
        W: Future<Output = Result<T, CallError>>,
    {
        let method = self.method.clone();
        async move {
            let method = method?;
            let (answer, mut measured) = begin(method, span(method), limit, work).await?;
            measured.set_outcome(None);
            Ok(answer)
        }
    }

    /// Awaits `work`, which calls the method and returns a stream. The stream must begin within `limit`.
    pub(crate) async fn open<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<BoxStream<'static, Result<T, CallError>>, CallError>>,
    ) -> Result<LocalStream<T>, CallError> {
        let method = self.method.clone()?;
        let (events, measured) = begin(method, span(method), limit, work).await?;
        Ok(LocalStream { events, measured })
    }
}

/// Returns the span of a call of `method`.
pub(crate) fn span(method: &Method) -> Span {
    tracing::debug_span!("rpc", rpc.method = method.path.trim_start_matches('/'))
}

/// Awaits `work` with the same steps in the same order as the stack, from the span on. Returns its result, and the measurement of
/// the call, which continues.
pub(crate) async fn begin<T>(
    method: &'static Method,
    span: Span,
    limit: Duration,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<(T, CallMeasurement), CallError> {
    let mut measured = CallMeasurement::begin(method.path, &span);
    let work = AssertUnwindSafe(work).catch_unwind();
    let answer = match deadline::within(limit, work).instrument(span).await {
        Some(Ok(answer)) => answer,
        Some(Err(_)) => {
            tracing::error!("a request panicked");
            Err(status::internal().into())
        }
        None => Err(CallError::late()),
    };
    if let Err(error) = &answer {
        measured.set_outcome(Some(error.reason()));
    }
    answer.map(|answer| (answer, measured))
}

/// The response stream of a call, which is measured until its end. A panic in the stream is not caught here.
pub(crate) struct LocalStream<T> {
    events: BoxStream<'static, Result<T, CallError>>,
    measured: CallMeasurement,
}

impl<T> Stream for LocalStream<T> {
    type Item = Result<T, CallError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { events, measured } = self.get_mut();
        let polled = measured.in_span(|| events.poll_next_unpin(context));
        match &polled {
            Poll::Ready(Some(Err(error))) => measured.set_outcome(Some(error.reason())),
            Poll::Ready(None) => measured.set_outcome(None),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }
}
