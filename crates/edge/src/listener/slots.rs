//! Slots for open connections, and their distribution among clients.
//!
//! ```text
//!  new connection ─▶ does its address open connections too fast? ──yes──▶ closed at once
//!                        │ no
//!                        ▼
//!                    address below its share, and a slot free?  ──yes──▶ served
//!                        │ no
//!                        ▼
//!              an idle connection of the address with the most connections ──▶ closed, and the new one is served
//!                        │ none
//!                        ▼
//!              reserved slot for probes: everything else gets 503, or GOAWAY
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use wardgate_telemetry::names;

use super::connection::{ClientConnection, ClientNetwork};
use super::token_bucket::{BudgetExceeded, TokenBucket};

/// Maximum number of connections in reserved slots, which serve only probes. A new one replaces the oldest one.
const PROBE_PLACES: usize = 64;
/// Maximum number of new connections in a `REPLACEMENT_WINDOW` that may replace an idle one. It bounds and smooths the
/// cost of a client that opens connections as fast as they are closed.
const REPLACEMENTS: u32 = 16;
/// The part of these replacements that is available to clients that already have their share.
const REPLACEMENTS_WITHIN_A_SHARE: u32 = 8;
const REPLACEMENT_WINDOW: Duration = Duration::from_millis(50);
/// Control frame budget of all connections of a client without a known caller, as a multiple of the budget of one
/// connection.
const CONNECTIONS_FRAMES: u64 = 8;
/// Cost of a new connection, in control frames of its client's budget. It is refunded if a caller on the connection
/// becomes known.
const CONNECTION_COST: u64 = 64;
/// Capacity of the budget of a client, in seconds of its rate; or the cost of one connection for each slot of its
/// share, if that is more.
const BURST_SECONDS: u64 = 2;
/// Interval at which clients without any state are removed.
const SWEEP: Duration = Duration::from_secs(1);
/// Time by which a connection that was closed for its control frames extends the delay of its client's next HTTP/2
/// connections, and the maximum of the delay.
const PENALTY: Duration = Duration::from_secs(1);
const LONGEST_PENALTY: Duration = Duration::from_secs(5);

/// The table of the open connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    connections: usize,
    per_address: usize,
    control_frames: u32,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    next: u64,
    served: HashMap<u64, Arc<ClientConnection>>,
    probes: BTreeMap<u64, Arc<ClientConnection>>,
    clients: HashMap<ClientNetwork, ClientConnections>,
    /// The start of the current window, and the number of replacements in it.
    replacements: (Instant, u32),
    swept: Instant,
}

#[derive(Debug)]
struct ClientConnections {
    served: usize,
    /// The budget for new connections, and for control frames of connections without a known caller.
    budget: TokenBucket,
    /// The time until which the client's next HTTP/2 connections are not read.
    penalty: Option<Instant>,
}

/// The use that a connection may make of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotUse {
    Everything,
    /// The connection may only serve probes, because only a reserved slot was free.
    Probes,
}

/// The slot of one open connection, which is freed on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    id: u64,
    pub(super) connection: Arc<ClientConnection>,
    pub(super) use_for: SlotUse,
    slots: Arc<ConnectionSlots>,
}

impl ConnectionSlots {
    pub(super) fn new(connections: usize, per_address: usize, control_frames: u32) -> Arc<Self> {
        Arc::new(Self {
            connections,
            per_address,
            control_frames,
            state: Mutex::new(SlotState {
                next: 0,
                served: HashMap::new(),
                probes: BTreeMap::new(),
                clients: HashMap::new(),
                replacements: (Instant::now(), 0),
                swept: Instant::now(),
            }),
        })
    }

    /// Takes a slot for a new connection of `peer`. Returns `None` if its client opens connections too fast.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<ConnectionSlot> {
        self.admit_within(peer, self.per_address)
    }

    /// Takes a slot for a connection of a proxy. It may use every slot, because its connections serve many clients.
    pub(super) fn admit_proxy(self: &Arc<Self>, proxy: SocketAddr) -> Option<ConnectionSlot> {
        self.admit_within(proxy, self.connections)
    }

    fn admit_within(self: &Arc<Self>, peer: SocketAddr, share: usize) -> Option<ConnectionSlot> {
        let network = peer.into();
        let mut state = self.state();
        state.sweep();
        let client = state
            .clients
            .entry(network)
            .or_insert_with(|| self.client(share));
        if client.budget.charge(CONNECTION_COST).is_err() {
            drop(state);
            counter!(names::ENDED_CONNECTIONS, "reason" => "connection_rate").increment(1);
            return None;
        }
        let connection = Arc::new(ClientConnection::new(network));
        let id = state.next;
        state.next += 1;
        let own = state.served_of(network);
        let has_place = own < share && state.served.len() < self.connections;
        let use_for = if has_place || state.replace(network, own >= share) {
            if let Some(client) = state.clients.get_mut(&network) {
                client.served += 1;
            }
            state.served.insert(id, Arc::clone(&connection));
            SlotUse::Everything
        } else {
            if state.probes.len() >= PROBE_PLACES
                && let Some((_, oldest)) = state.probes.pop_first()
            {
                oldest.replaced.cancel();
            }
            state.probes.insert(id, Arc::clone(&connection));
            SlotUse::Probes
        };
        drop(state);
        Some(ConnectionSlot {
            id,
            connection,
            use_for,
            slots: Arc::clone(self),
        })
    }

    /// Closes some connections because the process cannot open any more.
    pub(super) fn make_room(&self) {
        let mut state = self.state();
        while let Some((_, probe)) = state.probes.pop_first() {
            probe.replaced.cancel();
        }
        for _ in 0..REPLACEMENTS {
            if !state.end_idle(|_, _| true) {
                return;
            }
        }
    }

    /// Delays the next HTTP/2 connections of a client, because one of its connections was closed for what it sent.
    pub(super) fn penalise(&self, network: ClientNetwork, reason: &'static str) {
        counter!(names::ENDED_CONNECTIONS, "reason" => reason).increment(1);
        let now = Instant::now();
        let mut state = self.state();
        let client = state
            .clients
            .entry(network)
            .or_insert_with(|| self.client(self.per_address));
        let waits = client.penalty.map_or(now, |end| end.max(now));
        client.penalty = Some((waits + PENALTY).min(now + LONGEST_PENALTY));
    }

    fn client(&self, share: usize) -> ClientConnections {
        let rate = u64::from(self.control_frames.max(1)) * CONNECTIONS_FRAMES;
        let connections = u64::try_from(share).unwrap_or(u64::MAX);
        let burst = connections.saturating_mul(CONNECTION_COST);
        ClientConnections {
            served: 0,
            budget: TokenBucket::new(rate, burst.max(rate * BURST_SECONDS)),
            penalty: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    fn served_of(&self, network: ClientNetwork) -> usize {
        self.clients.get(&network).map_or(0, |client| client.served)
    }

    /// Closes an idle connection in favour of a new one of `network`: one of the same client if the client has its
    /// share; otherwise one of the same client, or of a client that has more connections than the new one's.
    fn replace(&mut self, network: ClientNetwork, has_its_share: bool) -> bool {
        if !self.may_replace(has_its_share) {
            return false;
        }
        let own = self.served_of(network);
        let is_ended = self.end_idle(|candidate, of_client| {
            candidate == network || (!has_its_share && of_client > own)
        });
        if is_ended {
            self.replacements.1 += 1;
        }
        is_ended
    }

    /// Closes an idle connection among those that `may_go` allows by client and number of connections. It prefers
    /// connections of the client with the most of them, then those without a known caller, then those that have been
    /// idle longest.
    fn end_idle(&mut self, may_go: impl Fn(ClientNetwork, usize) -> bool) -> bool {
        let idle = self.served.iter().filter_map(|(id, connection)| {
            let of_client = self.served_of(connection.network);
            let may_go = may_go(connection.network, of_client);
            let since = connection.idle_since().filter(|_| may_go)?;
            let known = connection.has_known_caller();
            Some(((Reverse(of_client), known, since), *id))
        });
        let ended = idle.min().and_then(|(_, id)| self.remove(id));
        if let Some(ended) = &ended {
            ended.replaced.cancel();
        }
        ended.is_some()
    }

    fn may_replace(&mut self, has_its_share: bool) -> bool {
        let now = Instant::now();
        let (began, count) = &mut self.replacements;
        if now.duration_since(*began) >= REPLACEMENT_WINDOW {
            (*began, *count) = (now, 0);
        }
        let most = if has_its_share {
            REPLACEMENTS_WITHIN_A_SHARE
        } else {
            REPLACEMENTS
        };
        *count < most
    }

    fn remove(&mut self, id: u64) -> Option<Arc<ClientConnection>> {
        self.probes.remove(&id);
        let connection = self.served.remove(&id)?;
        if let Some(client) = self.clients.get_mut(&connection.network) {
            client.served -= 1;
            if connection.has_known_caller() {
                client.budget.credit(CONNECTION_COST * 1_000, 0);
            }
        }
        Some(connection)
    }

    /// Removes clients without any state.
    fn sweep(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.clients.retain(|_, client| {
            client.served > 0
                || client.penalty.is_some_and(|end| end > now)
                || !client.budget.is_full()
        });
    }
}

impl ConnectionSlot {
    /// Returns the time until which an HTTP/2 connection of this client must not be read, if it is in the future.
    pub(super) fn penalty(&self) -> Option<Instant> {
        let state = self.slots.state();
        let client = state.clients.get(&self.connection.network)?;
        client.penalty.filter(|end| *end > Instant::now())
    }

    /// Delays the next HTTP/2 connections of this client, because this connection was closed for what it sent.
    pub(super) fn penalise(&self, reason: &'static str) {
        self.slots.penalise(self.connection.network, reason);
    }

    /// Charges the client for control frames of a connection without a known caller. It bounds the total of all
    /// connections that a client may open, beside the budget of each connection.
    pub(super) fn charge_client(&self, cost: u64) -> Result<(), BudgetExceeded> {
        if cost == 0 || self.connection.has_known_caller() {
            return Ok(());
        }
        let mut state = self.slots.state();
        let client = state.clients.get_mut(&self.connection.network);
        client.map_or(Ok(()), |client| client.budget.charge(cost))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.state().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 1).into()
    }

    fn admit(slots: &Arc<ConnectionSlots>, last: u8) -> ConnectionSlot {
        slots.admit(peer(last)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_its_share_gives_up_its_longest_idle_connection_for_a_new_one() {
        let slots = ConnectionSlots::new(100, 2, 1_000);
        let first = admit(&slots, 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        let second = admit(&slots, 1);
        let third = admit(&slots, 1);
        assert_eq!(third.use_for, SlotUse::Everything);
        assert!(first.connection.replaced.is_cancelled());
        assert!(!second.connection.replaced.is_cancelled());
        // Dropping a connection that was already replaced frees no second slot.
        drop(first);
        let _requests = [&second, &third].map(|slot| slot.connection.begin_request());
        assert_eq!(admit(&slots, 1).use_for, SlotUse::Probes);
        assert_eq!(admit(&slots, 2).use_for, SlotUse::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_known_caller_is_replaced_last() {
        let slots = ConnectionSlots::new(100, 2, 1_000);
        let known = admit(&slots, 1);
        let connection = Arc::clone(&known.connection);
        connection
            .scope(async { super::super::connection::credit_known_caller() })
            .await;
        tokio::time::advance(Duration::from_millis(1)).await;
        let unknown = admit(&slots, 1);
        let _new = admit(&slots, 1);
        assert!(!known.connection.replaced.is_cancelled());
        assert!(unknown.connection.replaced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_place_is_left_the_client_with_the_most_connections_gives_one_up() {
        let slots = ConnectionSlots::new(4, 3, 1_000);
        let many = [(); 3].map(|()| admit(&slots, 1));
        let one = admit(&slots, 2);
        let other = admit(&slots, 3);
        assert_eq!(other.use_for, SlotUse::Everything);
        let given_up = many
            .iter()
            .filter(|slot| slot.connection.replaced.is_cancelled());
        assert_eq!(given_up.count(), 1);
        assert!(!one.connection.replaced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_connections_are_replaced_at_once() {
        let slots = ConnectionSlots::new(10, 1, 1_000);
        let mut admitted = vec![admit(&slots, 1)];
        for _ in 0..REPLACEMENTS_WITHIN_A_SHARE {
            admitted.push(admit(&slots, 1));
        }
        assert!(
            admitted
                .iter()
                .all(|slot| slot.use_for == SlotUse::Everything)
        );
        assert_eq!(admit(&slots, 1).use_for, SlotUse::Probes);
        tokio::time::advance(REPLACEMENT_WINDOW).await;
        assert_eq!(admit(&slots, 1).use_for, SlotUse::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_kept_back_for_probes_are_bounded_and_the_oldest_gives_way() {
        let slots = ConnectionSlots::new(1, 1, 1_000);
        let only = admit(&slots, 1);
        let _busy = only.connection.begin_request();
        let probes: Vec<_> = (0..=PROBE_PLACES).map(|_| admit(&slots, 1)).collect();
        let ended = |slot: &ConnectionSlot| slot.connection.replaced.is_cancelled();
        assert!(ended(&probes[0]));
        assert!(!probes[1..].iter().any(ended));
        assert_eq!(slots.state().probes.len(), PROBE_PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_penalty_outlives_the_connection_and_ends() {
        let slots = ConnectionSlots::new(10, 10, 1_000);
        let slot = admit(&slots, 1);
        assert_eq!(slot.penalty(), None);
        for _ in 0..20 {
            slot.penalise("control_frames");
        }
        drop(slot);
        let next = admit(&slots, 1);
        assert_eq!(next.penalty(), Some(Instant::now() + LONGEST_PENALTY));
        assert_eq!(admit(&slots, 2).penalty(), None);
        tokio::time::advance(LONGEST_PENALTY).await;
        assert_eq!(next.penalty(), None);
        drop(next);
        tokio::time::advance(SWEEP).await;
        let _other = admit(&slots, 3);
        assert_eq!(slots.state().clients.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_opens_connections_too_fast_is_turned_away_and_others_are_not() {
        let slots = ConnectionSlots::new(4_096, 1_024, 1_000);
        let opened = (0..5_000).filter_map(|_| slots.admit(peer(1))).count();
        assert_eq!(opened, 1_024);
        let _other = admit(&slots, 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        let opened = (0..5_000).filter_map(|_| slots.admit(peer(1))).count();
        assert_eq!(opened, 125);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_with_a_known_caller_are_not_counted_against_their_client() {
        let slots = ConnectionSlots::new(4_096, 1_024, 1_000);
        for _ in 0..5_000 {
            let slot = admit(&slots, 1);
            let connection = Arc::clone(&slot.connection);
            connection
                .scope(async { super::super::connection::credit_known_caller() })
                .await;
            slot.charge_client(1_000_000).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_a_client_together_have_a_budget_of_control_frames() {
        let slots = ConnectionSlots::new(100, 50, 1_000);
        let opened: Vec<ConnectionSlot> = (0..20).map(|_| admit(&slots, 1)).collect();
        let frames = opened
            .iter()
            .filter(|slot| slot.charge_client(1_000).is_ok());
        assert_eq!(frames.count(), 14);
        admit(&slots, 2).charge_client(1_000).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn clients_with_their_share_leave_replacements_to_others() {
        let slots = ConnectionSlots::new(4, 3, 1_000);
        let _many = [(); 3].map(|()| admit(&slots, 1));
        let _one = admit(&slots, 2);
        for _ in 0..50 {
            let _ = admit(&slots, 1);
        }
        assert_eq!(admit(&slots, 3).use_for, SlotUse::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_of_idle_connections_of_the_client_with_the_most() {
        let slots = ConnectionSlots::new(100, 100, 1_000);
        let many = [(); 20].map(|()| admit(&slots, 1));
        let one = admit(&slots, 2);
        slots.make_room();
        let ended = many
            .iter()
            .filter(|slot| slot.connection.replaced.is_cancelled());
        assert_eq!(ended.count(), REPLACEMENTS as usize);
        assert!(!one.connection.replaced.is_cancelled());
    }
}
