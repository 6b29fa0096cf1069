//! How many exchanges with upstream servers may be carried at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;

/// Exchanges with all servers together that wait for an answer or for changes at the same time. Each is a stream of the
/// gateway's connection too, on which calls need room.
pub(crate) const MOST_OPEN: usize = 640;

/// Exchanges that wait for nothing: answers of clients, notifications, the end of a session. They have places of their own,
/// since the exchanges that hold the others may be waiting for them.
const MOST_ONE_WAY: usize = 128;

/// The places of exchanges with all servers together.
pub(crate) struct RelayPlaces {
    waiting: Arc<Semaphore>,
    one_way: Arc<Semaphore>,
}

impl RelayPlaces {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(MOST_OPEN)),
            one_way: Arc::new(Semaphore::new(MOST_ONE_WAY)),
        }
    }

    /// A place for one exchange, where there is one left.
    pub(crate) fn take(&self, is_one_way: bool) -> Result<OwnedSemaphorePermit, Error> {
        let places = if is_one_way {
            &self.one_way
        } else {
            &self.waiting
        };
        let place = Arc::clone(places).try_acquire_owned();
        place.map_err(|_| Error::TooManyRelays)
    }
}
