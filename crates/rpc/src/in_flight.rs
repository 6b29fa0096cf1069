//! The calls that a server has begun and not finished, so that it can wait for them when it shuts down.
//!
//! Streams that last as long as their client (health and `Watch…`) do not count, because a shutdown would wait for them forever.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;
use tonic::body::Body;
use wardgate_resilience::concurrency::Slot;

/// A counter of open calls, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct InFlight(watch::Sender<usize>);

/// An open call, which counts until this guard is dropped.
#[derive(Debug)]
pub(crate) struct CallGuard(Option<watch::Sender<usize>>);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts a call of the method at `path`, unless the method is a watch.
    pub(crate) fn begin(&self, path: &str) -> CallGuard {
        if is_watch(path) {
            return CallGuard(None);
        }
        self.0.send_modify(|count| *count += 1);
        CallGuard(Some(self.0.clone()))
    }

    /// Waits until no call is open.
    pub(crate) async fn idle(&self) {
        // The wait cannot fail because `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Returns whether the response of the method at `path` is a stream that lasts as long as its client.
pub(crate) fn is_watch(path: &str) -> bool {
    let method = path.rsplit('/').next().unwrap_or_default();
    method.starts_with("Watch")
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.send_modify(|count| *count -= 1);
        }
    }
}

impl CallGuard {
    /// Keeps the call counted, and its concurrency slot occupied, until the response is sent or given up.
    pub(crate) fn until_sent(
        self,
        response: Response<Body>,
        place: Option<(Slot, &'static str)>,
    ) -> Response<Body> {
        // The duration of a failed call is not measured, because it says nothing about the duration of the work.
        let has_failed = response.headers().contains_key("grpc-status");
        response.map(|body| {
            Body::new(CountedBody {
                body,
                _call: self,
                place: place.filter(|_| !has_failed),
            })
        })
    }
}

/// A response body whose call counts until the body is dropped.
struct CountedBody {
    body: Body,
    _call: CallGuard,
    /// The concurrency slot of the call, with the kind of the call.
    place: Option<(Slot, &'static str)>,
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if let Some((slot, kind)) = self.place.take() {
            slot.end_call(kind);
        }
    }
}

impl HttpBody for CountedBody {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_server_waits_for_answers_and_for_no_endless_ones() {
        let calls = InFlight::new();
        let begin = || calls.begin("/package.Service/Method");
        let body = || Body::new(axum::body::Body::from("not sent yet"));
        let answer = begin().until_sent(Response::new(body()), None);
        assert!(calls.idle().now_or_never().is_none());
        drop(answer);
        let watch = calls.begin("/wardgate.policy.v1.PolicyService/WatchVersion");
        let _open = watch.until_sent(Response::new(body()), None);
        assert!(calls.idle().now_or_never().is_some());
    }
}
