//! Exchanges with legacy servers that stay open while a person is asked. Their number and duration are limited, and
//! each can be resumed once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, Digest};

use super::state::SuspensionKey;
use wardgate_mcp_client::OpenExchange;

/// Maximum number of suspended exchanges, in total and per person.
const MAX_SUSPENDED: usize = 1_024;
const MAX_SUSPENDED_PER_PERSON: usize = 64;

/// Maximum time that a person may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

pub(crate) struct SuspendedExchanges {
    ambient: Ambient,
    /// The address at which other replicas reach this one.
    address: Option<String>,
    exchanges: Mutex<HashMap<SuspensionKey, SuspendedExchange>>,
}

struct SuspendedExchange {
    owner: Digest,
    /// The digest of the request. No other request can resume the exchange.
    subject: Digest,
    exchange: OpenExchange,
    _expiry: AbortOnDropHandle<()>,
}

impl SuspendedExchanges {
    pub(crate) fn new(address: Option<String>, ambient: Ambient) -> Self {
        Self {
            ambient,
            address,
            exchanges: Mutex::default(),
        }
    }

    /// Returns the address at which other replicas reach this one.
    pub(super) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Suspends `exchange`, or returns it if there are too many suspended exchanges.
    pub(super) fn suspend(
        self: &Arc<Self>,
        owner: Digest,
        subject: Digest,
        exchange: OpenExchange,
    ) -> Result<SuspensionKey, OpenExchange> {
        let mut exchanges = self.lock();
        let of_owner = exchanges
            .values()
            .filter(|suspended| suspended.owner == owner);
        if exchanges.len() >= MAX_SUSPENDED || of_owner.count() >= MAX_SUSPENDED_PER_PERSON {
            return Err(exchange);
        }
        let id = Digest::from_bytes(self.ambient.random()).to_string();
        let key = SuspensionKey {
            id,
            at: self.address.clone(),
        };
        let expiry = remove_expired(Arc::downgrade(self), key.clone());
        let suspended = SuspendedExchange {
            owner,
            subject,
            exchange,
            _expiry: AbortOnDropHandle::new(tokio::spawn(expiry)),
        };
        exchanges.insert(key.clone(), suspended);
        Ok(key)
    }

    /// Removes and returns the exchange of `key` if it belongs to `subject`.
    pub(super) fn take_exchange(
        &self,
        key: &SuspensionKey,
        subject: Digest,
    ) -> Option<OpenExchange> {
        let mut exchanges = self.lock();
        let is_own = |suspended: &&SuspendedExchange| suspended.subject == subject;
        exchanges.get(key).filter(is_own)?;
        exchanges.remove(key).map(|suspended| suspended.exchange)
    }

    /// Ends all suspended exchanges.
    pub(crate) fn clear(&self) {
        let suspended = std::mem::take(&mut *self.lock());
        drop(suspended);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SuspensionKey, SuspendedExchange>> {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the exchange after the timeout. Dropping the exchange tells the server that no answer will come.
async fn remove_expired(exchanges: Weak<SuspendedExchanges>, key: SuspensionKey) {
    sleep(ANSWER_TIMEOUT).await;
    if let Some(exchanges) = exchanges.upgrade() {
        let late = exchanges.lock().remove(&key);
        drop(late);
    }
}
