//! Exchanges with legacy servers that stay open while a person is asked: a bounded number, for a bounded time, each
//! to be taken up once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, Digest};

use super::state::SuspensionKey;
use wardgate_mcp_client::OpenExchange;

/// Parked at the same time, in all and of one person.
const MOST: usize = 1_024;
const MOST_OF_ONE: usize = 64;

/// How long a person may take.
const PATIENCE: Duration = Duration::from_mins(10);

pub(crate) struct SuspendedExchanges {
    ambient: Ambient,
    /// Where other replicas reach this one.
    address: Option<String>,
    places: Mutex<HashMap<SuspensionKey, SuspendedExchange>>,
}

struct SuspendedExchange {
    owner: Digest,
    /// What was asked for; nothing else takes it up.
    subject: Digest,
    exchange: OpenExchange,
    _patience: AbortOnDropHandle<()>,
}

impl SuspendedExchanges {
    pub(crate) fn new(address: Option<String>, ambient: Ambient) -> Self {
        Self {
            ambient,
            address,
            places: Mutex::default(),
        }
    }

    /// Where other replicas reach this one.
    pub(super) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Gives the exchange back where there is no place.
    pub(super) fn park(
        self: &Arc<Self>,
        owner: Digest,
        subject: Digest,
        exchange: OpenExchange,
    ) -> Result<SuspensionKey, OpenExchange> {
        let mut places = self.lock();
        let of_owner = places.values().filter(|parked| parked.owner == owner);
        if places.len() >= MOST || of_owner.count() >= MOST_OF_ONE {
            return Err(exchange);
        }
        let id = Digest::from_bytes(self.ambient.random()).to_string();
        let place = SuspensionKey {
            id,
            at: self.address.clone(),
        };
        let patience = clear_in_time(Arc::downgrade(self), place.clone());
        let parked = SuspendedExchange {
            owner,
            subject,
            exchange,
            _patience: AbortOnDropHandle::new(tokio::spawn(patience)),
        };
        places.insert(place.clone(), parked);
        Ok(place)
    }

    /// Takes up what is parked there, if it is of `subject`.
    pub(super) fn take(&self, place: &SuspensionKey, subject: Digest) -> Option<OpenExchange> {
        let mut places = self.lock();
        let is_own = |parked: &&SuspendedExchange| parked.subject == subject;
        places.get(place).filter(is_own)?;
        places.remove(place).map(|parked| parked.exchange)
    }

    /// Ends everything that waits.
    pub(crate) fn clear(&self) {
        let parked = std::mem::take(&mut *self.lock());
        drop(parked);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SuspensionKey, SuspendedExchange>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server hears that nobody waits for its answer any more.
async fn clear_in_time(parking: Weak<SuspendedExchanges>, place: SuspensionKey) {
    sleep(PATIENCE).await;
    if let Some(parking) = parking.upgrade() {
        let late = parking.lock().remove(&place);
        drop(late);
    }
}
