//! The concurrency limiter, which combines limit and queue: a call enters, waits or is refused, and reports its end.

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

/// Minimum time after which a refused caller should retry.
const SOONEST: Duration = Duration::from_millis(100);
/// Divisor of the maximum wait during overload.
const SHORT: u32 = 10;
/// Maximum number of waiting calls during overload, as a multiple of the limit. These are enough to keep the service
/// busy. A call that is evicted in favour of a newer one is refused while the service handles the newer one anyway,
/// whereas the timeout of its wait would wake the service once more.
const FEW: usize = 8;
/// Time without a refusal after which the overload is over.
const OVER: Duration = Duration::from_secs(1);
/// Divisor of the limit that gives how far the limit may be exceeded in total, by owners that have no call in progress.
const OVERDRAFT: usize = 4;

/// Limits the concurrent calls of one service. Clones share the limit.
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
    /// The number of calls that have finished and wait to be recorded.
    recording: usize,
    /// A counter of refusals, which spreads the times after which refused callers should retry.
    turned_away: u32,
    /// The time of the last refusal, or `None` if since then there was a moment in which no call had to wait.
    last_turned_away: Option<Instant>,
}

impl AdmissionState {
    /// Returns whether calls were refused recently.
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

/// The call was refused because of overload. Nothing was done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the service is overloaded; try again later")]
pub struct OverloadRefusal {
    /// Whether the caller or its tenant has more than its share, so that there may be room for others.
    pub is_over_share: bool,
    /// The time after which the caller should retry.
    pub retry_after: Duration,
}

impl Limiter {
    /// Creates a limiter for `service`, which is the name in metrics.
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
        shared.update_gauges(&shared.state(), now);
        Self(Arc::new(shared))
    }

    /// Waits a short time for a slot. Slots are shared fairly between tenants, and between the callers of each tenant.
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
            // The sender is dropped if the call was evicted from the queue.
            Ok(woken) => (woken.ok(), "queue_full"),
            // The call may have been admitted at the moment of the timeout.
            Err(_) if !queued.leave() => (woken.try_recv().ok(), "queue_full"),
            Err(_) => (None, "waited_too_long"),
        };
        slot.ok_or_else(|| self.0.refuse_call(&queued.owner, reason))
    }

    /// Returns a slot if there is one, or else a place in the queue.
    fn at_once(&self, owner: CallOwner) -> Result<Slot, (QueuedCall, oneshot::Receiver<Slot>)> {
        let now = Instant::now();
        let mut state = self.0.state();
        let (under_way, limit) = (state.queue.under_way(), state.limit.current(now));
        let has_room = state.queue.waiting_count() == 0 && under_way < limit;
        let may_exceed = || under_way < limit + limit.div_ceil(OVERDRAFT);
        if has_room || (may_exceed() && state.queue.is_idle(&owner)) {
            let slot = Slot::begin(&self.0, &mut state, owner, now);
            if has_room {
                state.last_turned_away = None;
            }
            self.0.update_gauges(&state, now);
            return Ok(slot);
        }
        state.limit.has_to_wait(now, under_way);
        let config = &self.0.config;
        let (wait, room) = if state.is_overloaded(now) {
            let few = state.limit.lasting_limit() * FEW;
            (config.wait() / SHORT, config.queue.min(few))
        } else {
            (config.wait(), config.queue)
        };
        let (wake, woken) = oneshot::channel();
        let number = state.queue.push(&owner, WaitingCalls { since: now, wake });
        while state.queue.waiting_count() > room {
            drop(state.queue.evict());
        }
        self.0.update_gauges(&state, now);
        let shared = Arc::clone(&self.0);
        let queued = QueuedCall {
            shared,
            owner,
            number,
            wait,
        };
        Err((queued, woken))
    }

    /// Takes a slot for a call that was admitted elsewhere and continues here. It is not refused.
    pub fn enter_unchecked(&self, tenant: &str, caller: &str) -> Slot {
        let owner = CallOwner {
            tenant: tenant.into(),
            caller: caller.into(),
        };
        let now = Instant::now();
        let mut state = self.0.state();
        let slot = Slot::begin(&self.0, &mut state, owner, now);
        self.0.update_gauges(&state, now);
        slot
    }

    /// Records the duration of something for which every call waits. The limit falls if it takes longer than usual.
    pub fn observe(&self, took: Duration) {
        let now = Instant::now();
        let mut state = self.0.state();
        let under_way = state.queue.under_way();
        let is_calm = state.limit.is_calm(now, under_way);
        state
            .limit
            .record_duration(now, DurationSource::Neighbour, took, is_calm);
    }

    /// Records that a neighbour refused a call, because this service has more calls in progress than the neighbour can
    /// take.
    pub fn turned_away(&self) {
        self.0.state().limit.turned_away(Instant::now());
    }
}

/// A call in the queue. It leaves the queue when it is dropped.
struct QueuedCall {
    shared: Arc<LimiterState>,
    owner: CallOwner,
    number: Number,
    /// The maximum time for which it waits.
    wait: Duration,
}

impl QueuedCall {
    /// Leaves the queue. Returns `false` if the call was no longer in it.
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

    /// Admits the next waiting calls while there is room.
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
        if state.queue.waiting_count() == 0 {
            state.last_turned_away = None;
        }
        self.update_gauges(&state, now);
        drop(state);
        for (wake, slot) in woken {
            // If the receiver is gone, its slot is dropped, which admits the next call.
            drop(wake.send(slot));
        }
    }

    fn refuse_call(&self, owner: &CallOwner, reason: &'static str) -> OverloadRefusal {
        let mut state = self.state();
        let is_over_share = state.queue.is_over_share(owner);
        state.turned_away = state.turned_away.wrapping_add(1);
        state.last_turned_away = Some(Instant::now());
        // Refused callers are spread over one to two times the wait, so that they do not all retry at once.
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

    fn update_gauges(&self, state: &AdmissionState, now: Instant) {
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        self.under_way.set(count(state.queue.under_way()));
        self.limit.set(count(state.limit.current(now)));
        let oldest = state.queue.oldest().map(|waiting| waiting.since);
        let age = oldest.map(|since| now.duration_since(since));
        self.age.set(age.unwrap_or_default().as_secs_f64());
    }
}

/// The slot of a call in progress, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<LimiterState>,
    owner: CallOwner,
    since: Instant,
    began_in_calm: bool,
    /// The time for which the call had a slot before it was paused.
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

    /// Releases the slot while nothing is done for the call, for example while it waits for a person.
    pub fn pause(&mut self) {
        let now = Instant::now();
        self.before += now.duration_since(self.since);
        self.give_back(now);
    }

    /// Takes a slot again. A call that has begun is not refused.
    pub fn resume(&mut self) {
        if !self.has_place {
            let mut state = self.shared.state();
            state.queue.begin(&self.owner);
            self.since = Instant::now();
            self.has_place = true;
        }
    }

    /// Ends the call, and compares its duration with other calls of that `kind`. The next call can use the slot while
    /// the returned [`RecordingSlot`] is held, which is while the outcome is being recorded.
    pub fn end_call(mut self, kind: &str) -> RecordingSlot {
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
            .record_duration(now, DurationSource::Call(kind), took, is_calm);
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

/// A finished call whose outcome is being recorded. Other calls can run in the meantime. At most as many calls are in
/// this state as the limit allows, so that a slow audit service slows the calls down; further calls keep their slots
/// until they are recorded. Dropping it ends the recording.
#[derive(Debug)]
pub struct RecordingSlot(HeldPlace);

#[derive(Debug)]
enum HeldPlace {
    /// The call has no slot any more and is counted among the calls that are being recorded.
    Counted(Arc<LimiterState>),
    /// The call keeps its slot, because the maximum number of calls is being recorded already.
    Own { _slot: Box<Slot> },
    /// The call had no slot, because it was paused.
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
