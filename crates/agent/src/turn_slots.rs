//! A limit on the concurrent turns of one user, because each turn uses a model and holds a stream.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use wardgate_domain::Caller;

use crate::approval::Person;

/// Maximum number of concurrent turns of one user in one process.
pub(crate) const MAX_TURNS: usize = 32;

/// The number of active turns by user. Cheap to clone; all clones share the same counters.
#[derive(Clone, Default)]
pub(crate) struct TurnSlots(Arc<Mutex<HashMap<Person, usize>>>);

/// The slot of one turn, which is released on drop.
pub(crate) struct TurnSlot {
    turn_slots: TurnSlots,
    person: Person,
}

impl TurnSlots {
    /// Takes a slot for a turn of `caller`, or returns `None` if all slots are taken.
    pub(crate) fn acquire(&self, caller: &Caller) -> Option<TurnSlot> {
        let person = Person::from_caller(caller);
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(person.clone()).or_default();
        if *count == MAX_TURNS {
            return None;
        }
        *count += 1;
        Some(TurnSlot {
            turn_slots: self.clone(),
            person,
        })
    }
}

impl Drop for TurnSlot {
    fn drop(&mut self) {
        let mut taken = self
            .turn_slots
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = taken.entry(self.person.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
