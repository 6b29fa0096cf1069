//! Notifications about changed lists and resources, for the lifetime of a connection.
//!
//! ```text
//!   from 2026-07-28   one `subscriptions/listen` for all notifications; for another set, a new request begins before the
//!                     old one ends, so that nothing is missed in between
//!   before            the standalone stream (GET, or standard output), and `resources/subscribe` for each resource
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use wardgate_domain::Ambient;
use wardgate_mcp::Era;

use super::backoff::Backoff;
use super::era::Handshake;
use super::error::{UpstreamError, UpstreamRpcError};
use super::events::Events;
use super::message::{MemberValue, UpstreamRequest};

/// Delay before listening again.
const PAUSE: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
};

/// Duration after which an open stream does not count as failed.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// Delay between a change of the set of resources and the request for it, so that many changes lead to one request.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Maximum time until a server begins to send notifications, or responds to a request for one resource.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between the beginning of a request and the end of the request that it replaces.
const REPLACED_REQUEST_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent requests for resources.
const AT_ONCE: usize = 8;

/// A connection over which a client can listen.
pub(super) trait ListenTransport: Clone + Send + Sync + 'static {
    /// Sends a request, and waits for the response without a time limit. Dropping the future ends the request.
    fn send_request(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> impl Future<Output = Result<Box<RawValue>, UpstreamError>> + Send;

    /// Reads the standalone stream of a legacy server until its end.
    fn read_standalone_stream(&self) -> impl Future<Output = Result<(), UpstreamError>> + Send;
}

/// Listens until the future is dropped.
pub(super) async fn run_listener<L: ListenTransport>(
    transport: L,
    events: Arc<Events>,
    handshake: Handshake,
) {
    events.subscriptions.reset_statuses();
    match handshake.era {
        Era::Modern => modern(&transport, &events, handshake).await,
        Era::Legacy => legacy(&transport, &events, handshake).await,
    }
}

async fn modern<L: ListenTransport>(transport: &L, events: &Arc<Events>, handshake: Handshake) {
    let subscriptions = &events.subscriptions;
    let mut changes = subscriptions.uri_changes();
    let mut listening: Option<ListenRequest> = None;
    loop {
        let uris = uris_to_request(events, handshake);
        let is_listened_to = listening.as_ref().map(|it| &it.uris);
        if is_listened_to != Some(&uris) {
            if handshake.announces || !uris.is_empty() {
                if let Some(task) = begin(transport, events, handshake.announces, &uris).await {
                    listening = Some(ListenRequest {
                        uris,
                        _task: task,
                        _earlier: listening.take().map(end_soon),
                    });
                }
            } else {
                listening = None;
            }
        }
        wait_for_change(&mut changes).await;
    }
}

/// A listening request that is open or is being repeated.
struct ListenRequest {
    uris: BTreeSet<String>,
    _task: AbortOnDropHandle<()>,
    /// Ends the previous request.
    _earlier: Option<AbortOnDropHandle<()>>,
}

/// Begins to listen, and waits until the server has begun or a timeout passes. Returns `None` if the server refuses. Resources
/// that the server has not accepted by then are refused.
async fn begin<L: ListenTransport>(
    transport: &L,
    events: &Arc<Events>,
    announces: bool,
    uris: &BTreeSet<String>,
) -> Option<AbortOnDropHandle<()>> {
    let mut begun = events.subscriptions.stream_starts();
    begun.mark_unchanged();
    let task = {
        let (transport, events, uris) = (transport.clone(), Arc::clone(events), uris.clone());
        async move {
            let once = || async {
                let outcome = transport.send_request(&request(announces, &uris)).await;
                outcome.map(drop)
            };
            listen_until_refused(&events, once).await;
        }
    };
    let mut task = AbortOnDropHandle::new(tokio::spawn(task));
    let is_open = tokio::select! {
        _ = begun.changed() => true,
        _ = &mut task => false,
        () = sleep(START_TIMEOUT) => true,
    };
    events.subscriptions.record_refusal(uris);
    is_open.then_some(task)
}

/// Ends `earlier` after a delay, because notifications may still be arriving on it.
fn end_soon(earlier: ListenRequest) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        sleep(REPLACED_REQUEST_DELAY).await;
        drop(earlier);
    }))
}

fn request(announces: bool, uris: &BTreeSet<String>) -> UpstreamRequest<'static> {
    // A server acknowledges those lists that it supports.
    let mut notifications = json!({});
    if announces {
        for list in [
            "toolsListChanged",
            "promptsListChanged",
            "resourcesListChanged",
        ] {
            notifications[list] = true.into();
        }
    }
    if !uris.is_empty() {
        notifications["resourceSubscriptions"] = json!(uris);
    }
    UpstreamRequest::new(
        "subscriptions/listen",
        vec![("notifications", MemberValue::Json(notifications))],
    )
}

async fn legacy<L: ListenTransport>(transport: &L, events: &Arc<Events>, handshake: Handshake) {
    let subscriptions = &events.subscriptions;
    let mut changes = subscriptions.uri_changes();
    let mut standalone: Option<StandaloneStream> = None;
    let mut subscribed = BTreeSet::new();
    loop {
        let uris = uris_to_request(events, handshake);
        if standalone.is_none() && (handshake.announces || !uris.is_empty()) {
            standalone = Some(open_standalone_stream(transport, events).await);
        }
        if let Some(None) = standalone {
            subscriptions.record_refusal(&uris);
        } else {
            let gone: Vec<_> = subscribed.difference(&uris).cloned().collect();
            for uri in gone {
                // After a failure, the server continues to send notifications that have no listener.
                let _ = request_resource(transport, "resources/unsubscribe", &uri).await;
                subscribed.remove(&uri);
            }
            let new = uris.difference(&subscribed).cloned();
            let requests = new.map(|uri| async {
                let outcome = request_resource(transport, "resources/subscribe", &uri).await;
                if outcome.is_ok() {
                    subscriptions.record_acceptance([uri.as_str()]);
                } else {
                    subscriptions.record_refusal([&uri]);
                }
                outcome.is_ok().then_some(uri)
            });
            let accepted: Vec<_> = stream::iter(requests)
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            subscribed.extend(accepted.into_iter().flatten());
        }
        wait_for_change(&mut changes).await;
    }
}

/// Subscribes to the resources on a further connection to a legacy server, which calls of clients use, because a
/// server may notify only the session whose call changed a resource. Whether the server accepts a resource is
/// determined on the plain connection.
pub(super) async fn run_resource_listener<L: ListenTransport>(
    transport: L,
    events: Arc<Events>,
    handshake: Handshake,
) {
    if !handshake.declares.resource_subscriptions {
        return;
    }
    let mut changes = events.subscriptions.uri_changes();
    let mut subscribed = BTreeSet::new();
    loop {
        let uris = events.subscriptions.listened_uris();
        let gone: Vec<_> = subscribed.difference(&uris).cloned().collect();
        for uri in gone {
            let _ = request_resource(&transport, "resources/unsubscribe", &uri).await;
        }
        let new: Vec<_> = uris.difference(&subscribed).cloned().collect();
        let requests = new.into_iter().map(|uri| async {
            // A refused resource is not requested again until its listeners are gone and new ones come.
            let uri = uri;
            let _ = request_resource(&transport, "resources/subscribe", &uri).await;
        });
        stream::iter(requests)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
        subscribed = uris;
        wait_for_change(&mut changes).await;
    }
}

/// The task that reads the standalone stream, or `None` if the server offers no such stream.
type StandaloneStream = Option<AbortOnDropHandle<()>>;

/// Opens the standalone stream, and waits until it is open or refused.
async fn open_standalone_stream<L: ListenTransport>(
    transport: &L,
    events: &Arc<Events>,
) -> StandaloneStream {
    let mut begun = events.subscriptions.stream_starts();
    begun.mark_unchanged();
    let task = {
        let (transport, events) = (transport.clone(), Arc::clone(events));
        async move { listen_until_refused(&events, || transport.read_standalone_stream()).await }
    };
    let mut task = AbortOnDropHandle::new(tokio::spawn(task));
    tokio::select! {
        _ = begun.changed() => {}
        _ = &mut task => return None,
        () = sleep(START_TIMEOUT) => {}
    }
    Some(task)
}

/// Sends a request for one resource.
async fn request_resource<L: ListenTransport>(
    transport: &L,
    method: &'static str,
    uri: &str,
) -> Result<(), UpstreamError> {
    let request = UpstreamRequest::new(method, vec![("uri", MemberValue::Text(uri))]);
    let outcome = timeout(START_TIMEOUT, transport.send_request(&request)).await;
    outcome.unwrap_or(Err(UpstreamError::Timeout)).map(drop)
}

/// Returns the resources to request from the server. If the server does not support subscriptions, refuses all of them.
fn uris_to_request(events: &Events, handshake: Handshake) -> BTreeSet<String> {
    let uris = events.subscriptions.uris();
    if handshake.declares.resource_subscriptions {
        return uris;
    }
    events.subscriptions.record_refusal(&uris);
    BTreeSet::new()
}

/// Waits until the set of resources changes.
async fn wait_for_change(changes: &mut watch::Receiver<u64>) {
    // The change cannot fail because the events hold the sender.
    let _ = changes.changed().await;
    sleep(DEBOUNCE).await;
    changes.mark_unchanged();
}

/// Listens repeatedly with `once`, as long as the server does not refuse.
async fn listen_until_refused<F>(events: &Events, once: impl Fn() -> F + Send)
where
    F: Future<Output = Result<(), UpstreamError>> + Send,
{
    let broken_off = || events.subscriptions.record_interruption();
    // Changes in between were not noticed.
    let again = || events.report_possible_changes();
    match until_refused(&events.ambient, once, broken_off, again).await {
        UpstreamError::Rpc(error) => log_listen_refusal(events, &error),
        // The next request for the lists will find out that it needs a new connection.
        UpstreamError::Gone => events.report_possible_changes(),
        _ => {}
    }
}

/// Receives the requests of a legacy server on its standalone stream, as long as the server offers the stream. Cancels `begun`
/// once the stream is open, or cannot be opened.
pub(super) async fn run_request_listener<F>(
    ambient: &Ambient,
    begun: &CancellationToken,
    once: impl Fn() -> F + Send,
) where
    F: Future<Output = Result<(), UpstreamError>> + Send,
{
    until_refused(ambient, once, || begun.cancel(), || ()).await;
    begun.cancel();
}

/// Repeats `once`, with increasing delays, until the server refuses. Returns the refusal.
async fn until_refused<F>(
    ambient: &Ambient,
    once: impl Fn() -> F + Send,
    broken_off: impl Fn() + Send,
    again: impl Fn() + Send,
) -> UpstreamError
where
    F: Future<Output = Result<(), UpstreamError>> + Send,
{
    let mut failures = 0;
    loop {
        let began = Instant::now();
        if let Err(
            refusal @ (UpstreamError::Rpc(_)
            | UpstreamError::Status(400..=499)
            | UpstreamError::Gone),
        ) = once().await
        {
            return refusal;
        }
        broken_off();
        failures = if began.elapsed() < HEALTHY_AFTER {
            failures + 1
        } else {
            1
        };
        sleep(PAUSE.wait(failures, ambient)).await;
        again();
    }
}

fn log_listen_refusal(events: &Events, error: &UpstreamRpcError) {
    warn!(
        upstream = events.upstream,
        code = error.code,
        "an upstream server announces changes but does not support listening"
    );
}
