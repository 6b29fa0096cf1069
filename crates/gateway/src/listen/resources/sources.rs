//! The sources that one stream listens to: each with the resources of it that are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::source::{ResourceSelection, follow};
use super::{ChangedUris, ListeningClient};
use crate::content;

/// How long sources may take to say what they tell of; those that take longer are waited for no more.
const PATIENCE: Duration = Duration::from_secs(4);

pub(super) struct Sources {
    who: ListeningClient,
    heard: ChangedUris,
    followed: BTreeMap<String, FollowedSource>,
}

/// One source, and what is done about it.
struct FollowedSource {
    wanted: watch::Sender<ResourceSelection>,
    /// What was wanted and is watched, after that round.
    watched: watch::Receiver<(u64, BTreeSet<String>)>,
    _task: AbortOnDropHandle<()>,
}

impl Sources {
    pub(super) fn new(who: ListeningClient, heard: ChangedUris) -> Self {
        Self {
            who,
            heard,
            followed: BTreeMap::new(),
        }
    }

    /// Listens to these and no others, and gives those that are heard of. Of those in `late` something may have gone
    /// unheard, so that they count as changed.
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
                followed.wants(uris, late);
            } else {
                let followed = FollowedSource::begin(&self.who, &self.heard, &source, uris, late);
                self.followed.insert(source, followed);
            }
        }
        let settled = self.followed.values().map(FollowedSource::settled);
        join_all(settled).await.into_iter().flatten().collect()
    }
}

impl FollowedSource {
    fn begin(
        who: &ListeningClient,
        heard: &ChangedUris,
        source: &str,
        uris: BTreeSet<String>,
        late: BTreeSet<String>,
    ) -> Self {
        let wanted = watch::Sender::new(ResourceSelection {
            round: 1,
            uris,
            late,
        });
        let (told, watched) = watch::channel((0, BTreeSet::new()));
        let following = follow(
            who.clone(),
            source.to_owned(),
            wanted.subscribe(),
            told,
            heard.clone(),
        );
        Self {
            wanted,
            watched,
            _task: AbortOnDropHandle::new(tokio::spawn(following)),
        }
    }

    fn wants(&self, uris: BTreeSet<String>, late: BTreeSet<String>) {
        self.wanted.send_if_modified(|wanted| {
            let is_other = wanted.uris != uris || !late.is_empty();
            if is_other {
                *wanted = ResourceSelection {
                    round: wanted.round + 1,
                    uris,
                    late,
                };
            }
            is_other
        });
    }

    /// Those that are watched, once that is known.
    async fn settled(&self) -> BTreeSet<String> {
        let round = self.wanted.borrow().round;
        let mut watched = self.watched.clone();
        let settled = timeout(PATIENCE, watched.wait_for(|(done, _)| *done >= round)).await;
        match settled {
            Ok(Ok(settled)) => settled.1.clone(),
            Ok(Err(_)) | Err(_) => BTreeSet::new(),
        }
    }
}
