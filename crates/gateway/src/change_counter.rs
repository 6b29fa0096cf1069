//! A counter of the changes that may affect the lists of clients.

use std::sync::Arc;

use tokio::sync::watch;

/// The number of changes to what callers see.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeCounter(Arc<watch::Sender<u64>>);

impl ChangeCounter {
    /// Counts a change.
    pub(crate) fn announce(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that is notified of every change from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
