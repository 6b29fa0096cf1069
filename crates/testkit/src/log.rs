//! A log of the requests that a fake received.

use std::fmt::Debug;

use tokio::sync::watch;

use crate::PATIENCE;

/// A log of observed values, in order. A test can wait for more of them. Clones share the log.
#[derive(Debug, Clone)]
pub struct Log<T>(watch::Sender<Vec<T>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl<T: Clone + Debug> Log<T> {
    /// Appends a value.
    pub fn push(&self, seen: T) {
        self.0.send_modify(|all| all.push(seen));
    }

    /// Returns every value so far.
    pub fn entries(&self) -> Vec<T> {
        self.0.borrow().clone()
    }

    /// Returns the number of values so far.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits until there are at least `count` values, and returns all of them.
    pub async fn reaches(&self, count: usize) -> Vec<T> {
        self.until(|all| all.len() >= count).await
    }

    /// Waits until the values satisfy `fits`, and returns them.
    pub async fn until(&self, fits: impl Fn(&[T]) -> bool) -> Vec<T> {
        let mut receiver = self.0.subscribe();
        let reached = receiver.wait_for(|all| fits(all));
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        let Ok(all) = reached else {
            panic!("waited in vain; seen so far: {:#?}", self.entries())
        };
        all.expect("the sender is this log's own").clone()
    }
}
