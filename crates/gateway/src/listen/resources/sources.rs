//! The sources that one stream watches, each with its selected resources.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::source::{ResourceSelection, follow};
use super::{ChangedUris, ListeningClient};
use crate::content;

/// Maximum time to wait until the sources report which resources they watch. A source that takes longer counts as watching none.
const PATIENCE: Duration = Duration::from_secs(4);

pub(super) struct Sources {
    who: ListeningClient,
    changed: ChangedUris,
    followed: BTreeMap<String, FollowedSource>,
}

/// A source whose resources are watched by a separate task.
struct FollowedSource {
    selection: watch::Sender<ResourceSelection>,
    /// The number of the last applied selection, and the URIs that are watched since then.
    watched: watch::Receiver<(u64, BTreeSet<String>)>,
    _task: AbortOnDropHandle<()>,
}

impl Sources {
    pub(super) fn new(who: ListeningClient, changed: ChangedUris) -> Self {
        Self {
            who,
            changed,
            followed: BTreeMap::new(),
        }
    }

    /// Watches the resources at `uris` and no others, and returns those that are watched. The ones in `late` count as changed,
    /// because changes of them may have been missed.
    pub(super) async fn set(
        &mut self,
        uris: BTreeSet<String>,
        late: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        let mut by_source: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for uri in uris {
            let ListeningClient {
                watcher,
                caller,
                view,
                ..
            } = &self.who;
            let catalogue = watcher.discovery.catalogue();
            if let Some(resource) = content::resolve_resource(catalogue, caller, view, &uri) {
                by_source.entry(resource.source).or_default().insert(uri);
            }
        }
        self.followed
            .retain(|source, _| by_source.contains_key(source));
        for (source, uris) in by_source {
            let late = uris.intersection(late).cloned().collect();
            if let Some(followed) = self.followed.get(&source) {
                followed.select(uris, late);
            } else {
                let followed = FollowedSource::begin(&self.who, &self.changed, &source, uris, late);
                self.followed.insert(source, followed);
            }
        }
        let settled = self.followed.values().map(FollowedSource::wait_for_watched);
        join_all(settled).await.into_iter().flatten().collect()
    }
}

impl FollowedSource {
    fn begin(
        who: &ListeningClient,
        changed: &ChangedUris,
        source: &str,
        uris: BTreeSet<String>,
        late: BTreeSet<String>,
    ) -> Self {
        let selection = watch::Sender::new(ResourceSelection {
            round: 1,
            uris,
            late,
        });
        let (settled_sender, watched) = watch::channel((0, BTreeSet::new()));
        let following = follow(
            who.clone(),
            source.to_owned(),
            selection.subscribe(),
            settled_sender,
            changed.clone(),
        );
        Self {
            selection,
            watched,
            _task: AbortOnDropHandle::new(tokio::spawn(following)),
        }
    }

    fn select(&self, uris: BTreeSet<String>, late: BTreeSet<String>) {
        self.selection.send_if_modified(|selection| {
            let is_other = selection.uris != uris || !late.is_empty();
            if is_other {
                *selection = ResourceSelection {
                    round: selection.round + 1,
                    uris,
                    late,
                };
            }
            is_other
        });
    }

    /// Waits until the current selection is applied, and returns the URIs that are watched.
    async fn wait_for_watched(&self) -> BTreeSet<String> {
        let round = self.selection.borrow().round;
        let mut watched = self.watched.clone();
        let settled = timeout(PATIENCE, watched.wait_for(|(done, _)| *done >= round)).await;
        match settled {
            Ok(Ok(settled)) => settled.1.clone(),
            Ok(Err(_)) | Err(_) => BTreeSet::new(),
        }
    }
}
