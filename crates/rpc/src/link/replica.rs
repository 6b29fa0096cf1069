//! One replica of a service: its connection, what it says of itself, and how its calls go.

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

/// Who loses a connection that lasted so long tries again at once.
const LASTING: Duration = Duration::from_secs(1);
/// So long a replica that is not ready any more may be one that was told to stop: it still serves, and others come in its
/// place. No shorter than servers go on after they were told, nor than names take to tell of others.
pub(super) const LEAVING: Duration = Duration::from_secs(5);

/// One replica, for as long as its address is in the answer of the lookup.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) address: SocketAddr,
    /// Calls that are open there, watches apart.
    in_flight: AtomicUsize,
    state: Mutex<ReplicaState>,
    events: ReplicaEvents,
}

/// The state of a replica, behind its lock.
#[derive(Debug)]
struct ReplicaState {
    connection: ConnectionState,
    ejection: Ejection,
}

/// The state of the connection to a replica.
#[derive(Debug)]
enum ConnectionState {
    /// The first is being made.
    New,
    /// There is none, and why the last attempt failed.
    Away(String),
    /// It ended just now, and the next one is being made.
    Lost,
    /// It stands, and the replica has said nothing on it yet.
    Unheard(Channel),
    /// It stands, and the replica says that it is not ready, or nothing that is understood; since when, if it was ready
    /// before.
    Unready(Channel, String, Option<Instant>),
    /// It stands, and the replica is ready.
    Ready(Channel),
}

/// The status of a replica, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaStatus {
    Ready,
    /// Ready by its own word, but it only fails.
    Ejected,
    /// See [`ConnectionState::New`].
    New,
    /// See [`ConnectionState::Unready`].
    Unready(String),
    /// The same, but it was ready a moment ago, and may only be about to stop.
    Leaving,
    /// See [`ConnectionState::Lost`].
    Lost,
    /// See [`ConnectionState::Unheard`].
    Unheard,
    /// See [`ConnectionState::Away`].
    Away(String),
}

impl ReplicaStatus {
    /// Whether it could take a call, for want of a better one.
    pub(super) fn is_connected(&self) -> bool {
        matches!(
            self,
            Self::Ready | Self::Ejected | Self::Unheard | Self::Unready(_) | Self::Leaving
        )
    }
}

/// The events of replicas.
#[derive(Debug, Clone)]
pub(super) struct ReplicaEvents {
    /// The status of some replica has changed.
    pub(super) changed: watch::Sender<()>,
    /// Some connection was lost, or what is at its other end is ready no more.
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

    /// Keeps one connection to it, and listens there to what the service `name` says of itself.
    pub(super) async fn follow(self: Arc<Self>, connector: ReplicaConnector, name: &str) {
        let mut pause = ReconnectBackoff::default();
        loop {
            let channel = match connector.connect(self.address).await {
                Ok(channel) => channel,
                Err(error) => {
                    tracing::debug!(address = %self.address, error = &error as &dyn std::error::Error, "cannot connect to {name}");
                    self.turn(ConnectionState::Away(format!("cannot reach {name}")));
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
                    // Not leaving: who is told to stop still answers.
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
            ConnectionState::Away(why) => ReplicaStatus::Away(why.clone()),
        }
    }

    /// Open calls, when it can take one more. As the last resort a replica will do that is not ready, or ejected:
    /// it says best itself why it cannot.
    pub(super) fn load(&self, last_resort: bool) -> Option<usize> {
        let state = self.state();
        let usable = match state.connection {
            ConnectionState::Ready(_) => last_resort || !state.ejection.is_ejected(),
            ConnectionState::Unheard(_) | ConnectionState::Unready(..) => last_resort,
            ConnectionState::New | ConnectionState::Lost | ConnectionState::Away(_) => false,
        };
        usable.then(|| self.in_flight.load(Ordering::Relaxed))
    }

    /// Whether the next call has to try if this ejected replica works again; only the first who asks is told so.
    pub(super) fn probe(&self, now: Instant) -> bool {
        let mut state = self.state();
        matches!(state.connection, ConnectionState::Ready(_)) && state.ejection.probe(now)
    }

    /// Takes one call on, unless the connection was lost in this moment.
    pub(super) fn take(
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

/// One call at a replica, from when it is sent until its answer ended or was given up.
#[derive(Debug)]
pub(super) struct ReplicaCall {
    pub(super) channel: Channel,
    probe: bool,
    deadline: Option<Instant>,
    /// How it went is told.
    settled: bool,
    replica: Arc<Replica>,
}

impl ReplicaCall {
    pub(super) fn address(&self) -> SocketAddr {
        self.replica.address
    }

    /// The replica answered.
    pub(super) fn succeeded(&mut self) {
        self.settled = true;
        let returned = self.replica.state().ejection.succeeded();
        if returned {
            tracing::info!(address = %self.replica.address, "a replica that was ejected works again");
            self.replica.events.changed.send_replace(());
        }
    }

    /// It did not, or says that it cannot.
    pub(super) fn failed(&mut self) {
        self.settled = true;
        let now = Instant::now();
        let ejected = self.replica.state().ejection.failed(now, self.probe);
        if ejected {
            tracing::warn!(address = %self.replica.address, "a replica only fails; calls are kept away from it");
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
        // Nobody waits for it any more: because it took too long, or because its caller left.
        if self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            self.failed();
        } else if self.probe {
            self.replica.state().ejection.gave_up();
        }
    }
}

/// The wait before the next attempt: doubling from 50 ms to 1 s.
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
