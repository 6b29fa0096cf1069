//! The changes of sources' resources that one stream receives.
//!
//! ```text
//!   chosen:      URIs that the client named ─────────────┐               ┌─ source: decide ─▶ watch ─▶ decide again …
//!   subscribed:  by separate requests, stored for the   ─┴▶ Sources ─────┼─ source
//!                session in the gateway's store                          └─ source ─▶ ChangedUris ─▶ the stream
//! ```
//!
//! Resources are watched only under permits to read them, which last for seconds: a caller who may no longer read a resource is
//! not notified of its changes any longer.

mod source;
mod sources;
mod subscribed;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, Caller, Digest, ToolFacts};
use wardgate_mcp_server::RpcError;
use wardgate_rpc::client::ToolRunnerClient;

use self::sources::Sources;
use super::{PAUSE, StreamQuota};
use crate::catalogue::View;
use crate::change_counter::ChangeCounter;
use crate::discovery::{Discovery, OfferedContent};
use crate::post::Post;
use crate::scopes::TokenAccess;

use self::source::watches;
pub(crate) use self::subscribed::{ResourceSubscriptions, Subscriber, subscribe, unsubscribe};

/// The method by which clients before 2026-07-28 choose the resources whose changes they receive.
pub(crate) const SUBSCRIBE: &str = "resources/subscribe";

/// Watches resources of sources for the streams of clients.
pub(crate) struct ResourceWatcher {
    discovery: Arc<Discovery>,
    runner: ToolRunnerClient,
    /// The subscriptions of clients before 2026-07-28.
    subscriptions: Arc<ResourceSubscriptions>,
    /// Counts the changes of the catalogue and of the policy.
    changes: ChangeCounter,
    watches: StreamQuota,
    ambient: Ambient,
}

impl ResourceWatcher {
    pub(crate) fn new(
        discovery: Arc<Discovery>,
        runner: ToolRunnerClient,
        subscriptions: Arc<ResourceSubscriptions>,
        changes: ChangeCounter,
        ambient: Ambient,
    ) -> Arc<Self> {
        Arc::new(Self {
            discovery,
            runner,
            subscriptions,
            changes,
            watches: watches(),
            ambient,
        })
    }

    pub(crate) fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// A client with a stream of changes, and its view of the catalogue.
#[derive(Clone)]
pub(crate) struct ListeningClient {
    pub(super) watcher: Arc<ResourceWatcher>,
    pub(crate) caller: Arc<Caller>,
    /// The access that the token gives.
    pub(crate) access: TokenAccess,
    /// The method by which the client chooses the resources whose changes it receives.
    pub(crate) method: &'static str,
    pub(crate) client_ip: String,
    pub(crate) view: View,
}

impl ListeningClient {
    /// Returns the resource changes of a stream that follows the subscriptions of `session`, or `None` if the view has no
    /// resources. For a client that was disconnected, every resource counts as changed.
    pub(super) fn follow_session(
        self,
        session: Option<Digest>,
        offered: OfferedContent,
        was_away: bool,
    ) -> Option<ResourceChanges> {
        let subscriber = Subscriber {
            caller: Arc::clone(&self.caller),
            session,
        };
        offered
            .resources
            .then(|| ResourceChanges::for_subscriber(self, subscriber, was_away))
    }

    /// Creates the client of a stream that follows subscriptions, for versions before 2026-07-28.
    pub(crate) fn follower(
        watcher: &Arc<ResourceWatcher>,
        caller: &Arc<Caller>,
        access: &TokenAccess,
        client_ip: &str,
        view: &View,
    ) -> Self {
        Self {
            watcher: Arc::clone(watcher),
            caller: Arc::clone(caller),
            access: access.clone(),
            method: SUBSCRIBE,
            client_ip: client_ip.to_owned(),
            view: view.clone(),
        }
    }

    pub(crate) fn for_post(
        watcher: &Arc<ResourceWatcher>,
        post: &Post,
        method: &'static str,
    ) -> Self {
        Self {
            watcher: Arc::clone(watcher),
            caller: Arc::clone(&post.caller),
            access: post.access.clone(),
            method,
            client_ip: post.client_ip.clone(),
            view: post.view.clone(),
        }
    }

    /// Checks that the token has the scopes for a resource that the policy lets the caller read.
    fn apply(&self, facts: &ToolFacts) -> Result<(), RpcError> {
        self.access.check_use(self.method, facts)
    }
}

/// The URIs, as the client uses them, of resources that changed and whose changes were not sent yet.
#[derive(Debug, Clone, Default)]
struct ChangedUris(Arc<watch::Sender<BTreeSet<String>>>);

impl ChangedUris {
    fn add(&self, uris: impl IntoIterator<Item = String>) {
        self.0.send_if_modified(|changed| {
            let before = changed.len();
            changed.extend(uris);
            changed.len() > before
        });
    }
}

/// The resource changes of one stream.
pub(crate) struct ResourceChanges {
    changed: ChangedUris,
    news: watch::Receiver<BTreeSet<String>>,
    _watch: WatchTask,
    /// The earliest time of the next update: at most one in each [`PAUSE`].
    silent_until: Instant,
}

/// The task that watches resources for the stream.
enum WatchTask {
    Chosen { _sources: Sources },
    Subscribed { _task: AbortOnDropHandle<()> },
}

impl std::fmt::Debug for ResourceChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResourceChanges")
    }
}

impl ResourceChanges {
    /// Watches the resources at `uris`, and returns those of them that can be watched.
    pub(crate) async fn for_uris(
        who: ListeningClient,
        uris: BTreeSet<String>,
    ) -> (Self, BTreeSet<String>) {
        let changed = ChangedUris::default();
        let mut sources = Sources::new(who, changed.clone());
        let accepted = sources.set(uris, &BTreeSet::new()).await;
        // A resource that was not accepted must not cause notifications later either.
        sources.set(accepted.clone(), &BTreeSet::new()).await;
        let watch = WatchTask::Chosen { _sources: sources };
        (Self::with_watch(changed, watch), accepted)
    }

    /// Watches the resources that the session of `subscriber` is subscribed to, now and later.
    fn for_subscriber(who: ListeningClient, subscriber: Subscriber, was_away: bool) -> Self {
        let changed = ChangedUris::default();
        let task = subscribed::follow_subscriptions(who, subscriber, was_away, changed.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        Self::with_watch(changed, WatchTask::Subscribed { _task: task })
    }

    fn with_watch(changed: ChangedUris, watch: WatchTask) -> Self {
        Self {
            news: changed.0.subscribe(),
            changed,
            _watch: watch,
            silent_until: Instant::now(),
        }
    }

    /// Waits for changes, and returns the URIs of the changed resources. Cancel safe: no change is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Vec<String> {
        // `self.changed` is the sender, so waiting cannot fail.
        let _ = self.news.wait_for(|changed| !changed.is_empty()).await;
        sleep_until(self.silent_until).await;
        let mut taken = BTreeSet::new();
        self.changed.0.send_if_modified(|changed| {
            taken = std::mem::take(changed);
            false
        });
        self.silent_until = Instant::now() + PAUSE;
        taken.into_iter().collect()
    }
}
