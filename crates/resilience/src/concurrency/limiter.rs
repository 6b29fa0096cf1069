//! Limit and queue in one: a call enters, waits or is turned away, and says when it is done.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Gauge, counter, gauge};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use wardgate_telemetry::names;

use crate::concurrency::config::Config;
use crate::concurrency::limit::{DurationSource, Limit};
use crate::concurrency::processors::Processors;
use crate::concurrency::queue::{CallOwner, Number, Order, Queue};

/// Whoever is turned away comes back no sooner.
const SOONEST: Duration = Duration::from_millis(100);
/// While calls are turned away, others wait for no more than this part of what they may,
const SHORT: u32 = 10;
/// and only so many times the limit: the next is there all the same, and whoever makes room for a call that comes hears of it
/// while the service is at work on that one, where a wait that ends by itself would wake it once more.
const FEW: usize = 8;
/// Overload is over when for so long no call was turned away.
const OVER: Duration = Duration::from_secs(1);
/// Whoever has nothing under way may exceed the limit, all of them together by this part of it.
const OVERDRAFT: usize = 4;

/// Lets calls of one service in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter(Arc<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    service: &'static str,
    config: Config,
    state: Mutex<AdmissionState>,
    under_way: Gauge,
    limit: Gauge,
    age: Gauge,
}

#[derive(Debug)]
struct AdmissionState {
    limit: Limit,
    queue: Queue<WaitingCalls>,
    /// Calls that are done and wait to be recorded.
    recording: usize,
    /// Spreads those who were turned away.
    turned_away: u32,
    /// When one was, unless nobody has had to wait since.
    last_turned_away: Option<Instant>,
}

impl AdmissionState {
    /// There is more to do than can be done.
    fn is_overloaded(&self, now: Instant) -> bool {
        self.last_turned_away
            .is_some_and(|last| now.duration_since(last) < OVER)
    }
}

#[derive(Debug)]
struct WaitingCalls {
    since: Instant,
    wake: oneshot::Sender<Slot>,
}

/// A call was turned away; nothing was done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is more to do than can be done; come back later")]
pub struct OverloadRefusal {
    /// There is room for others: it is the caller, or its tenant, that has more than its share.
    pub is_over_share: bool,
    /// When to come back.
    pub retry_after: Duration,
}

impl Limiter {
    /// One for `service`, as metrics call it.
    pub fn new(service: &'static str, config: Config) -> Self {
        let now = Instant::now();
        let shared = LimiterState {
            service,
            config,
            state: Mutex::new(AdmissionState {
                limit: Limit::new(config, Processors::of_this_process(now), now),
                queue: Queue::default(),
                recording: 0,
                turned_away: 0,
                last_turned_away: None,
            }),
            under_way: gauge!(names::IN_FLIGHT_CALLS, "service" => service),
            limit: gauge!(names::CONCURRENCY_LIMIT, "service" => service),
            age: gauge!(names::QUEUE_AGE_SECONDS, "service" => service),
        };
        shared.show(&shared.state(), now);
        Self(Arc::new(shared))
    }

    /// Waits a short while for a place among the calls under way, which tenants share fairly, and so do the callers of
    /// each.
    pub async fn enter(&self, tenant: &str, caller: &str) -> Result<Slot, OverloadRefusal> {
        let owner = CallOwner {
            tenant: tenant.into(),
            caller: caller.into(),
        };
        let (queued, mut woken) = match self.at_once(owner) {
            Ok(slot) => return Ok(slot),
            Err(waits) => waits,
        };
        let (slot, reason) = match timeout(queued.wait, &mut woken).await {
            // The sender is dropped where room is made for others.
            Ok(woken) => (woken.ok(), "queue_full"),
            // It may have been let in at that very moment.
            Err(_) if !queued.leave() => (woken.try_recv().ok(), "queue_full"),
            Err(_) => (None, "waited_too_long"),
        };
        slot.ok_or_else(|| self.0.refused(&queued.owner, reason))
    }

    /// A place, or a place in the queue.
    fn at_once(&self, owner: CallOwner) -> Result<Slot, (QueuedCall, oneshot::Receiver<Slot>)> {
        let now = Instant::now();
        let mut state = self.0.state();
        let (under_way, limit) = (state.queue.under_way(), state.limit.current(now));
        let has_room = state.queue.waiting() == 0 && under_way < limit;
        let may_exceed = || under_way < limit + limit.div_ceil(OVERDRAFT);
        if has_room || (may_exceed() && state.queue.is_idle(&owner)) {
            let slot = Slot::begin(&self.0, &mut state, owner, now);
            if has_room {
                state.last_turned_away = None;
            }
            self.0.show(&state, now);
            return Ok(slot);
        }
        state.limit.has_to_wait(now, under_way);
        let config = &self.0.config;
        let (wait, room) = if state.is_overloaded(now) {
            let few = state.limit.lasting() * FEW;
            (config.wait() / SHORT, config.queue.min(few))
        } else {
            (config.wait(), config.queue)
        };
        let (wake, woken) = oneshot::channel();
        let number = state.queue.push(&owner, WaitingCalls { since: now, wake });
        while state.queue.waiting() > room {
            drop(state.queue.evict());
        }
        self.0.show(&state, now);
        let shared = Arc::clone(&self.0);
        let queued = QueuedCall {
            shared,
            owner,
            number,
            wait,
        };
        Err((queued, woken))
    }

    /// A place for what was let in elsewhere and goes on here: it is not turned away.
    pub fn take(&self, tenant: &str, caller: &str) -> Slot {
        let owner = CallOwner {
            tenant: tenant.into(),
            caller: caller.into(),
        };
        let now = Instant::now();
        let mut state = self.0.state();
        let slot = Slot::begin(&self.0, &mut state, owner, now);
        self.0.show(&state, now);
        slot
    }

    /// What every call waits for took `took`: the limit falls where that takes longer than usual.
    pub fn observe(&self, took: Duration) {
        let now = Instant::now();
        let mut state = self.0.state();
        let under_way = state.queue.under_way();
        let is_calm = state.limit.is_calm(now, under_way);
        state
            .limit
            .learn(now, DurationSource::Neighbour, took, is_calm);
    }

    /// A neighbour has turned a call away: there is more under way here than it can take.
    pub fn turned_away(&self) {
        self.0.state().limit.turned_away(Instant::now());
    }
}

/// A call that waits. It leaves the queue when whoever waits goes away.
struct QueuedCall {
    shared: Arc<LimiterState>,
    owner: CallOwner,
    number: Number,
    /// For how long it may.
    wait: Duration,
}

impl QueuedCall {
    /// Leaves the queue; false if it was no longer there.
    fn leave(&self) -> bool {
        let mut state = self.shared.state();
        state.queue.remove(&self.owner, self.number).is_some()
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        self.leave();
    }
}

impl LimiterState {
    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in whoever is next, as long as there is room.
    fn admit_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, AdmissionState>, now: Instant) {
        let order = if state.is_overloaded(now) {
            Order::NewestFirst
        } else {
            Order::OldestFirst
        };
        let mut woken = Vec::new();
        while state.queue.under_way() < state.limit.current(now)
            && let Some((owner, waiting)) = state.queue.pop(order)
        {
            if !waiting.wake.is_closed() {
                let slot = Slot::begin(self, &mut state, owner, now);
                woken.push((waiting.wake, slot));
            }
        }
        if state.queue.waiting() == 0 {
            state.last_turned_away = None;
        }
        self.show(&state, now);
        drop(state);
        for (wake, slot) in woken {
            // Whoever went away meanwhile has its slot dropped, which lets in the next.
            drop(wake.send(slot));
        }
    }

    fn refused(&self, owner: &CallOwner, reason: &'static str) -> OverloadRefusal {
        let mut state = self.state();
        let is_over_share = state.queue.is_over_share(owner);
        state.turned_away = state.turned_away.wrapping_add(1);
        state.last_turned_away = Some(Instant::now());
        // Not all at once: one to two times what they would wait here.
        let eighths = 8 + state.turned_away % 8;
        drop(state);
        let reason = if is_over_share { "over_share" } else { reason };
        let service = self.service;
        counter!(names::SHED_CALLS, "service" => service, "reason" => reason).increment(1);
        OverloadRefusal {
            is_over_share,
            retry_after: self.config.wait().max(SOONEST) * eighths / 8,
        }
    }

    fn show(&self, state: &AdmissionState, now: Instant) {
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        self.under_way.set(count(state.queue.under_way()));
        self.limit.set(count(state.limit.current(now)));
        let oldest = state.queue.oldest().map(|waiting| waiting.since);
        let age = oldest.map(|since| now.duration_since(since));
        self.age.set(age.unwrap_or_default().as_secs_f64());
    }
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<LimiterState>,
    owner: CallOwner,
    since: Instant,
    began_in_calm: bool,
    /// How long it had a place before it gave it back for a while.
    before: Duration,
    has_place: bool,
}

impl Slot {
    fn begin(
        shared: &Arc<LimiterState>,
        state: &mut AdmissionState,
        owner: CallOwner,
        now: Instant,
    ) -> Self {
        state.queue.begin(&owner);
        let under_way = state.queue.under_way();
        Self {
            shared: Arc::clone(shared),
            owner,
            since: now,
            began_in_calm: state.limit.is_calm(now, under_way),
            before: Duration::ZERO,
            has_place: true,
        }
    }

    /// Gives the place back while nothing is done for the call, as it waits for a person.
    pub fn pause(&mut self) {
        let now = Instant::now();
        self.before += now.duration_since(self.since);
        self.give_back(now);
    }

    /// Takes a place again. What has begun is not turned away.
    pub fn resume(&mut self) {
        if !self.has_place {
            let mut state = self.shared.state();
            state.queue.begin(&self.owner);
            self.since = Instant::now();
            self.has_place = true;
        }
    }

    /// Ends the call, one of that `kind`, and compares how long it took with others of its kind. Its place is free for
    /// the next call while the [`RecordingSlot`] is held, which is while the call's outcome is recorded.
    pub fn done(mut self, kind: &str) -> RecordingSlot {
        let now = Instant::now();
        if !self.has_place {
            return RecordingSlot(HeldPlace::None);
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let under_way = state.queue.under_way();
        let is_calm = state.limit.is_calm(now, under_way) && self.began_in_calm;
        let took = self.before + now.duration_since(self.since);
        state
            .limit
            .learn(now, DurationSource::Call(kind), took, is_calm);
        if state.recording >= state.limit.current(now) {
            drop(state);
            return RecordingSlot(HeldPlace::Own {
                _slot: Box::new(self),
            });
        }
        state.recording += 1;
        drop(state);
        self.give_back(now);
        RecordingSlot(HeldPlace::Counted(shared))
    }

    fn give_back(&mut self, now: Instant) {
        if !self.has_place {
            return;
        }
        self.has_place = false;
        let mut state = self.shared.state();
        state.queue.end(&self.owner);
        self.shared.admit_waiting(state, now);
    }
}

/// A call that is done while its outcome is being recorded: other calls can run meanwhile. At most as many calls are in this
/// state as there are places, so that a slow audit service bounds them; one more keeps its place until it is recorded.
/// Dropping it ends the recording.
#[derive(Debug)]
pub struct RecordingSlot(HeldPlace);

#[derive(Debug)]
enum HeldPlace {
    /// No place of its own: it is counted among the calls that are being recorded.
    Counted(Arc<LimiterState>),
    /// The place of the call, since enough calls are being recorded already.
    Own { _slot: Box<Slot> },
    /// No place: the call had given it back before.
    None,
}

impl Drop for RecordingSlot {
    fn drop(&mut self) {
        if let HeldPlace::Counted(shared) = &self.0 {
            shared.state().recording -= 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back(Instant::now());
    }
}

#[cfg(test)]
mod tests;
