//! Watches the resources of one source for one stream. Which of them the caller may read is decided again and again.
//!
//! ```text
//!   decide ─▶ permits ─▶ watch ─▶ changed, changed, … ─┐
//!     ▲                                                │ three quarters of the shortest permit passed,
//!     └────────────────────────────────────────────────┘ other rights, another catalogue or selection, the end
//! ```
//!
//! The next watch is opened before the last one ends, so that no change is missed in between. If there was a gap, all resources
//! that were watched before it count as changed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future::join_all};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, WatchResources};

use super::{ChangedUris, ListeningClient};
use crate::authority::{Authorization, Grant};
use crate::content::{self, ResolvedResource};
use crate::listen::StreamQuota;

/// Maximum number of watches of all streams together, because a connection carries a limited number of requests at a time.
const MOST_WATCHES: usize = 512;

/// Maximum number of watches of one subject.
const MOST_WATCHES_EACH: usize = 64;

/// Maximum number of resources of one source that one stream can watch.
const MOST_RESOURCES: usize = 256;

/// Maximum number of decisions that are requested at once.
const AT_ONCE: usize = 8;

/// Delay between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(1);

/// Delay between a change of rights or catalogue and the next decision, so that several changes cause one decision.
const SETTLE: Duration = Duration::from_millis(200);

/// Time for which the previous watch stays open after the next one was opened, because its last changes may still be in transit.
const LINGER: Duration = Duration::from_secs(1);

/// Minimum delay before a decision is renewed.
const SHORTEST: Duration = Duration::from_millis(500);

/// Assumed lifetime of the decision if no resource may be read. It is renewed after three quarters of this time.
const REMAINS_DENIED: Duration = Duration::from_secs(40);

/// Maximum time to wait until the tool-runner reports which resources it watches.
const PATIENCE: Duration = Duration::from_secs(4);

/// Creates the quota of watches.
pub(super) fn watches() -> StreamQuota {
    StreamQuota::of_each(MOST_WATCHES, MOST_WATCHES_EACH)
}

/// The resources of a source that a stream watches, by the URIs that the client uses.
#[derive(Debug, Clone)]
pub(super) struct ResourceSelection {
    /// The number of the selection, which increases with each change.
    pub(super) round: u64,
    pub(super) uris: BTreeSet<String>,
    /// The resources whose changes may have been missed.
    pub(super) late: BTreeSet<String>,
}

/// A resource that the caller may read, with the URI that the client uses.
struct ReadableResource {
    uri: String,
    resource: ResolvedResource,
    grant: Arc<Grant>,
}

type ChangeStream = BoxStream<'static, Result<Vec<String>, CallError>>;

/// An open watch.
struct OpenWatch {
    changes: ChangeStream,
    /// The client's URIs, by the URIs that the source uses.
    watched: BTreeMap<String, String>,
}

/// Follows the source until no resource of it is selected. After each round `settled` receives the watched URIs.
pub(super) async fn follow(
    who: ListeningClient,
    source: String,
    mut selections: watch::Receiver<ResourceSelection>,
    settled: watch::Sender<(u64, BTreeSet<String>)>,
    changed: ChangedUris,
) {
    let watcher = Arc::clone(&who.watcher);
    let Some(_place) = watcher.watches.acquire_lease(who.caller.subject()) else {
        tracing::warn!(
            "the limit of watched sources, of all callers or of one caller, is reached; one stream receives no changes of this source"
        );
        return;
    };
    let mut changes = watcher.changes.follow();
    let mut follower = SourceFollower {
        who,
        source,
        changed,
        open: None,
        known: BTreeSet::new(),
        unwatched: BTreeSet::new(),
        served: 0,
    };
    let mut afresh = false;
    loop {
        changes.mark_unchanged();
        let selection = selections.borrow_and_update().clone();
        let next = match follower.decide_and_watch(&selection, afresh).await {
            Ok(next) => {
                settled.send_replace((selection.round, follower.watched_uris()));
                next
            }
            Err(error) => {
                tracing::debug!(%error, "the resources of a source cannot be watched now");
                Instant::now() + RETRY
            }
        };
        afresh = false;
        tokio::select! {
            changed = selections.changed() => if changed.is_err() {
                return;
            },
            _ = changes.changed() => sleep(SETTLE).await,
            () = sleep_until(next) => afresh = true,
            () = follower.receive_changes() => sleep(SETTLE).await,
        }
    }
}

impl ListeningClient {
    /// Returns the selected resources of `source` that the caller may read. With `afresh`, no cached permit is used.
    async fn readable_resources(
        &self,
        source: &str,
        selection: &ResourceSelection,
        afresh: bool,
    ) -> Result<Vec<ReadableResource>, CallError> {
        let ListeningClient {
            watcher,
            caller,
            client_ip,
            view,
            ..
        } = self;
        let catalogue = watcher.discovery.catalogue();
        let found = selection.uris.iter().filter_map(|uri| {
            let resource = content::resolve_resource(catalogue, caller, view, uri)?;
            (resource.source == source).then(|| (uri.clone(), resource))
        });
        let found: Vec<_> = found.take(MOST_RESOURCES).collect();
        let authority = watcher.discovery.authority();
        if let Some((_, resource)) = found.first().filter(|_| afresh) {
            authority.forget(caller, &resource.facts);
        }
        let mut granted = Vec::new();
        let mut rest = found.into_iter();
        // The first resource is decided alone: if its permit is for the whole source, the others reuse it.
        let mut some: Vec<_> = rest.by_ref().take(1).collect();
        while !some.is_empty() {
            let decided = some.into_iter().map(async |(uri, resource)| {
                let ResolvedResource { facts, decided, .. } = &resource;
                let asked = authority.authorize(caller, facts, decided, client_ip);
                Ok(match asked.await? {
                    Authorization::Allowed(grant) if self.apply(facts).is_ok() => {
                        Some(ReadableResource {
                            uri,
                            resource,
                            grant,
                        })
                    }
                    Authorization::Allowed(_)
                    | Authorization::Denied { .. }
                    | Authorization::NeedsIntent(_) => None,
                })
            });
            for decided in join_all(decided).await {
                let decided: Result<_, CallError> = decided;
                granted.extend(decided?);
            }
            some = rest.by_ref().take(AT_ONCE).collect();
        }
        Ok(granted)
    }
}

struct SourceFollower {
    who: ListeningClient,
    source: String,
    changed: ChangedUris,
    open: Option<OpenWatch>,
    /// The URIs that were watched at any time, as the client uses them.
    known: BTreeSet<String>,
    /// Those of `known` that are not watched now.
    unwatched: BTreeSet<String>,
    /// The number of the last selection that was applied.
    served: u64,
}

impl SourceFollower {
    /// Decides which resources may be read, and replaces the watch by one of these. Returns the time of the next decision.
    async fn decide_and_watch(
        &mut self,
        selection: &ResourceSelection,
        afresh: bool,
    ) -> Result<Instant, CallError> {
        let granted = self
            .who
            .readable_resources(&self.source, selection, afresh)
            .await?;
        let now = self.who.watcher.ambient.now();
        let left = granted.iter().map(|it| it.grant.expires_at.since(now));
        let left = left.min().unwrap_or(REMAINS_DENIED);
        match self.watch(granted).await {
            Ok(open) => self.open = open,
            // The source is gone, or switched off for the caller.
            Err(error) if error.reason() == ErrorReason::UnknownTool => self.open = None,
            // The source changed since the decision, which is therefore renewed at once.
            Err(error) if error.reason() == ErrorReason::PermitRefused => {
                return Ok(Instant::now() + SETTLE);
            }
            Err(error) => return Err(error),
        }
        let watched = self.watched_uris();
        self.known.retain(|uri| selection.uris.contains(uri));
        let is_late =
            |uri: &&String| selection.round > self.served && selection.late.contains(*uri);
        let missed = watched.iter();
        let missed = missed.filter(|uri| self.unwatched.contains(*uri) || is_late(uri));
        self.changed.add(missed.cloned());
        self.known.extend(watched.iter().cloned());
        self.unwatched = self.known.difference(&watched).cloned().collect();
        self.served = selection.round;
        Ok(Instant::now() + (left * 3 / 4).max(SHORTEST))
    }

    /// Opens a watch of `granted`. The previous watch stays open a little longer.
    async fn watch(
        &mut self,
        granted: Vec<ReadableResource>,
    ) -> Result<Option<OpenWatch>, CallError> {
        if granted.is_empty() {
            return Ok(None);
        }
        let needs_token = granted.iter().any(|it| it.resource.needs_caller_token);
        let resources = granted.iter();
        let resources = resources.map(|it| (it.resource.decided.clone(), &it.grant.permit));
        let watch = WatchResources {
            caller: &self.who.caller,
            source: &self.source,
            resources: resources.collect(),
            caller_token: self.who.caller.token_for_source(needs_token),
        };
        let changes = self.who.watcher.runner.watch_resources(watch).await?;
        let mut changes: ChangeStream = changes.boxed();
        let first = timeout(PATIENCE, changes.next()).await;
        let first: BTreeSet<String> = match first {
            Ok(Some(first)) => first?.into_iter().collect(),
            Ok(None) | Err(_) => BTreeSet::new(),
        };
        let watched = granted.into_iter();
        let watched = watched.filter(|it| first.contains(&it.resource.own_uri));
        if let Some(earlier) = self.open.take() {
            let last_words = earlier.changes.take_until(sleep(LINGER));
            let last_words = last_words.filter(|changes| ready(changes.is_ok()));
            changes = stream::select(changes, last_words).boxed();
        }
        Ok(Some(OpenWatch {
            changes,
            watched: watched.map(|it| (it.resource.own_uri, it.uri)).collect(),
        }))
    }

    /// Receives changes until the watch ends. Never completes if there is no watch.
    async fn receive_changes(&mut self) {
        while let Some(open) = &mut self.open {
            let Some(Ok(uris)) = open.changes.next().await else {
                self.open = None;
                self.unwatched.clone_from(&self.known);
                return;
            };
            let uris = uris.iter().filter_map(|own| open.watched.get(own));
            self.changed.add(uris.cloned());
        }
        pending::<()>().await;
    }

    /// Returns the URIs that are watched, as the client uses them.
    fn watched_uris(&self) -> BTreeSet<String> {
        let open = self.open.iter();
        open.flat_map(|open| open.watched.values().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_places_for_the_watches_of_others() {
        let places = watches();
        let own: Vec<_> = (0..MOST_WATCHES)
            .map_while(|_| places.acquire_lease("a"))
            .collect();
        assert_eq!(own.len(), MOST_WATCHES_EACH);
        assert!(places.acquire_lease("b").is_some());
    }
}
