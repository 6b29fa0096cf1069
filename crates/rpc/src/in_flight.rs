//! The calls a server has begun and not finished, so that it can end once they are.
//!
//! Streams that last as long as their client (health, `Watch…`, and responses that say they are [`Endless`]) do not
//! count: waiting for them would mean never to end.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;
use tonic::body::Body;

/// As an extension of a response: its stream lasts as long as the client likes, so that no end of the server waits
/// for it.
#[derive(Debug, Clone, Copy)]
pub struct Endless;

/// Whether the method at `path` gives a stream that lasts as long as its client.
pub(crate) fn lasts(path: &str) -> bool {
    let method = path.rsplit('/').next().unwrap_or_default();
    method.starts_with("Watch")
}

/// Counts calls; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct InFlight(watch::Sender<usize>);

/// One call, until dropped.
#[derive(Debug)]
pub(crate) struct Call(Option<watch::Sender<usize>>);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Counts a call of the method at `uri`, unless it is a watch.
    pub(crate) fn begin(&self, uri: &Uri) -> Call {
        if lasts(uri.path()) {
            return Call(None);
        }
        self.0.send_modify(|count| *count += 1);
        Call(Some(self.0.clone()))
    }

    /// Waits until no call is open.
    pub(crate) async fn idle(&self) {
        // The sender is held here, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.send_modify(|count| *count -= 1);
        }
    }
}

impl Call {
    /// Keeps the call open until the response is sent or given up.
    pub(crate) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        if response.extensions().get::<Endless>().is_some() {
            return response;
        }
        response.map(|body| Body::new(Counted { body, _call: self }))
    }
}

struct Counted {
    body: Body,
    _call: Call,
}

impl HttpBody for Counted {
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
        let begin = || calls.begin(&Uri::from_static("/package.Service/Method"));
        let body = || Body::new(axum::body::Body::from("not sent yet"));
        let answer = begin().until_sent(Response::new(body()));
        assert!(calls.idle().now_or_never().is_none());
        drop(answer);
        let mut endless = Response::new(body());
        endless.extensions_mut().insert(Endless);
        let _open = begin().until_sent(endless);
        assert!(calls.idle().now_or_never().is_some());
    }
}
