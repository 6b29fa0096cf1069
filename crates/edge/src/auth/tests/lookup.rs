//! Lookup of the roles of callers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::{Notify, watch};
use wardgate_domain::{Caller, CallerClaims, CallerRights, Timestamp};
use wardgate_rpc::Peer;
use wardgate_testkit::{FakePolicy, TestClock};

use crate::auth::{CallerLookup, RightsSource, TokenRefusal};

/// A source that makes every caller a nurse. It waits for permission to answer, and counts its lookups.
#[derive(Clone, Default)]
struct Ward {
    asked: Arc<AtomicUsize>,
    answer: Arc<Notify>,
    is_away: bool,
}

#[async_trait]
impl RightsSource for Ward {
    async fn look_up(&self, _: &Caller) -> Result<CallerRights, TokenRefusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answer.notified().await;
        if self.is_away {
            return Err(TokenRefusal::RightsUnavailable);
        }
        Ok(CallerRights {
            roles: vec!["Nurse".to_owned()],
            attributes: BTreeMap::new(),
            replaces_claims: false,
            expires_at: Timestamp::from_seconds(1_060),
        })
    }
}

fn caller(subject: &str) -> Arc<Caller> {
    Arc::new(Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
        tenant: String::new(),
        roles: Vec::new(),
        attributes: BTreeMap::new(),
        token_id: "t".to_owned(),
        expires_at: Timestamp::from_seconds(9_999),
    }))
}

#[tokio::test]
async fn many_requests_of_one_caller_at_once_are_one_lookup_and_so_are_later_ones_until_it_ends() {
    let (ward, clock) = (Ward::default(), TestClock::at(1_000));
    let lookup = CallerLookup::new(ward.clone(), 100, clock.ambient());
    let requests = (0..20).map(|_| lookup.complete(caller("joy")));
    let (known, ()) = tokio::join!(join_all(requests), async { ward.answer.notify_one() });
    for known in known {
        assert_eq!(known.unwrap().roles(), ["Nurse"]);
    }
    clock.advance(Duration::from_secs(59));
    lookup.complete(caller("joy")).await.unwrap();
    assert_eq!(ward.asked.load(Ordering::SeqCst), 1);
    // Another caller, and the same caller after the expiry.
    for (subject, later) in [("kim", 0), ("joy", 1)] {
        clock.advance(Duration::from_secs(later));
        ward.answer.notify_one();
        lookup.complete(caller(subject)).await.unwrap();
    }
    assert_eq!(ward.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_lookup_that_fails_is_not_remembered() {
    let ward = Ward {
        is_away: true,
        ..Ward::default()
    };
    let lookup = CallerLookup::new(ward.clone(), 100, TestClock::at(1_000).ambient());
    for asked in 1..=2 {
        ward.answer.notify_one();
        let refused = lookup.complete(caller("joy")).await.unwrap_err();
        assert_eq!(refused, TokenRefusal::RightsUnavailable);
        assert_eq!(ward.asked.load(Ordering::SeqCst), asked);
    }
}

#[tokio::test]
async fn the_policy_service_is_asked_only_where_it_looks_callers_up() {
    let ambient = TestClock::at(1_000).ambient();
    let client = FakePolicy::new(ambient.clone()).client(Peer::Gateway);
    let (looks_up, in_force) = watch::channel(None);
    let lookup = CallerLookup::of_policy(client, in_force, ambient);
    // Whether the policy service looks up callers is not known. Its own decision looks them up in any case.
    assert!(lookup.complete(caller("joy")).await.is_ok());
    looks_up.send_replace(Some(false));
    assert!(lookup.complete(caller("joy")).await.is_ok());
    // This caller has no token with which the policy service could be asked.
    looks_up.send_replace(Some(true));
    let refused = lookup.complete(caller("joy")).await.unwrap_err();
    assert_eq!(refused, TokenRefusal::RightsUnavailable);
}
