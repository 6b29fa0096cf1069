//! The requests in flight, whose number is limited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::fault::RequestFault;
use crate::message::{ClientRequest, Id};

/// Maximum number of lines in flight. Each line may contain a message of the maximum size, and so may its response.
const MOST: usize = 64;

/// Maximum time that a line waits until it is admitted. The lines after it wait too.
const TURN: Duration = Duration::from_secs(30);

/// Method of the request that ends only by cancellation.
const LISTEN: &str = "subscriptions/listen";

/// All requests in flight, by id.
#[derive(Debug)]
pub(crate) struct InFlight {
    pending: Arc<Mutex<HashMap<Id, PendingRequest>>>,
    turns: Arc<Semaphore>,
}

/// A request under way.
#[derive(Debug)]
struct PendingRequest {
    /// Whether the request is modern, so that closing its HTTP exchange cancels it.
    is_modern: bool,
    listens: bool,
    cancelled: CancellationToken,
}

/// The requests of one line. Each is in flight until it is answered or the guard is dropped. Its id can then be used
/// again.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    pending: Arc<Mutex<HashMap<Id, PendingRequest>>>,
    /// The ids of the requests without a response.
    waiting: Vec<Id>,
    /// Cancelled when the client no longer wants a response.
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

    /// Admits the requests of a line, when the number of lines in flight allows it.
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

    /// Cancels the modern request `id`. Returns `false` if there is none, in which case the gateway must be notified.
    pub(crate) fn drop_modern(&self, id: &Id) -> bool {
        let pending = lock(&self.pending);
        let place = pending.get(id).filter(|place| place.is_modern);
        if let Some(place) = place {
            place.cancelled.cancel();
        }
        place.is_some()
    }

    /// Cancels the requests that would not end by themselves.
    pub(crate) fn drop_listeners(&self) {
        let pending = lock(&self.pending);
        for place in pending.values().filter(|place| place.listens) {
            place.cancelled.cancel();
        }
    }
}

impl RequestGuard {
    /// Marks the request `id` as answered, if it is one of these.
    pub(crate) fn mark_answered(&mut self, id: &Id) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting == id) {
            self.waiting.swap_remove(at);
            lock(&self.pending).remove(id);
        }
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the requests that will not be answered, and returns their ids.
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
