//! Who gets a place among the open connections.
//!
//! ```text
//!  new connection ─▶ share of its address left, and a place free? ──yes──▶ served
//!                        │ no
//!                        ▼
//!              an idle connection of the address with the most of them ──▶ ends, and the new one is served
//!                        │ none
//!                        ▼
//!              kept back for probes: everything else gets 503, or GOAWAY
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use wardgate_telemetry::names;

use super::connection::{ClientNetwork, Connection};

/// Connections that are only asked whether they are probes, at once. The oldest one gives way to a new one.
const PROBE_PLACES: usize = 64;
/// Connections in so much time that may take the place of an idle one. It bounds what a client costs that opens
/// connections as fast as they are taken away, and spreads it evenly.
const REPLACEMENTS: u32 = 8;
const REPLACEMENT_WINDOW: Duration = Duration::from_millis(50);
/// What a connection that was ended for its control frames adds to the wait of the next HTTP/2 connections of its
/// client, and the longest such wait.
const PENALTY: Duration = Duration::from_secs(1);
const LONGEST_PENALTY: Duration = Duration::from_secs(5);

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct Places {
    connections: usize,
    per_address: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    served: HashMap<u64, Arc<Connection>>,
    probes: BTreeMap<u64, Arc<Connection>>,
    clients: HashMap<ClientNetwork, Client>,
    /// Replacements in the window that began then.
    replacements: (Instant, u32),
}

#[derive(Debug, Default)]
struct Client {
    served: usize,
    /// Its next HTTP/2 connections are not read before.
    penalty: Option<Instant>,
}

/// What a connection may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Everything,
    /// There is no place for it but one that is kept back.
    Probes,
}

/// A place among the open connections, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) use_for: Use,
    places: Arc<Places>,
}

impl Places {
    pub(super) fn new(connections: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self {
            connections,
            per_address,
            state: Mutex::new(State {
                next: 0,
                served: HashMap::new(),
                probes: BTreeMap::new(),
                clients: HashMap::new(),
                replacements: (Instant::now(), 0),
            }),
        })
    }

    /// Gives a place to a new connection of `peer`.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Place {
        let connection = Arc::new(Connection::new(peer.into()));
        let network = connection.network;
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let own = state.served_of(network);
        let has_place = own < self.per_address && state.served.len() < self.connections;
        let use_for = if has_place || state.replace(network, own >= self.per_address) {
            state.clients.entry(network).or_default().served += 1;
            state.served.insert(id, Arc::clone(&connection));
            Use::Everything
        } else {
            if state.probes.len() >= PROBE_PLACES
                && let Some((_, oldest)) = state.probes.pop_first()
            {
                oldest.replaced.cancel();
            }
            state.probes.insert(id, Arc::clone(&connection));
            Use::Probes
        };
        drop(state);
        Place {
            id,
            connection,
            use_for,
            places: Arc::clone(self),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn served_of(&self, network: ClientNetwork) -> usize {
        self.clients.get(&network).map_or(0, |client| client.served)
    }

    /// Ends an idle connection for the sake of a new one of `network`: one of the same client where the client has its
    /// share, else one of the client with the most connections, if that has more than the new one's. Those without a
    /// known caller go first, then those that have been idle longest.
    fn replace(&mut self, network: ClientNetwork, has_its_share: bool) -> bool {
        if !self.may_replace() {
            return false;
        }
        let own = self.served_of(network);
        let idle = self.served.iter().filter_map(|(id, connection)| {
            let of_client = if connection.network == network {
                own
            } else if has_its_share {
                return None;
            } else {
                self.served_of(connection.network)
            };
            let may_go = connection.network == network || of_client > own;
            let since = connection.idle_since().filter(|_| may_go)?;
            let known = connection.has_known_caller();
            Some(((Reverse(of_client), known, since), *id))
        });
        let Some((_, id)) = idle.min() else {
            return false;
        };
        self.replacements.1 += 1;
        if let Some(replaced) = self.remove(id) {
            replaced.replaced.cancel();
        }
        true
    }

    fn may_replace(&mut self) -> bool {
        let now = Instant::now();
        let (began, count) = &mut self.replacements;
        if now.duration_since(*began) >= REPLACEMENT_WINDOW {
            (*began, *count) = (now, 0);
        }
        *count < REPLACEMENTS
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Connection>> {
        self.probes.remove(&id);
        let connection = self.served.remove(&id)?;
        if let Some(client) = self.clients.get_mut(&connection.network) {
            client.served -= 1;
            if client.served == 0 && client.penalty.is_none_or(|end| end <= Instant::now()) {
                self.clients.remove(&connection.network);
            }
        }
        Some(connection)
    }
}

impl Place {
    /// Until when an HTTP/2 connection of this client is not read.
    pub(super) fn penalty(&self) -> Option<Instant> {
        let state = self.places.state();
        let client = state.clients.get(&self.connection.network)?;
        client.penalty.filter(|end| *end > Instant::now())
    }

    /// Makes the next HTTP/2 connections of this client wait, because this one sent too many control frames.
    pub(super) fn penalise(&self) {
        counter!(names::ENDED_CONNECTIONS, "reason" => "control_frames").increment(1);
        let now = Instant::now();
        let mut state = self.places.state();
        state
            .clients
            .retain(|_, client| client.served > 0 || client.penalty.is_some_and(|end| end > now));
        let client = state.clients.entry(self.connection.network).or_default();
        let waits = client.penalty.map_or(now, |end| end.max(now));
        client.penalty = Some((waits + PENALTY).min(now + LONGEST_PENALTY));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 1).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_its_share_gives_up_its_longest_idle_connection_for_a_new_one() {
        let places = Places::new(100, 2);
        let first = places.admit(peer(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        let second = places.admit(peer(1));
        let third = places.admit(peer(1));
        assert_eq!(third.use_for, Use::Everything);
        assert!(first.connection.replaced.is_cancelled());
        assert!(!second.connection.replaced.is_cancelled());
        // Dropping what gave its place up gives no second place back.
        drop(first);
        let _requests = [&second, &third].map(|place| place.connection.begin_request());
        assert_eq!(places.admit(peer(1)).use_for, Use::Probes);
        assert_eq!(places.admit(peer(2)).use_for, Use::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_known_caller_is_replaced_last() {
        let places = Places::new(100, 2);
        let known = places.admit(peer(1));
        let connection = Arc::clone(&known.connection);
        connection
            .scope(async { super::super::connection::credit_known_caller() })
            .await;
        tokio::time::advance(Duration::from_millis(1)).await;
        let unknown = places.admit(peer(1));
        let _new = places.admit(peer(1));
        assert!(!known.connection.replaced.is_cancelled());
        assert!(unknown.connection.replaced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_place_is_left_the_client_with_the_most_connections_gives_one_up() {
        let places = Places::new(4, 3);
        let many = [(); 3].map(|()| places.admit(peer(1)));
        let one = places.admit(peer(2));
        let other = places.admit(peer(3));
        assert_eq!(other.use_for, Use::Everything);
        let given_up = many
            .iter()
            .filter(|place| place.connection.replaced.is_cancelled());
        assert_eq!(given_up.count(), 1);
        assert!(!one.connection.replaced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_connections_are_replaced_at_once() {
        let places = Places::new(10, 1);
        let mut admitted = vec![places.admit(peer(1))];
        for _ in 0..REPLACEMENTS {
            admitted.push(places.admit(peer(1)));
        }
        assert!(
            admitted
                .iter()
                .all(|place| place.use_for == Use::Everything)
        );
        assert_eq!(places.admit(peer(1)).use_for, Use::Probes);
        tokio::time::advance(REPLACEMENT_WINDOW).await;
        assert_eq!(places.admit(peer(1)).use_for, Use::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_kept_back_for_probes_are_bounded_and_the_oldest_gives_way() {
        let places = Places::new(1, 1);
        let only = places.admit(peer(1));
        let _busy = only.connection.begin_request();
        let probes: Vec<_> = (0..=PROBE_PLACES).map(|_| places.admit(peer(1))).collect();
        let ended = |place: &Place| place.connection.replaced.is_cancelled();
        assert!(ended(&probes[0]));
        assert!(!probes[1..].iter().any(ended));
        assert_eq!(places.state().probes.len(), PROBE_PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_penalty_outlives_the_connection_and_ends() {
        let places = Places::new(10, 10);
        let place = places.admit(peer(1));
        assert_eq!(place.penalty(), None);
        for _ in 0..20 {
            place.penalise();
        }
        drop(place);
        let next = places.admit(peer(1));
        assert_eq!(next.penalty(), Some(Instant::now() + LONGEST_PENALTY));
        assert_eq!(places.admit(peer(2)).penalty(), None);
        tokio::time::advance(LONGEST_PENALTY).await;
        assert_eq!(next.penalty(), None);
        drop(next);
        assert!(places.state().clients.is_empty());
    }
}
