//! The resource subscriptions of clients before 2026-07-28. They are kept in the gateway's store, so that a stream on any
//! replica follows them.
//!
//! ```text
//!   subscribe at A ─▶ store ─┬─▶ streams of the session at A, at once: the answer waits for them
//!                            └─▶ those at B, which looks every second; what changed meanwhile counts as changed
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use wardgate_domain::{Caller, Digest, Reason};
use wardgate_gateway_store::{Purpose, Sealer, Store, SubscriptionsId};
use wardgate_mcp::Version;
use wardgate_mcp_server::RpcError;

use super::sources::Sources;
use super::{ChangedUris, ListeningClient};
use crate::authority::Authorization;
use crate::content;
use crate::post::Post;

/// Maximum number of subscriptions of one session.
const MOST: usize = 256;

/// Interval at which the store is polled for what other replicas wrote. Each poll covers the time [`LOOK_BACK`].
const LOOK: Duration = Duration::from_secs(1);
const LOOK_BACK: Duration = Duration::from_secs(10);

/// Maximum number of attempts to write if other writers interfere.
const ATTEMPTS: usize = 8;

/// Maximum time that a response waits for the streams of its session.
const PATIENCE: Duration = Duration::from_secs(4);

/// Interval at which subscriptions in use are written again, because they expire if they are not written for a day.
const WRITE_AGAIN: Duration = Duration::from_hours(6);

/// The owner of subscriptions: a session of the caller, or the caller without a session.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    pub(crate) caller: Arc<Caller>,
    pub(crate) session: Option<Digest>,
}

impl Subscriber {
    pub(crate) fn for_post(post: &Post) -> Self {
        Self {
            caller: Arc::clone(&post.caller),
            session: post.session_digest(),
        }
    }

    fn id(&self) -> SubscriptionsId {
        let session = self.session.map(|digest| digest.as_bytes().to_vec());
        let session = session.unwrap_or_default();
        SubscriptionsId(Digest::of_parts([
            self.caller.person().as_bytes().as_slice(),
            session.as_slice(),
        ]))
    }
}

/// The subscriptions of all subscribers, and the streams of this replica that follow them.
pub(crate) struct ResourceSubscriptions {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
    streams: Mutex<HashMap<SubscriptionsId, Vec<Arc<SubscribedStream>>>>,
}

/// A stream that follows the subscriptions of its session.
#[derive(Debug, Default)]
struct SubscribedStream {
    news: watch::Sender<RevisionNotice>,
    /// The revision that the stream follows.
    followed: watch::Sender<i64>,
}

/// A notice about the newest revision of the subscriptions.
#[derive(Debug, Clone, Copy, Default)]
struct RevisionNotice {
    revision: i64,
    /// Whether another replica wrote some of it a while ago, so that changes may have been missed.
    is_late: bool,
}

/// The stored subscriptions of a session.
struct StoredSubscriptions {
    uris: BTreeSet<String>,
    /// The revision, or `None` if nothing was stored yet.
    revision: Option<i64>,
}

impl ResourceSubscriptions {
    pub(crate) fn new(store: &Arc<Store>, sealer: &Arc<Sealer>) -> Arc<Self> {
        let subscriptions = Arc::new(Self {
            store: Arc::clone(store),
            sealer: Arc::clone(sealer),
            streams: Mutex::default(),
        });
        tokio::spawn(poll_store(Arc::downgrade(&subscriptions)));
        subscriptions
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<SubscriptionsId, Vec<Arc<SubscribedStream>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams_of(&self, id: SubscriptionsId) -> Vec<Arc<SubscribedStream>> {
        self.streams().get(&id).cloned().unwrap_or_default()
    }

    async fn read_subscriptions(&self, of: &Subscriber) -> Result<StoredSubscriptions, RpcError> {
        let read = self.store.read_subscriptions(of.id()).await;
        let read = read.map_err(|_| store_unavailable())?;
        let Some((sealed, revision)) = read else {
            return Ok(StoredSubscriptions {
                uris: BTreeSet::new(),
                revision: None,
            });
        };
        let sealed = String::from_utf8(sealed).unwrap_or_default();
        // Subscriptions that can no longer be opened have expired.
        let uris = self
            .sealer
            .open(Purpose::Subscriptions, &of.caller, "", &sealed);
        Ok(StoredSubscriptions {
            uris: uris.unwrap_or_default(),
            revision: Some(revision),
        })
    }

    /// Applies `change` to the stored subscriptions, and returns their new revision.
    async fn write(
        &self,
        of: &Subscriber,
        change: impl Fn(&mut BTreeSet<String>),
    ) -> Result<i64, RpcError> {
        for _ in 0..ATTEMPTS {
            let StoredSubscriptions { mut uris, revision } = self.read_subscriptions(of).await?;
            change(&mut uris);
            let fits = uris.len() <= MOST;
            let sealed = self
                .sealer
                .seal(Purpose::Subscriptions, &of.caller, "", &uris);
            let sealed = sealed.filter(|_| fits).ok_or_else(too_many)?;
            let owner = of.caller.person();
            let written = self
                .store
                .write_subscriptions(of.id(), owner, sealed.into_bytes(), revision)
                .await;
            if let Some(revision) = written.map_err(|_| store_unavailable())? {
                return Ok(revision);
            }
        }
        Err(store_unavailable())
    }

    /// Notifies the streams of this replica, and waits until they follow the revision.
    async fn announce(&self, id: SubscriptionsId, revision: i64) {
        let streams = self.streams_of(id);
        let following = streams.iter().map(|stream| {
            stream
                .news
                .send_modify(|news| news.revision = news.revision.max(revision));
            let mut followed = stream.followed.subscribe();
            async move {
                // The wait ends early for a stream that is closed, and times out for one whose sources are slow.
                let follows = followed.wait_for(|followed| *followed >= revision);
                let _ = timeout(PATIENCE, follows).await;
            }
        });
        join_all(following).await;
    }
}

/// Subscribes the session to the resource at `uri`, if the caller may read it and its source reports changes.
pub(crate) async fn subscribe(
    who: &ListeningClient,
    subscriber: &Subscriber,
    uri: String,
    version: Version,
) -> Result<(), RpcError> {
    let ListeningClient {
        watcher,
        caller,
        client_ip,
        view,
        ..
    } = who;
    let unknown = || RpcError::unknown_resource(version);
    let (catalogue, authority) = (watcher.discovery.catalogue(), watcher.discovery.authority());
    let resource = content::resolve_resource(catalogue, caller, view, &uri);
    let resource = resource.ok_or_else(unknown)?;
    let asked = authority.authorize(caller, &resource.facts, &resource.decided, client_ip);
    match asked.await {
        Ok(Authorization::Allowed(_)) => who.apply(&resource.facts)?,
        Ok(Authorization::Denied { .. } | Authorization::NeedsIntent(_)) => return Err(unknown()),
        Err(error) => return Err(authority.undecided_error(&error)),
    }
    // This watch stays open until the streams have opened theirs, so that the source is asked only once.
    let mut trial = Sources::new(who.clone(), ChangedUris::default());
    let accepted = trial.set([uri.clone()].into(), &BTreeSet::new()).await;
    if !accepted.contains(&uri) {
        let error = RpcError::invalid_params(
            "the source of this resource does not announce its changes, or cannot do so now",
        );
        return Err(error.because(Reason::NOT_WATCHED));
    }
    let subscriptions = &watcher.subscriptions;
    let add = |uris: &mut BTreeSet<String>| {
        uris.insert(uri.clone());
    };
    let written = subscriptions.write(subscriber, add).await?;
    subscriptions.announce(subscriber.id(), written).await;
    Ok(())
}

/// Removes the session's subscription to the resource at `uri`, if there is one.
pub(crate) async fn unsubscribe(
    who: &ListeningClient,
    subscriber: &Subscriber,
    uri: &str,
) -> Result<(), RpcError> {
    let subscriptions = &who.watcher.subscriptions;
    let remove = |uris: &mut BTreeSet<String>| {
        uris.remove(uri);
    };
    let written = subscriptions.write(subscriber, remove).await?;
    subscriptions.announce(subscriber.id(), written).await;
    Ok(())
}

/// Follows the subscriptions of a session for as long as its stream is open.
pub(super) async fn follow_subscriptions(
    who: ListeningClient,
    subscriber: Subscriber,
    was_away: bool,
    changed: ChangedUris,
) {
    let watcher = Arc::clone(&who.watcher);
    let subscriptions = &watcher.subscriptions;
    let following = StreamRegistration::begin(subscriptions, &subscriber);
    let mut news = following.stream.news.subscribe();
    let mut changes = watcher.changes.follow();
    let mut sources = Sources::new(who, changed);
    let mut before: Option<BTreeSet<String>> = None;
    loop {
        changes.mark_unchanged();
        news.mark_unchanged();
        let mut is_late = false;
        following.stream.news.send_if_modified(|news| {
            is_late = std::mem::take(&mut news.is_late);
            false
        });
        let read = subscriptions.read_subscriptions(&subscriber).await;
        let Ok(StoredSubscriptions { uris, revision }) = read else {
            sleep(LOOK).await;
            continue;
        };
        let late = match &before {
            Some(before) if is_late => uris.difference(before).cloned().collect(),
            None if was_away => uris.clone(),
            _ => BTreeSet::new(),
        };
        sources.set(uris.clone(), &late).await;
        before = Some(uris);
        following
            .stream
            .followed
            .send_replace(revision.unwrap_or_default());
        tokio::select! {
            _ = news.changed() => {}
            _ = changes.changed() => sleep(LOOK).await,
            () = sleep(WRITE_AGAIN) => {
                // If the write fails, there is another attempt before the subscriptions expire.
                let _ = subscriptions.write(&subscriber, |_| ()).await;
            }
        }
    }
}

/// The registration of a stream for notices, until it is dropped.
struct StreamRegistration {
    subscriptions: Arc<ResourceSubscriptions>,
    id: SubscriptionsId,
    stream: Arc<SubscribedStream>,
}

impl StreamRegistration {
    fn begin(subscriptions: &Arc<ResourceSubscriptions>, of: &Subscriber) -> Self {
        let stream = Arc::new(SubscribedStream::default());
        let mut streams = subscriptions.streams();
        let own = streams.entry(of.id()).or_default();
        own.push(Arc::clone(&stream));
        Self {
            subscriptions: Arc::clone(subscriptions),
            id: of.id(),
            stream,
        }
    }
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        let mut streams = self.subscriptions.streams();
        if let Some(own) = streams.get_mut(&self.id) {
            own.retain(|stream| !Arc::ptr_eq(stream, &self.stream));
            if own.is_empty() {
                streams.remove(&self.id);
            }
        }
    }
}

/// Polls the store for what other replicas wrote, until `subscriptions` is dropped.
async fn poll_store(subscriptions: Weak<ResourceSubscriptions>) {
    loop {
        sleep(LOOK).await;
        let Some(subscriptions) = subscriptions.upgrade() else {
            return;
        };
        if subscriptions.streams().is_empty() {
            continue;
        }
        // The store logs a failure.
        let written = subscriptions.store.subscriptions_since(LOOK_BACK).await;
        for (id, revision) in written.unwrap_or_default() {
            for stream in subscriptions.streams_of(id) {
                stream.news.send_if_modified(|news| {
                    let is_new = revision > news.revision;
                    if is_new {
                        *news = RevisionNotice {
                            revision,
                            is_late: true,
                        };
                    }
                    is_new
                });
            }
        }
    }
}

fn store_unavailable() -> RpcError {
    RpcError::internal(
        Reason::STORE_UNAVAILABLE,
        "Subscriptions cannot be stored now. Try again later.",
    )
}

fn too_many() -> RpcError {
    RpcError::invalid_params(
        "the maximum number of subscriptions is reached: unsubscribe from some",
    )
    .because(Reason::TOO_MANY_SUBSCRIPTIONS)
}
