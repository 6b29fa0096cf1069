//! Time and chance as the tests here need them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use wardgate_domain::{Ambient, Caller, CallerClaims, Clock, Entropy, SystemEntropy, Timestamp};

/// A clock that is set by hand.
#[derive(Default)]
pub(super) struct SetClock(AtomicI64);

impl SetClock {
    pub(super) fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.0.load(Ordering::Relaxed))
    }
}

struct Always(u8);

impl Entropy for Always {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

/// True chance under a clock that is set by hand.
pub(super) fn set_clock() -> (Ambient, Arc<SetClock>) {
    let clock = Arc::new(SetClock::default());
    let ambient = Ambient::new(
        Arc::clone(&clock) as Arc<dyn Clock>,
        Arc::new(SystemEntropy),
    );
    (ambient, clock)
}

/// Every random wait is the shortest.
pub(super) fn lowest_chance() -> Ambient {
    Ambient::new(Arc::<SetClock>::default(), Arc::new(Always(0)))
}

/// Every random wait is the longest.
pub(super) fn highest_chance() -> Ambient {
    Ambient::new(Arc::<SetClock>::default(), Arc::new(Always(u8::MAX)))
}

/// A caller of that name.
pub(super) fn caller(subject: &str) -> Caller {
    Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
        tenant: String::new(),
        roles: Vec::new(),
        attributes: BTreeMap::new(),
        token_id: String::new(),
        expires_at: Timestamp::from_seconds(0),
    })
}
