//! Hearing of changed lists and resources, for as long as a connection lasts.
//!
//! ```text
//!   from 2026-07-28   one `subscriptions/listen` for all that is wanted; another set: a new one, and then the end of
//!                     the old one, so that nothing is missed in between
//!   before            a stream of the server's own (GET, or standard output), and `resources/subscribe` for each
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

/// The pause before listening again.
const PAUSE: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
};

/// A stream that was open for so long did not fail.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// From a change of what is wanted to the request for it, so that many changes take one.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// How long a server may take to begin, or to answer a request for one resource.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// From the begin of a request to the end of the one that it replaces.
const REPLACED_REQUEST_DELAY: Duration = Duration::from_secs(1);

/// Requests for resources that are with a server at a time.
const AT_ONCE: usize = 8;

/// A connection that can carry a request to listen.
pub(super) trait ListenTransport: Clone + Send + Sync + 'static {
    /// Asks, and waits for the answer without a time limit. Dropping the future ends the request.
    fn ask(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> impl Future<Output = Result<Box<RawValue>, UpstreamError>> + Send;

    /// Takes what a legacy server says outside of answers, until it ends the stream of that.
    fn read_standalone_stream(&self) -> impl Future<Output = Result<(), UpstreamError>> + Send;
}

/// Listens until dropped.
pub(super) async fn run_listener<L: ListenTransport>(
    transport: L,
    events: Arc<Events>,
    handshake: Handshake,
) {
    events.subscriptions.reconnected();
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

/// A request to listen that is with a server, or is made again.
struct ListenRequest {
    uris: BTreeSet<String>,
    _task: AbortOnDropHandle<()>,
    /// Ends the one before.
    _earlier: Option<AbortOnDropHandle<()>>,
}

/// Listens, and waits until the server has begun; none where it lets nobody. What it has not taken by then is refused.
async fn begin<L: ListenTransport>(
    transport: &L,
    events: &Arc<Events>,
    announces: bool,
    uris: &BTreeSet<String>,
) -> Option<AbortOnDropHandle<()>> {
    let mut begun = events.subscriptions.begun();
    begun.mark_unchanged();
    let task = {
        let (transport, events, uris) = (transport.clone(), Arc::clone(events), uris.clone());
        async move {
            let once = || async {
                let outcome = transport.ask(&request(announces, &uris)).await;
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
    events.subscriptions.refused(uris);
    is_open.then_some(task)
}

/// Ends `earlier` a little later: what the server said on it may be under way still.
fn end_soon(earlier: ListenRequest) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        sleep(REPLACED_REQUEST_DELAY).await;
        drop(earlier);
    }))
}

fn request(announces: bool, uris: &BTreeSet<String>) -> UpstreamRequest<'static> {
    // A server acknowledges those of them that it has.
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
            subscriptions.refused(&uris);
        } else {
            let gone: Vec<_> = subscribed.difference(&uris).cloned().collect();
            for uri in gone {
                // It tells of one resource more, which nobody is told of.
                let _ = request_resource(transport, "resources/unsubscribe", &uri).await;
                subscribed.remove(&uri);
            }
            let new = uris.difference(&subscribed).cloned();
            let requests = new.map(|uri| async {
                let outcome = request_resource(transport, "resources/subscribe", &uri).await;
                if outcome.is_ok() {
                    subscriptions.accepted([uri.as_str()]);
                } else {
                    subscriptions.refused([&uri]);
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

/// Subscribes on a further connection to a legacy server, which clients call over, to what is wanted: a server may tell
/// that session alone of what its calls changed. Whether it tells of a resource at all, the plain connection finds out.
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
        let uris = events.subscriptions.listened();
        let gone: Vec<_> = subscribed.difference(&uris).cloned().collect();
        for uri in gone {
            let _ = request_resource(&transport, "resources/unsubscribe", &uri).await;
        }
        let new: Vec<_> = uris.difference(&subscribed).cloned().collect();
        let requests = new.into_iter().map(|uri| async {
            // What it does not take is not asked for again before somebody wants it anew.
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

/// What takes a server's words outside of answers; none where it gave no stream for them.
type StandaloneStream = Option<AbortOnDropHandle<()>>;

/// Waits until the server can be heard, or never will be.
async fn open_standalone_stream<L: ListenTransport>(
    transport: &L,
    events: &Arc<Events>,
) -> StandaloneStream {
    let mut begun = events.subscriptions.begun();
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

/// Asks for one resource.
async fn request_resource<L: ListenTransport>(
    transport: &L,
    method: &'static str,
    uri: &str,
) -> Result<(), UpstreamError> {
    let request = UpstreamRequest::new(method, vec![("uri", MemberValue::Text(uri))]);
    let outcome = timeout(START_TIMEOUT, transport.ask(&request)).await;
    outcome.unwrap_or(Err(UpstreamError::Timeout)).map(drop)
}

/// The resources to ask the server for. One that tells of none refuses all.
fn uris_to_request(events: &Events, handshake: Handshake) -> BTreeSet<String> {
    let uris = events.subscriptions.uris();
    if handshake.declares.resource_subscriptions {
        return uris;
    }
    events.subscriptions.refused(&uris);
    BTreeSet::new()
}

/// Waits until others are wanted.
async fn wait_for_change(changes: &mut watch::Receiver<u64>) {
    // The sender is held by the events.
    let _ = changes.changed().await;
    sleep(DEBOUNCE).await;
    changes.mark_unchanged();
}

/// Listens again and again by `once`, for as long as the server offers it.
async fn listen_until_refused<F>(events: &Events, once: impl Fn() -> F + Send)
where
    F: Future<Output = Result<(), UpstreamError>> + Send,
{
    let broken_off = || events.subscriptions.interrupted();
    // What changed in between went unseen.
    let again = || events.missed();
    match until_refused(&events.ambient, once, broken_off, again).await {
        UpstreamError::Rpc(error) => refused(events, &error),
        // Whoever asks for the lists next finds out that it takes another connection.
        UpstreamError::Gone => events.missed(),
        _ => {}
    }
}

/// Takes what a legacy server says outside of answers, but for changes, as long as it gives a stream for that. `begun`
/// is told once it can be heard, or cannot.
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

/// Does `once` again and again, with longer and longer pauses, until the server refuses; gives how it does.
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

fn refused(events: &Events, error: &UpstreamRpcError) {
    warn!(
        upstream = events.upstream,
        code = error.code,
        "an upstream server announces changes but lets nobody listen"
    );
}
