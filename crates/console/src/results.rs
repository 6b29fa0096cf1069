//! What came of calls, kept in memory for the pages that show it.
//!
//! ```text
//!  POST a form ─▶ begin ─▶ the call ─▶ finish ─▶ 303 ─▶ GET the page of the call, any number of times
//! ```
//!
//! A result is shown to the caller that it was given to, with the rights that they had then, and to nobody else. It is
//! kept for [`KEPT`], in this process alone, and makes room for newer ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wardgate_domain::{About, Ambient, Caller, Digest, Timestamp};

use crate::fields::Fields;
use crate::mcp::{Exchange, Fault};

/// How long a result is kept.
pub(crate) const KEPT: Duration = Duration::from_mins(15);

/// Bytes of results of one caller, and of all together.
const MAX_EACH: usize = 16 << 20;
const MAX_ALL: usize = 128 << 20;

/// Calls of one caller; a call without a result takes room too.
const MAX_CALLS: usize = 64;

/// A call that a form asked for.
#[derive(Debug)]
pub(crate) struct SubmittedCall {
    /// The tool.
    pub(crate) tool: String,
    /// What was filled in.
    pub(crate) fields: Fields,
    /// When.
    pub(crate) at: Timestamp,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    /// Nothing was called: these fields have to be mended.
    Invalid(Vec<(String, &'static str)>),
    /// The gateway answered.
    Answered(Exchange),
    /// The gateway did not.
    Failed(Fault),
    /// The browser went away before there was an answer, which cancelled the call.
    Interrupted,
}

/// A call and what came of it; nothing while it runs.
#[derive(Debug, Clone)]
pub(crate) struct StoredCall {
    pub(crate) call: Arc<SubmittedCall>,
    pub(crate) outcome: Option<Arc<CallOutcome>>,
}

#[derive(Debug)]
struct Entry {
    owner: Digest,
    expires_at: Timestamp,
    bytes: usize,
    stored: StoredCall,
}

/// The results that are kept.
pub(crate) struct CallResults {
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    ambient: Ambient,
}

/// A call that runs. Dropped without an outcome, it was interrupted.
pub(crate) struct RunningCall {
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    id: String,
}

/// The id of a call: the same for one form that the same caller sent twice, since a form has a key of its own.
pub(crate) fn result_id(caller: &Caller, tool: &str, key: &str, form: &[u8]) -> String {
    let about = About::new("console call")
        .and(caller.digest().as_bytes())
        .and(tool.as_bytes())
        .and(key.as_bytes())
        .and(form);
    about.digest().to_string()
}

impl CallResults {
    pub(crate) fn new(ambient: Ambient) -> Self {
        Self {
            entries: Arc::default(),
            ambient,
        }
    }

    /// Makes room for the call `id`. None where it began already.
    pub(crate) fn begin(
        &self,
        id: String,
        caller: &Caller,
        call: SubmittedCall,
    ) -> Option<RunningCall> {
        let now = self.ambient.now();
        let mut entries = lock(&self.entries);
        entries.retain(|_, entry| entry.expires_at > now);
        if entries.contains_key(&id) {
            return None;
        }
        let owner = caller.digest();
        let bytes = call.fields.bytes();
        make_room(&mut entries, owner, bytes);
        let entry = Entry {
            owner,
            expires_at: now.plus(KEPT),
            bytes,
            stored: StoredCall {
                call: Arc::new(call),
                outcome: None,
            },
        };
        entries.insert(id.clone(), entry);
        Some(RunningCall {
            entries: Arc::clone(&self.entries),
            id,
        })
    }

    /// The call `id`, if it is this caller's and still kept.
    pub(crate) fn get(&self, id: &str, caller: &Caller) -> Option<StoredCall> {
        let now = self.ambient.now();
        let entries = lock(&self.entries);
        let entry = entries.get(id)?;
        let is_theirs = entry.owner == caller.digest() && entry.expires_at > now;
        is_theirs.then(|| entry.stored.clone())
    }
}

impl RunningCall {
    pub(crate) fn finish(self, outcome: CallOutcome) {
        let bytes = match &outcome {
            CallOutcome::Answered(exchange) => exchange.bytes(),
            _ => 0,
        };
        let mut entries = lock(&self.entries);
        // It counts for itself only from here on, and takes the place of older ones, not of itself.
        let Some(mut entry) = entries.remove(&self.id) else {
            return;
        };
        entry.bytes += bytes;
        entry.stored.outcome = Some(Arc::new(outcome));
        make_room(&mut entries, entry.owner, entry.bytes);
        entries.insert(self.id.clone(), entry);
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if let Some(entry) = lock(&self.entries).get_mut(&self.id) {
            let interrupted = || Arc::new(CallOutcome::Interrupted);
            entry.stored.outcome.get_or_insert_with(interrupted);
        }
    }
}

/// Removes what is oldest, of `owner` first, until `bytes` more of theirs have room.
fn make_room(entries: &mut HashMap<String, Entry>, owner: Digest, bytes: usize) {
    loop {
        let own = || entries.values().filter(|entry| entry.owner == owner);
        let each: usize = own().map(|entry| entry.bytes).sum();
        let all: usize = entries.values().map(|entry| entry.bytes).sum();
        let is_own_full = each + bytes > MAX_EACH || own().count() >= MAX_CALLS;
        if !is_own_full && all + bytes <= MAX_ALL {
            return;
        }
        let removable = entries
            .iter()
            .filter(|(_, entry)| entry.stored.outcome.is_some())
            .filter(|(_, entry)| !is_own_full || entry.owner == owner);
        let oldest = removable
            .min_by_key(|(_, entry)| entry.expires_at)
            .map(|(id, _)| id.clone());
        match oldest {
            Some(oldest) => entries.remove(&oldest),
            // What runs now is bounded by the number of pages that are worked on at once.
            None => return,
        };
    }
}

fn lock(entries: &Mutex<HashMap<String, Entry>>) -> MutexGuard<'_, HashMap<String, Entry>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wardgate_domain::CallerClaims;

    use super::*;

    fn caller(subject: &str, role: &str) -> Caller {
        Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: subject.to_owned(),
            tenant: String::new(),
            roles: vec![role.to_owned()],
            attributes: BTreeMap::new(),
            token_id: String::new(),
            expires_at: Timestamp::from_seconds(0),
        })
    }

    fn call() -> SubmittedCall {
        SubmittedCall {
            tool: "look_up".to_owned(),
            fields: Fields::default(),
            at: Timestamp::from_seconds(0),
        }
    }

    fn answer(bytes: usize) -> CallOutcome {
        CallOutcome::Answered(Exchange {
            request: String::new(),
            answer: "x".repeat(bytes),
            outcome: Ok(serde_json::Value::Null),
        })
    }

    #[test]
    fn a_result_is_shown_to_whom_it_was_given_with_the_rights_they_had() {
        let results = CallResults::new(Ambient::system());
        let (doctor, id) = (caller("yenji", "Doctor"), "1".to_owned());
        let running = results.begin(id.clone(), &doctor, call()).unwrap();
        assert!(results.get(&id, &doctor).unwrap().outcome.is_none());
        running.finish(answer(3));
        assert!(results.get(&id, &doctor).unwrap().outcome.is_some());
        for other in [caller("joy", "Doctor"), caller("yenji", "Nurse")] {
            assert!(results.get(&id, &other).is_none());
        }
    }

    #[test]
    fn a_form_begins_one_call_and_one_that_breaks_off_says_so() {
        let results = CallResults::new(Ambient::system());
        let (doctor, id) = (caller("yenji", "Doctor"), "1".to_owned());
        let running = results.begin(id.clone(), &doctor, call()).unwrap();
        assert!(results.begin(id.clone(), &doctor, call()).is_none());
        drop(running);
        assert!(results.begin(id.clone(), &doctor, call()).is_none());
        let outcome = results.get(&id, &doctor).unwrap().outcome.unwrap();
        assert!(matches!(*outcome, CallOutcome::Interrupted));
    }

    #[test]
    fn newer_results_take_the_place_of_older_ones_of_the_same_caller() {
        let results = CallResults::new(Ambient::system());
        let (doctor, nurse) = (caller("yenji", "Doctor"), caller("joy", "Nurse"));
        let add = |who: &Caller, name: u32, bytes: usize| {
            let running = results.begin(name.to_string(), who, call()).unwrap();
            running.finish(answer(bytes));
        };
        let has = |who: &Caller, name: u32| results.get(&name.to_string(), who).is_some();
        add(&nurse, 1_000, 10);
        for name in 0..5 {
            add(&doctor, name, 4 << 20);
        }
        assert!(!has(&doctor, 0) && has(&doctor, 4) && has(&nurse, 1_000));
        for name in 100..300 {
            add(&doctor, name, 1);
        }
        assert!(!has(&doctor, 4) && has(&doctor, 299) && has(&nurse, 1_000));
        let kept = lock(&results.entries).len();
        assert_eq!(kept, MAX_CALLS + 1);
    }
}
