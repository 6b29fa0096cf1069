//! Callers for the tests here.

use std::collections::BTreeMap;

use wardgate_domain::{Caller, CallerClaims, Timestamp};

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
