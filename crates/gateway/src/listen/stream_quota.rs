//! The quota of streams, watches or requests to upstreams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of streams of one subject.
const EACH: usize = 32;

/// A quota over all subjects, of which each subject may take only a part.
#[derive(Debug)]
pub(crate) struct StreamQuota {
    all: usize,
    /// Maximum number of leases of one subject.
    each: usize,
    taken: Arc<LeasesBySubject>,
}

/// The number of leases of each subject that has any.
#[derive(Debug, Default)]
struct LeasesBySubject(Mutex<HashMap<String, usize>>);

impl LeasesBySubject {
    fn by_subject(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the quota in use, which is returned when the lease is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    subject: String,
    taken: Arc<LeasesBySubject>,
}

impl StreamQuota {
    pub(crate) fn new(all: usize) -> Self {
        Self::of_each(all, EACH)
    }

    /// Creates a quota of `all` leases, of which one subject takes at most `each`.
    pub(crate) fn of_each(all: usize, each: usize) -> Self {
        Self {
            all,
            each,
            taken: Arc::default(),
        }
    }

    /// Takes a lease for `subject`. Returns `None` if the quota is used up.
    pub(crate) fn acquire_lease(&self, subject: &str) -> Option<Lease> {
        let mut by_subject = self.taken.by_subject();
        let own = by_subject.get(subject).copied().unwrap_or_default();
        if own >= self.each || by_subject.values().sum::<usize>() >= self.all {
            return None;
        }
        by_subject.insert(subject.to_owned(), own + 1);
        Some(Lease {
            subject: subject.to_owned(),
            taken: Arc::clone(&self.taken),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut by_subject = self.taken.by_subject();
        if let Some(own) = by_subject.get_mut(&self.subject) {
            *own -= 1;
            if *own == 0 {
                by_subject.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_so_many_places_and_another_has_its_own() {
        let places = StreamQuota::new(100);
        let mut own: Vec<_> = (0..EACH)
            .map(|_| places.acquire_lease("a").unwrap())
            .collect();
        assert!(places.acquire_lease("a").is_none());
        assert!(places.acquire_lease("b").is_some());
        own.pop();
        assert!(places.acquire_lease("a").is_some());
        drop(own);
        assert!(places.taken.by_subject().is_empty());
    }

    #[test]
    fn there_are_so_many_places_for_all_together() {
        let places = StreamQuota::new(2);
        let one = places.acquire_lease("a").unwrap();
        let _other = places.acquire_lease("b").unwrap();
        assert!(places.acquire_lease("c").is_none());
        drop(one);
        assert!(places.acquire_lease("c").is_some());
    }
}
