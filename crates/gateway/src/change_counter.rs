//! What may change a list of tools, counted.

use std::sync::Arc;

use tokio::sync::watch;

/// How often anything changed what callers see.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeCounter(Arc<watch::Sender<u64>>);

impl ChangeCounter {
    /// Something did.
    pub(crate) fn announce(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Hears of every change from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
