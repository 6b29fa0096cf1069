//! Listening for changed lists, where that takes a request of its own.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use super::backoff::Backoff;
use super::error::{RpcError, UpstreamError};
use super::events::Events;
use super::message::{Part, Request};

/// The pause before listening again.
const PAUSE: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
};

/// A stream that was open for so long did not fail.
const LASTED: Duration = Duration::from_mins(1);

pub(super) fn request() -> Request<'static> {
    // A server acknowledges those of them that it has.
    let wanted = Part::Json(json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
    }));
    Request::new("subscriptions/listen", vec![("notifications", wanted)])
}

/// Listens again and again by `once`, for as long as the server offers it.
pub(super) async fn forever<F>(events: &Events, once: impl Fn() -> F + Send)
where
    F: Future<Output = Result<(), UpstreamError>> + Send,
{
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match once().await {
            Err(UpstreamError::Rpc(error)) => return refused(events, &error),
            Err(UpstreamError::Status(400..=499) | UpstreamError::Gone) => return,
            Ok(()) | Err(_) => {}
        }
        failures = if began.elapsed() < LASTED {
            failures + 1
        } else {
            1
        };
        tokio::time::sleep(PAUSE.wait(failures, &events.ambient)).await;
        // What changed in between went unseen.
        events.missed();
    }
}

fn refused(events: &Events, error: &RpcError) {
    warn!(
        upstream = events.upstream,
        code = error.code,
        "an upstream server announces changes of its lists but lets nobody listen"
    );
}
