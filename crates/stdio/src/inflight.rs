//! Requests under way, so many at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::fault::Fault;
use crate::message::{Id, Request};

/// Lines at a time. Each may hold a whole message, and so may its answer.
const MOST: usize = 64;

/// How long one waits for its turn; the lines behind it wait too.
const TURN: Duration = Duration::from_secs(30);

/// The request that only a cancellation ends.
const LISTEN: &str = "subscriptions/listen";

/// Every request under way, by its id.
#[derive(Debug)]
pub(crate) struct InFlight {
    places: Arc<Mutex<HashMap<Id, Place>>>,
    turns: Arc<Semaphore>,
}

#[derive(Debug)]
struct Place {
    /// HTTP cancels it by dropping it.
    is_modern: bool,
    listens: bool,
    cancelled: CancellationToken,
}

/// The requests of one line. Each is under way until it is answered, or this is dropped: then its id can be used
/// again.
#[derive(Debug)]
pub(crate) struct Ticket {
    places: Arc<Mutex<HashMap<Id, Place>>>,
    /// Those without an answer.
    waiting: Vec<Id>,
    /// The client wants no answer any more.
    pub(crate) cancelled: CancellationToken,
    _turn: OwnedSemaphorePermit,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            places: Arc::default(),
            turns: Arc::new(Semaphore::new(MOST)),
        }
    }

    /// Lets the requests of a line in when it is their turn.
    pub(crate) async fn enter(&self, requests: &[&Request]) -> Result<Ticket, Fault> {
        let turn = timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Fault::Busy);
        };
        let cancelled = CancellationToken::new();
        let mut places = lock(&self.places);
        if requests
            .iter()
            .any(|request| places.contains_key(&request.id))
        {
            return Err(Fault::IdInUse);
        }
        for request in requests {
            let place = Place {
                is_modern: request.version.is_some(),
                listens: request.method == LISTEN,
                cancelled: cancelled.clone(),
            };
            places.insert(request.id.clone(), place);
        }
        Ok(Ticket {
            places: Arc::clone(&self.places),
            waiting: requests.iter().map(|request| request.id.clone()).collect(),
            cancelled,
            _turn: turn,
        })
    }

    /// Drops the modern request `id`. False when there is none: then the gateway must hear of it.
    pub(crate) fn drop_modern(&self, id: &Id) -> bool {
        let places = lock(&self.places);
        let place = places.get(id).filter(|place| place.is_modern);
        if let Some(place) = place {
            place.cancelled.cancel();
        }
        place.is_some()
    }

    /// Drops those that would never end.
    pub(crate) fn drop_listeners(&self) {
        let places = lock(&self.places);
        for place in places.values().filter(|place| place.listens) {
            place.cancelled.cancel();
        }
    }
}

impl Ticket {
    /// The answer to `id` is there, if it is one of these.
    pub(crate) fn answered(&mut self, id: &Id) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting == id) {
            self.waiting.swap_remove(at);
            lock(&self.places).remove(id);
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
        let mut places = lock(&self.places);
        for id in &self.waiting {
            places.remove(id);
        }
        std::mem::take(&mut self.waiting)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.clear();
    }
}

fn lock(places: &Mutex<HashMap<Id, Place>>) -> MutexGuard<'_, HashMap<Id, Place>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
