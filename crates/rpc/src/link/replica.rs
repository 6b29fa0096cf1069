//! One replica of a service: its connection, its reported health, and the outcomes of its calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::ReplicaConnector;
use super::ejection::Ejection;
use crate::health::{self, ServiceHealth};
use crate::readiness::Readiness;

/// Minimum duration of a connection after whose loss the client reconnects without a delay.
const LASTING: Duration = Duration::from_secs(1);
/// Time for which a replica that stopped being ready may be one that shuts down: it still serves, and others are about to replace
/// it. At least as long as servers continue to serve after they are told to stop, and as the lookup of their replacements takes.
pub(super) const LEAVING: Duration = Duration::from_secs(5);

/// A replica, which exists as long as the lookup returns its address.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) address: SocketAddr,
    /// Number of calls that are open on the replica, without watches.
    in_flight: AtomicUsize,
    state: Mutex<ReplicaState>,
    events: ReplicaEvents,
}

/// The mutable state of a replica.
#[derive(Debug)]
struct ReplicaState {
    connection: ConnectionState,
    ejection: Ejection,
}

/// The state of the connection to a replica.
#[derive(Debug)]
enum ConnectionState {
    /// The first connection is being established.
    New,
    /// There is no connection, because the last attempt failed for this reason.
    Unreachable(String),
    /// The connection was lost just now, and the next one is being established.
    Lost,
    /// The connection is established, and the replica has not reported its health on it yet.
    Unheard(Channel),
    /// The connection is established, and the replica reports that it is not ready, or does not report its health. With the
    /// reason, and the time since when the replica is not ready if it was ready before on this connection.
    Unready(Channel, String, Option<Instant>),
    /// The connection is established, and the replica is ready.
    Ready(Channel),
}

/// The status of a replica, for the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaStatus {
    Ready,
    /// The replica reports that it is ready, but its calls fail.
    Ejected,
    /// See [`ConnectionState::New`].
    New,
    /// See [`ConnectionState::Unready`].
    Unready(String),
    /// The replica was ready a moment ago, and may be about to stop.
    Leaving,
    /// See [`ConnectionState::Lost`].
    Lost,
    /// See [`ConnectionState::Unheard`].
    Unheard,
    /// See [`ConnectionState::Unreachable`].
    Unreachable(String),
}

impl ReplicaStatus {
    /// Returns whether the replica could take a call as a last resort.
    pub(super) fn is_connected(&self) -> bool {
        matches!(
            self,
            Self::Ready | Self::Ejected | Self::Unheard | Self::Unready(_) | Self::Leaving
        )
    }
}

/// Notifications about changes of replicas.
#[derive(Debug, Clone)]
pub(super) struct ReplicaEvents {
    /// The status of a replica changed.
    pub(super) changed: watch::Sender<()>,
    /// A connection was lost, or its replica is no longer ready.
    pub(super) lost: watch::Sender<()>,
}

impl Replica {
    pub(super) fn new(address: SocketAddr, events: ReplicaEvents) -> Arc<Self> {
        Arc::new(Self {
            address,
            in_flight: AtomicUsize::new(0),
            state: Mutex::new(ReplicaState {
                connection: ConnectionState::New,
                ejection: Ejection::default(),
            }),
            events,
        })
    }

    /// Keeps a connection to the replica, and follows the health of the service `name` on it.
    pub(super) async fn follow(self: Arc<Self>, connector: ReplicaConnector, name: &str) {
        let mut pause = ReconnectBackoff::default();
        loop {
            let channel = match connector.connect(self.address).await {
                Ok(channel) => channel,
                Err(error) => {
                    tracing::debug!(address = %self.address, error = &error as &dyn std::error::Error, "cannot connect to {name}");
                    self.turn(ConnectionState::Unreachable(format!("cannot reach {name}")));
                    tokio::time::sleep(pause.next()).await;
                    continue;
                }
            };
            self.turn(ConnectionState::Unheard(channel.clone()));
            let connected = Instant::now();
            let mut heard = false;
            let told = |what| {
                heard = true;
                let channel = channel.clone();
                match what {
                    ServiceHealth::Reported(Readiness::NotReady(why)) => {
                        self.is_unready(channel, why);
                    }
                    ServiceHealth::Reported(Readiness::Ready | Readiness::Outdated(_)) => {
                        self.turn(ConnectionState::Ready(channel));
                    }
                    // The replica does not count as leaving, because a server that shuts down still responds.
                    ServiceHealth::Silent => {
                        let why = format!("{name} does not answer");
                        self.turn(ConnectionState::Unready(channel, why, None));
                    }
                }
            };
            let why = health::follow(channel.clone(), name, told).await;
            if heard {
                tracing::debug!(address = %self.address, why, "lost the connection to {name}");
                self.turn(ConnectionState::Lost);
                self.events.lost.send_replace(());
            } else {
                self.turn(ConnectionState::Unready(channel, why, None));
            }
            if connected.elapsed() < LASTING {
                tokio::time::sleep(pause.next()).await;
            } else {
                pause = ReconnectBackoff::default();
            }
        }
    }

    pub(super) fn replica_status(&self) -> ReplicaStatus {
        let state = self.state();
        match &state.connection {
            ConnectionState::Ready(_) if state.ejection.is_ejected() => ReplicaStatus::Ejected,
            ConnectionState::Ready(_) => ReplicaStatus::Ready,
            ConnectionState::Unready(_, _, Some(since)) if since.elapsed() < LEAVING => {
                ReplicaStatus::Leaving
            }
            ConnectionState::Unready(_, why, _) => ReplicaStatus::Unready(why.clone()),
            ConnectionState::New => ReplicaStatus::New,
            ConnectionState::Lost => ReplicaStatus::Lost,
            ConnectionState::Unheard(_) => ReplicaStatus::Unheard,
            ConnectionState::Unreachable(why) => ReplicaStatus::Unreachable(why.clone()),
        }
    }

    /// Returns the number of open calls if the replica can take another call. As a last resort, a replica can be used that is not
    /// ready or is ejected, because its response explains the failure best.
    pub(super) fn load(&self, last_resort: bool) -> Option<usize> {
        let state = self.state();
        let usable = match state.connection {
            ConnectionState::Ready(_) => last_resort || !state.ejection.is_ejected(),
            ConnectionState::Unheard(_) | ConnectionState::Unready(..) => last_resort,
            ConnectionState::New | ConnectionState::Lost | ConnectionState::Unreachable(_) => false,
        };
        usable.then(|| self.in_flight.load(Ordering::Relaxed))
    }

    /// Returns whether the next call has to probe this ejected replica. Only the first caller to ask gets `true`.
    pub(super) fn probe(&self, now: Instant) -> bool {
        let mut state = self.state();
        matches!(state.connection, ConnectionState::Ready(_)) && state.ejection.probe(now)
    }

    /// Begins a call on the replica, or returns `None` if the connection was lost in the meantime.
    pub(super) fn begin_call(
        self: &Arc<Self>,
        probe: bool,
        deadline: Option<Instant>,
    ) -> Option<ReplicaCall> {
        let mut state = self.state();
        let (ConnectionState::Ready(channel)
        | ConnectionState::Unheard(channel)
        | ConnectionState::Unready(channel, ..)) = &state.connection
        else {
            if probe {
                state.ejection.gave_up();
            }
            return None;
        };
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(ReplicaCall {
            channel: channel.clone(),
            probe,
            deadline,
            settled: false,
            replica: Arc::clone(self),
        })
    }

    fn is_unready(&self, channel: Channel, why: String) {
        let since = match self.state().connection {
            ConnectionState::Ready(_) => Some(Instant::now()),
            ConnectionState::Unready(_, _, since) => since,
            _ => None,
        };
        self.turn(ConnectionState::Unready(channel, why, since));
        if since.is_some() {
            self.events.lost.send_replace(());
        }
    }

    fn turn(&self, connection: ConnectionState) {
        self.state().connection = connection;
        self.events.changed.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call on a replica, from when it is sent until its response ended or was given up.
#[derive(Debug)]
pub(super) struct ReplicaCall {
    pub(super) channel: Channel,
    probe: bool,
    deadline: Option<Instant>,
    /// Whether the outcome was recorded.
    settled: bool,
    replica: Arc<Replica>,
}

impl ReplicaCall {
    pub(super) fn address(&self) -> SocketAddr {
        self.replica.address
    }

    /// Records that the replica responded.
    pub(super) fn record_success(&mut self) {
        self.settled = true;
        let returned = self.replica.state().ejection.record_success();
        if returned {
            tracing::info!(address = %self.replica.address, "an ejected replica is in use again");
            self.replica.events.changed.send_replace(());
        }
    }

    /// Records that the replica did not respond, or responded that it is unavailable.
    pub(super) fn record_failure(&mut self) {
        self.apply_failure(Ejection::record_failure, "fails repeatedly");
    }

    /// Records that the replica did not respond in time on a stream that many callers share.
    pub(super) fn fell_silent(&mut self) {
        self.apply_failure(Ejection::fell_silent, "does not respond");
    }

    /// Records a failure with `record`, which returns whether it ejected the replica. `problem` is the reason for the log.
    fn apply_failure(
        &mut self,
        record: fn(&mut Ejection, Instant, bool) -> bool,
        problem: &'static str,
    ) {
        self.settled = true;
        let ejected = record(
            &mut self.replica.state().ejection,
            Instant::now(),
            self.probe,
        );
        if ejected {
            tracing::warn!(address = %self.replica.address, "a replica {problem}; no calls are sent to it");
            self.replica.events.changed.send_replace(());
        }
    }
}

impl Drop for ReplicaCall {
    fn drop(&mut self) {
        self.replica.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.settled {
            return;
        }
        // The call was abandoned: either its deadline passed, or its caller gave up before that.
        if self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            self.record_failure();
        } else if self.probe {
            self.replica.state().ejection.gave_up();
        }
    }
}

/// The delay before the next connection attempt, doubling from 50 ms to 1 s.
#[derive(Default)]
struct ReconnectBackoff {
    attempts: u32,
}

impl ReconnectBackoff {
    fn next(&mut self) -> Duration {
        let pause = Duration::from_millis(50 << self.attempts.min(5)).min(Duration::from_secs(1));
        self.attempts += 1;
        pause
    }
}
