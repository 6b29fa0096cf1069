//! Watches resources for changes for as long as the permits to read them are valid.
//!
//! ```text
//!   admit:  source ─▶ a permit for each ─▶ AdmittedWatch   refused: nothing is watched
//!   watch:  watched URIs ─▶ changed ─▶ changed ─▶ …        until the first permit expires
//!             own:    compares the contents with those read before
//!             server: its `updated` notifications
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::stream::{self, Stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use wardgate_domain::{CallToRun, Caller, Digest, OfferKind, SignedPermit, Timestamp};

use crate::Error;
use crate::content::{Contents, Origin};
use crate::loaded::LoadedCatalogue;
use crate::switchboard::Switchboard;
use wardgate_catalogue::FileContent;
use wardgate_mcp_client::{ResourceListener, Upstream};

/// Maximum number of resources in one request.
pub(crate) const MAX_RESOURCES: usize = 256;

/// Maximum time that a server may take to say which resources it accepts to watch.
const ACCEPTANCE_TIMEOUT: Duration = Duration::from_secs(3);

/// Minimum interval between two messages. Changes in between are combined into one message.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// A request to watch resources, with its fields checked.
pub(crate) struct WatchRequest {
    pub(crate) caller: Caller,
    pub(crate) source: String,
    pub(crate) resources: Vec<WatchedResource>,
    /// The caller's bearer token, if the source needs it.
    pub(crate) token: Option<String>,
}

pub(crate) struct WatchedResource {
    pub(crate) uri: String,
    /// The JSON that the policy service decided on, byte for byte.
    pub(crate) decided: Bytes,
    pub(crate) permit: Option<SignedPermit>,
}

/// The resources that may be watched, and the time until which they may. Only [`admit`] creates one.
pub(crate) struct AdmittedWatch {
    caller: Caller,
    source: String,
    uris: BTreeSet<String>,
    /// The caller's token, if the source's credentials are derived from it.
    token: Option<String>,
    until: Instant,
}

/// Verifies the signed permits, which allow watching the resources that they allow reading.
pub(crate) fn admit(
    request: WatchRequest,
    loaded: &LoadedCatalogue,
    now: Timestamp,
) -> Result<AdmittedWatch, Error> {
    let offers = loaded.offers(&request.source);
    let facts = offers.and_then(|offers| offers.facts(OfferKind::Resources));
    let facts = facts.ok_or(Error::UnknownTool)?;
    let mut uris = BTreeSet::new();
    let mut until: Option<Timestamp> = None;
    for wanted in request.resources {
        let to_run = CallToRun {
            caller: &request.caller,
            tool: &facts.name,
            definition_digest: facts.definition_digest,
            arguments: &wanted.decided,
        };
        let signed = wanted.permit.ok_or(Error::NoPermit)?;
        let (permit, _) = loaded.compiled_permits().admit(signed, to_run, None, now)?;
        let ends = permit.terms().expires_at;
        until = Some(until.map_or(ends, |until| until.min(ends)));
        uris.insert(wanted.uri);
    }
    let left = until.ok_or(Error::NoPermit)?.since(now);
    Ok(AdmittedWatch {
        caller: request.caller,
        source: request.source,
        uris,
        token: request.token,
        until: Instant::now() + left,
    })
}

/// Access to the catalogue and the switches that are in force now and later.
pub(crate) struct InForce {
    pub(crate) loaded: Arc<ArcSwap<LoadedCatalogue>>,
    pub(crate) switchboard: Arc<Switchboard>,
    /// A channel that changes when the catalogue or the switches do.
    pub(crate) changes: watch::Receiver<Digest>,
}

impl AdmittedWatch {
    /// Watches the resources. The stream first yields the URIs that are watched, then the URIs that have changed each
    /// time. Dropping the stream ends the watch.
    pub(crate) fn run(self, in_force: InForce) -> impl Stream<Item = BTreeSet<String>> {
        let watching = ResourceWatch {
            admitted: self,
            in_force,
            watched: None,
            next_message_at: Instant::now(),
        };
        stream::unfold(watching, async |mut watching| {
            let uris = watching.next().await?;
            Some((uris, watching))
        })
    }
}

/// A running watch.
struct ResourceWatch {
    admitted: AdmittedWatch,
    in_force: InForce,
    /// The source of changes, or `None` before the first message.
    watched: Option<ChangeSource>,
    next_message_at: Instant,
}

/// How changes are detected.
enum ChangeSource {
    /// The digest of what was last read at each URI, or `None` if there was nothing.
    Own(BTreeMap<String, Option<Digest>>),
    Server {
        upstream: Weak<Upstream>,
        listener: ResourceListener,
    },
}

impl ResourceWatch {
    /// Returns the URIs of the next message, or `None` when a permit has expired or the source is off or gone.
    async fn next(&mut self) -> Option<BTreeSet<String>> {
        let until = self.admitted.until;
        tokio::select! {
            biased;
            () = sleep_until(until) => None,
            uris = self.changed() => uris,
        }
    }

    async fn changed(&mut self) -> Option<BTreeSet<String>> {
        sleep_until(self.next_message_at).await;
        let uris = loop {
            self.in_force.changes.mark_unchanged();
            let loaded = self.in_force.loaded.load_full();
            let changed = self.observe(loaded.contents()).await;
            if !self.is_on() {
                return None;
            }
            if let Some(changed) = changed {
                break changed;
            }
            drop(loaded);
            self.wait().await?;
        };
        self.next_message_at = Instant::now() + MIN_INTERVAL;
        Some(uris)
    }

    /// Waits until there may be a change.
    async fn wait(&mut self) -> Option<()> {
        let changes = self.in_force.changes.changed();
        match &mut self.watched {
            Some(ChangeSource::Server { listener, .. }) => tokio::select! {
                changed = changes => changed.ok(),
                () = listener.changed() => Some(()),
            },
            Some(ChangeSource::Own(_)) | None => changes.await.ok(),
        }
    }

    /// Returns the URIs to report now, if there are any: at first the watched resources, then the changed ones.
    async fn observe(&mut self, contents: &Contents) -> Option<BTreeSet<String>> {
        let AdmittedWatch {
            caller,
            source,
            uris,
            token,
            ..
        } = &self.admitted;
        let origin = contents
            .origin(source)?
            .for_caller(caller, token.as_deref())
            .ok();
        match (origin.as_ref(), &mut self.watched) {
            (Some(Origin::Own(own)), Some(ChangeSource::Own(before))) => {
                let changed = changes(own, before);
                (!changed.is_empty()).then_some(changed)
            }
            (Some(Origin::Upstream(of)), Some(ChangeSource::Server { upstream, listener }))
                if is_same(upstream, &of.upstream) =>
            {
                let changed: BTreeSet<_> = listener.take_changes();
                let changed = changed.into_iter().filter(|uri| of.offers_resource(uri));
                let changed: BTreeSet<_> = changed.collect();
                (!changed.is_empty()).then_some(changed)
            }
            // This is the first message, or the origin is another one than before, so any resource may have changed.
            (Some(Origin::Own(own)), watched) => {
                let mut read = uris.iter().map(|uri| (uri.clone(), None)).collect();
                let there = changes(own, &mut read);
                *watched = Some(ChangeSource::Own(read));
                Some(there)
            }
            (Some(Origin::Upstream(of)), watched) => {
                let offered = uris.iter().filter(|uri| of.offers_resource(uri)).cloned();
                let mut listener = of.upstream.listen(offered.collect());
                // A server that does not answer in time does not watch any resource.
                let settled = async {
                    of.upstream.connect().await;
                    listener.wait_until_settled().await;
                };
                let _ = timeout(ACCEPTANCE_TIMEOUT, settled).await;
                let accepted = listener.keep_accepted();
                *watched = Some(ChangeSource::Server {
                    upstream: Arc::downgrade(&of.upstream),
                    listener,
                });
                Some(accepted)
            }
            (None, _) => None,
        }
    }

    /// Returns whether the source exists and is switched on for the caller.
    fn is_on(&self) -> bool {
        let AdmittedWatch { caller, source, .. } = &self.admitted;
        let is_there = self
            .in_force
            .loaded
            .load()
            .contents()
            .origin(source)
            .is_some();
        let switches = self.in_force.switchboard.current();
        is_there && switches.is_some_and(|switches| switches.of_source(source).allow(caller))
    }
}

/// Reads each resource of `read` again, and returns the URIs of those that differ from before.
fn changes(own: &FileContent, read: &mut BTreeMap<String, Option<Digest>>) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for (uri, before) in read {
        let contents = own.read_resource(uri).ok();
        let now = contents.map(|contents| Digest::compute(contents.to_string().as_bytes()));
        if *before != now {
            *before = now;
            changed.insert(uri.clone());
        }
    }
    changed
}

fn is_same(before: &Weak<Upstream>, now: &Arc<Upstream>) -> bool {
    Weak::ptr_eq(before, &Arc::downgrade(now))
}
