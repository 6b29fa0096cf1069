//! The report of a call that an agent refused. It is recorded once, however often the agent sends it.

use std::time::Duration;

use wardgate_domain::{About, Caller};

use crate::{Store, StoreError};

/// Time for which a recorded report is remembered. It is longer than a turn waits for a person.
const KNOWN_FOR: Duration = Duration::from_hours(24);

/// The id of a report, derived from its caller and the idempotency key of the agent.
///
/// The id is marked only after the report was recorded, so that no report is lost. Two copies that are sent at the same
/// time may both be recorded.
#[derive(Debug, Clone, Copy)]
pub struct RefusalReportId([u8; 16]);

impl RefusalReportId {
    /// Creates the id of the report of `caller` with the idempotency key `key`.
    pub fn new(caller: &Caller, key: &str) -> Self {
        let about = About::new("refused by agent")
            .and(caller.person().as_bytes())
            .and(key.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&about.digest().as_bytes()[..16]);
        Self(id)
    }

    /// Returns whether the report was recorded. Returns `false` if that is unknown, so that the report is recorded again.
    pub async fn is_recorded(self, store: &Store) -> bool {
        store.is_id_used(self.0).await.unwrap_or(false)
    }

    /// Marks the report as recorded.
    pub async fn mark_recorded(self, store: &Store) -> Result<(), StoreError> {
        let until = store.now().plus(KNOWN_FOR);
        store.use_id_once(self.0, until).await.map(drop)
    }
}
