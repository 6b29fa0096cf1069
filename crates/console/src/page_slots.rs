//! The limit on the number of pages that are rendered concurrently, because each may hold a response of the gateway in
//! memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use wardgate_domain::{Caller, Digest};

/// Maximum number of concurrent pages of all persons.
const ALL: usize = 64;

/// Maximum number of concurrent pages of one person.
const EACH: usize = 8;

/// The number of pages in progress, by person.
#[derive(Default)]
pub(crate) struct PageSlots(Arc<Mutex<HashMap<Digest, usize>>>);

/// The slot of one page. Dropping it frees the slot.
pub(crate) struct PageSlot {
    taken: Arc<Mutex<HashMap<Digest, usize>>>,
    person: Digest,
}

impl PageSlots {
    /// Takes a slot for a page of `caller`. Returns `None` if all slots are taken.
    pub(crate) fn acquire(&self, caller: &Caller) -> Option<PageSlot> {
        let person = caller.person();
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        if all >= ALL || taken.get(&person).is_some_and(|own| *own >= EACH) {
            return None;
        }
        *taken.entry(person).or_default() += 1;
        Some(PageSlot {
            taken: Arc::clone(&self.0),
            person,
        })
    }
}

impl Drop for PageSlot {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = taken.entry(self.person) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wardgate_testkit::caller;

    use super::*;

    #[test]
    fn one_person_leaves_places_to_others_and_all_have_no_more_than_there_are() {
        let slots = PageSlots::default();
        let take = |who: &str, count: usize| -> Vec<PageSlot> {
            let tries = (0..count).map(|_| slots.acquire(&caller(who, &[])));
            tries.flatten().collect()
        };
        let mut own = take("anna", 20);
        assert_eq!(own.len(), EACH);
        own.pop();
        assert_eq!(take("anna", 1).len(), 1);
        let others: Vec<_> = (0..20).map(|who| take(&who.to_string(), EACH)).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), ALL - own.len());
        drop(others);
        assert_eq!(take("bob", 1).len(), 1);
    }
}
