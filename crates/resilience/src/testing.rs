//! Time and chance as the tests here need them.

use std::collections::BTreeMap;
use std::sync::Arc;

use wardgate_domain::{Ambient, Caller, CallerClaims, Entropy, Timestamp};
use wardgate_testkit::TestClock;

struct Always(u8);

impl Entropy for Always {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

/// Every random wait is the shortest.
pub(super) fn lowest_chance() -> Ambient {
    Ambient::new(Arc::new(TestClock::at(0)), Arc::new(Always(0)))
}

/// Every random wait is the longest.
pub(super) fn highest_chance() -> Ambient {
    Ambient::new(Arc::new(TestClock::at(0)), Arc::new(Always(u8::MAX)))
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
