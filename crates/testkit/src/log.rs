//! What a fake saw.

use std::fmt::Debug;

use tokio::sync::watch;

use crate::PATIENCE;

/// What was seen, in order; a test can wait for more. Clones share it.
#[derive(Debug, Clone)]
pub struct Log<T>(watch::Sender<Vec<T>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl<T: Clone + Debug> Log<T> {
    /// Adds what was seen.
    pub fn push(&self, seen: T) {
        self.0.send_modify(|all| all.push(seen));
    }

    /// Everything so far.
    pub fn all(&self) -> Vec<T> {
        self.0.borrow().clone()
    }

    /// How many were seen so far.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits until so many were seen, and gives them all.
    pub async fn reaches(&self, count: usize) -> Vec<T> {
        self.until(|all| all.len() >= count).await
    }

    /// Waits until what was seen fits, and gives it.
    pub async fn until(&self, fits: impl Fn(&[T]) -> bool) -> Vec<T> {
        let mut receiver = self.0.subscribe();
        let reached = receiver.wait_for(|all| fits(all));
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        let Ok(all) = reached else {
            panic!("waited in vain; seen so far: {:#?}", self.all())
        };
        all.expect("the sender is this log's own").clone()
    }
}
