//! Requests under way, so many at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::fault::RequestFault;
use crate::message::{ClientRequest, Id};

/// Lines at a time. Each may hold a whole message, and so may its answer.
const MOST: usize = 64;

/// How long one waits for its turn; the lines behind it wait too.
const TURN: Duration = Duration::from_secs(30);

/// The request that only a cancellation ends.
const LISTEN: &str = "subscriptions/listen";

/// Every request under way, by its id.
#[derive(Debug)]
pub(crate) struct InFlight {
    pending: Arc<Mutex<HashMap<Id, PendingRequest>>>,
    turns: Arc<Semaphore>,
}

/// A request under way.
#[derive(Debug)]
struct PendingRequest {
    /// HTTP cancels it by dropping it.
    is_modern: bool,
    listens: bool,
    cancelled: CancellationToken,
}

/// The requests of one line. Each is under way until it is answered, or this is dropped: then its id can be used
/// again.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    pending: Arc<Mutex<HashMap<Id, PendingRequest>>>,
    /// Those without an answer.
    waiting: Vec<Id>,
    /// The client wants no answer any more.
    pub(crate) cancelled: CancellationToken,
    _turn: OwnedSemaphorePermit,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            pending: Arc::default(),
            turns: Arc::new(Semaphore::new(MOST)),
        }
    }

    /// Lets the requests of a line in when it is their turn.
    pub(crate) async fn enter(
        &self,
        requests: &[&ClientRequest],
    ) -> Result<RequestGuard, RequestFault> {
        let turn = timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(RequestFault::Busy);
        };
        let cancelled = CancellationToken::new();
        let mut pending = lock(&self.pending);
        if requests
            .iter()
            .any(|request| pending.contains_key(&request.id))
        {
            return Err(RequestFault::IdInUse);
        }
        for request in requests {
            let place = PendingRequest {
                is_modern: request.version.is_some(),
                listens: request.method == LISTEN,
                cancelled: cancelled.clone(),
            };
            pending.insert(request.id.clone(), place);
        }
        Ok(RequestGuard {
            pending: Arc::clone(&self.pending),
            waiting: requests.iter().map(|request| request.id.clone()).collect(),
            cancelled,
            _turn: turn,
        })
    }

    /// Drops the modern request `id`. False when there is none: then the gateway must hear of it.
    pub(crate) fn drop_modern(&self, id: &Id) -> bool {
        let pending = lock(&self.pending);
        let place = pending.get(id).filter(|place| place.is_modern);
        if let Some(place) = place {
            place.cancelled.cancel();
        }
        place.is_some()
    }

    /// Drops those that would never end.
    pub(crate) fn drop_listeners(&self) {
        let pending = lock(&self.pending);
        for place in pending.values().filter(|place| place.listens) {
            place.cancelled.cancel();
        }
    }
}

impl RequestGuard {
    /// The answer to `id` is there, if it is one of these.
    pub(crate) fn answered(&mut self, id: &Id) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting == id) {
            self.waiting.swap_remove(at);
            lock(&self.pending).remove(id);
        }
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// None of the rest will be answered.
    pub(crate) fn give_up(mut self) -> Vec<Id> {
        self.clear()
    }

    fn clear(&mut self) -> Vec<Id> {
        let mut pending = lock(&self.pending);
        for id in &self.waiting {
            pending.remove(id);
        }
        std::mem::take(&mut self.waiting)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.clear();
    }
}

fn lock(
    pending: &Mutex<HashMap<Id, PendingRequest>>,
) -> MutexGuard<'_, HashMap<Id, PendingRequest>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
