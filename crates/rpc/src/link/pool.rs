//! The replicas of one service: their discovery, and the choice of the replica for the next call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use metrics::gauge;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use wardgate_telemetry::names;

use super::ReplicaConnector;
use super::replica::{LEAVING, Replica, ReplicaCall, ReplicaEvents, ReplicaStatus};
use super::resolve::Lookup;
use crate::readiness::Readiness;

/// Interval of address lookups, so that new replicas get calls within seconds.
const LOOKUP_EVERY: Duration = Duration::from_secs(3);
/// Interval of address lookups while there is no address, while removed replicas are still used, or while
/// replicas may be leaving.
const LOOKUP_AGAIN: Duration = Duration::from_millis(500);
/// Minimum pause between lookups, which limits additional lookups after lost connections.
const LOOKUP_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time for a lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// Time for which calls wait for a replica after the last one was lost. Later calls fail immediately.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for which calls of a new link wait until a replica is connected or has failed.
const FIRST: Duration = Duration::from_secs(5);

/// The replicas of one service.
#[derive(Debug)]
pub(super) struct Pool {
    /// The service's name in certificates, metrics and messages.
    neighbour: &'static str,
    replicas: RwLock<Vec<Arc<Replica>>>,
    /// The number of choices made so far, which determines the pair of replicas for the next choice.
    turn: AtomicUsize,
    events: ReplicaEvents,
    /// The time until which calls wait for a replica, or `None` while one is connected. Sent again on every change of a status.
    patient_until: watch::Sender<Option<Instant>>,
}

impl Pool {
    /// Creates a pool of the replicas at the addresses that `lookup` returns, and follows the health of the service `name` on
    /// each. The replicas are followed until all receivers of the readiness are dropped.
    pub(super) fn open(
        neighbour: &'static str,
        name: &'static str,
        lookup: Lookup,
        dial: ReplicaConnector,
    ) -> (Arc<Self>, watch::Receiver<Readiness>) {
        let pool = Arc::new(Self {
            neighbour,
            replicas: RwLock::default(),
            turn: AtomicUsize::new(0),
            events: ReplicaEvents {
                changed: watch::Sender::new(()),
                lost: watch::Sender::new(()),
            },
            patient_until: watch::Sender::new(Some(Instant::now() + FIRST)),
        });
        let first = Readiness::NotReady(format!("not connected to {neighbour} yet"));
        let (told, readiness) = watch::channel(first);
        let followed = Arc::clone(&pool);
        tokio::spawn(async move {
            tokio::select! {
                () = told.closed() => {}
                () = followed.report_readiness(&told) => {}
                () = followed.look_up(name, &lookup, &dial) => {}
            }
        });
        (pool, readiness)
    }

    pub(super) fn neighbour(&self) -> &'static str {
        self.neighbour
    }

    /// Begins one call at a replica, not the one at `avoid` if there is another. Waits for a while if there is none,
    /// and then returns `None`.
    pub(super) async fn begin_call(
        &self,
        avoid: Option<SocketAddr>,
        deadline: Option<Instant>,
    ) -> Option<ReplicaCall> {
        if let Some(taken) = self.choose(avoid, deadline) {
            return Some(taken);
        }
        let mut changed = self.patient_until.subscribe();
        loop {
            let until = *changed.borrow_and_update();
            if let Some(taken) = self.choose(avoid, deadline) {
                return Some(taken);
            }
            tokio::select! {
                // The change cannot fail because the pool holds the sender.
                _ = changed.changed() => {}
                () = sleep_until(until.unwrap_or_else(|| Instant::now() + PATIENCE)) => return None,
            }
        }
    }

    /// Returns whether another working replica could take a call instead of the one at `address`.
    pub(super) fn has_another(&self, address: SocketAddr) -> bool {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner);
        let mut others = replicas.iter().filter(|replica| replica.address != address);
        others.any(|replica| replica.load(false).is_some())
    }

    /// Chooses the less loaded of two usable replicas. This is nearly as even as comparing all replicas, and concurrent callers
    /// do not all choose the same one. An ejected replica that is due for a probe is chosen before all others.
    fn choose(&self, avoid: Option<SocketAddr>, deadline: Option<Instant>) -> Option<ReplicaCall> {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(probed) = replicas.iter().find(|replica| replica.probe(now)) {
            return probed.begin_call(true, deadline);
        }
        let usable = |last_resort: bool| {
            let loads = replicas
                .iter()
                .filter_map(|replica| Some((replica.load(last_resort)?, replica)));
            let mut usable: Vec<_> = loads.collect();
            if usable.len() > 1 {
                usable.retain(|(_, replica)| Some(replica.address) != avoid);
            }
            usable
        };
        let mut usable_now = usable(false);
        if usable_now.is_empty() {
            usable_now = usable(true);
        }
        let count = usable_now.len();
        if count < 2 {
            return usable_now.first()?.1.begin_call(false, deadline);
        }
        // The pairs take turns, so that replicas with equally many calls get the same share.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let one = turn % count;
        let other = (one + 1 + turn / count % (count - 1)) % count;
        let [one, other] = [one, other].map(|index| usable_now[index]);
        if other.0 < one.0 { other.1 } else { one.1 }.begin_call(false, deadline)
    }

    /// Looks up the addresses repeatedly.
    async fn look_up(&self, name: &'static str, lookup: &Lookup, dial: &ReplicaConnector) {
        let mut members: HashMap<SocketAddr, AbortOnDropHandle<()>> = HashMap::new();
        let mut lost = self.events.lost.subscribe();
        loop {
            let mut settled = !members.is_empty();
            match timeout(LOOKUP_LIMIT, lookup()).await {
                Ok(Ok(addresses)) => {
                    self.follow(&mut members, &addresses, name, dial);
                    settled = !addresses.is_empty()
                        && members.len() == addresses.len()
                        && !self.replica_statuses().contains(&ReplicaStatus::Leaving);
                }
                // Known replicas are kept, because a failure of DNS says nothing about them.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the addresses of {} cannot be looked up", self.neighbour);
                }
                Err(_) => {
                    tracing::debug!(
                        "looking up the addresses of {} took too long",
                        self.neighbour
                    );
                }
            }
            let every = if settled { LOOKUP_EVERY } else { LOOKUP_AGAIN };
            sleep(LOOKUP_PAUSE).await;
            tokio::select! {
                () = sleep(every) => {}
                _ = lost.changed() => {}
            }
        }
    }

    /// Follows the replicas at `addresses`. Replicas at other addresses are kept until one of these is ready, so that they can
    /// still be used while all replicas are being replaced. Open calls on removed replicas continue.
    fn follow(
        &self,
        members: &mut HashMap<SocketAddr, AbortOnDropHandle<()>>,
        addresses: &[SocketAddr],
        name: &'static str,
        dial: &ReplicaConnector,
    ) {
        let known = members.len();
        let mut replicas = self
            .replicas
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let one_is_ready = replicas
            .iter()
            .filter(|replica| addresses.contains(&replica.address))
            .any(|replica| replica.replica_status() == ReplicaStatus::Ready);
        members.retain(|address, _| addresses.contains(address) || !one_is_ready);
        let mut changed = members.len() < known;
        replicas.retain(|replica| members.contains_key(&replica.address));
        for address in addresses {
            if members.contains_key(address) {
                continue;
            }
            changed = true;
            let replica = Replica::new(*address, self.events.clone());
            replicas.push(Arc::clone(&replica));
            let following = replica.follow(dial.clone(), name);
            members.insert(*address, AbortOnDropHandle::new(tokio::spawn(following)));
        }
        let count = replicas.len();
        drop(replicas);
        if changed {
            tracing::info!(count, "the replicas of {} changed", self.neighbour);
            self.events.changed.send_replace(());
        }
    }

    /// Reports the readiness of the service: one ready replica is enough.
    async fn report_readiness(&self, told: &watch::Sender<Readiness>) {
        let mut changed = self.events.changed.subscribe();
        let mut measured = ReplicaGauges {
            neighbour: self.neighbour,
            counts: [0; 4],
        };
        loop {
            let replica_statuses = self.replica_statuses();
            measured.update(&replica_statuses);
            self.be_patient(&replica_statuses);
            if let Some(readiness) = readiness(&replica_statuses) {
                told.send_if_modified(|before| {
                    let changed = *before != readiness;
                    *before = readiness;
                    changed
                });
            }
            let heard = if replica_statuses.contains(&ReplicaStatus::Leaving) {
                // After this time, the replica counts as not ready instead of leaving.
                timeout(LEAVING, changed.changed()).await.unwrap_or(Ok(()))
            } else {
                changed.changed().await
            };
            if heard.is_err() {
                return;
            }
        }
    }

    fn replica_statuses(&self) -> Vec<ReplicaStatus> {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner);
        replicas
            .iter()
            .map(|replica| replica.replica_status())
            .collect()
    }

    fn be_patient(&self, replica_statuses: &[ReplicaStatus]) {
        let connected = replica_statuses.iter().any(ReplicaStatus::is_connected);
        let failed =
            !replica_statuses.is_empty() && !replica_statuses.contains(&ReplicaStatus::New);
        self.patient_until.send_modify(|until| {
            if connected {
                *until = None;
            } else if failed {
                let soon = Instant::now() + PATIENCE;
                *until = Some(until.map_or(soon, |until| until.min(soon)));
            }
        });
    }
}

/// The counts that this pool has added to the gauges. Several links of a process may lead to the same service.
#[derive(Debug)]
struct ReplicaGauges {
    neighbour: &'static str,
    counts: [u32; 4],
}

impl ReplicaGauges {
    fn update(&mut self, replica_statuses: &[ReplicaStatus]) {
        let mut counts = [0; 4];
        for replica_status in replica_statuses {
            let state = match replica_status {
                ReplicaStatus::Ready => 0,
                ReplicaStatus::Ejected => 1,
                ReplicaStatus::Unheard | ReplicaStatus::Unready(_) | ReplicaStatus::Leaving => 2,
                ReplicaStatus::New | ReplicaStatus::Lost | ReplicaStatus::Unreachable(_) => 3,
            };
            counts[state] += 1;
        }
        self.set(counts);
    }

    fn set(&mut self, counts: [u32; 4]) {
        let before = std::mem::replace(&mut self.counts, counts);
        let states = ["ready", "ejected", "unready", "connecting"];
        for ((state, before), now) in states.into_iter().zip(before).zip(counts) {
            gauge!(names::LINK_ENDPOINTS, "neighbour" => self.neighbour, "state" => state)
                .increment(f64::from(now) - f64::from(before));
        }
    }
}

impl Drop for ReplicaGauges {
    fn drop(&mut self) {
        self.set([0; 4]);
    }
}

/// Returns the readiness for callers, or `None` while it is open: a lost connection may be reestablished at once, or other
/// replicas may replace those that are leaving.
fn readiness(replica_statuses: &[ReplicaStatus]) -> Option<Readiness> {
    let ready = |replica_status| {
        matches!(
            replica_status,
            &ReplicaStatus::Ready | &ReplicaStatus::Ejected
        )
    };
    if replica_statuses.iter().any(ready) {
        return Some(Readiness::Ready);
    }
    let open = |replica_status| {
        matches!(
            replica_status,
            &ReplicaStatus::Lost | &ReplicaStatus::Unheard | &ReplicaStatus::Leaving
        )
    };
    if replica_statuses.iter().any(open) {
        return None;
    }
    let why = replica_statuses
        .iter()
        .find_map(|replica_status| match replica_status {
            ReplicaStatus::Unready(why) | ReplicaStatus::Unreachable(why) => Some(why.clone()),
            _ => None,
        });
    let why = why.unwrap_or_else(|| "no replica is connected yet".to_owned());
    Some(Readiness::NotReady(why))
}
