use std::num::NonZeroU32;

use wardgate_domain::Ambient;
use wardgate_testkit::caller;

use super::*;
use crate::quota::charge;

fn quota(name: &str, per: &str) -> Quota {
    let quota =
        format!(r#"{{"name":"{name}","rate":"10/d","per":[{per}],"costs":{{"export_all":4}}}}"#);
    serde_json::from_str(&quota).unwrap()
}

fn uses() -> (Arc<SharedRateLimiter>, LimitUses) {
    let rates = Arc::new(SharedRateLimiter::new(None, &Ambient::system()));
    (Arc::clone(&rates), LimitUses::new(rates, None))
}

fn row(state: &LimitState) -> (&str, Option<&str>, Option<&str>, u32, u32) {
    let owner = &state.owner;
    let (subject, tool) = (owner.subject.as_deref(), owner.tool.as_deref());
    (&owner.limit, subject, tool, state.used, state.left)
}

#[tokio::test(start_paused = true)]
async fn operators_see_who_used_how_much_of_which_limit_and_what_is_left() {
    let quotas = [
        quota("exports", r#""caller""#),
        quota("tools", r#""tool""#),
        quota("unused", r#""tenant""#),
    ];
    let (rates, uses) = uses();
    let limits: Vec<_> = quotas.iter().map(Quota::overview).collect();
    for (name, tool, times) in [("ada", "export", 2), ("jim", "export_all", 1)] {
        let caller = caller(name, &[]);
        for _ in 0..times {
            let request = QuotaUse {
                caller: &caller,
                method: "tools/call",
                tool,
            };
            uses.note_quotas(&quotas[..2], request);
            let charged = charge(&quotas[..2], &rates, request, None).await;
            assert_eq!(charged, Ok(()));
        }
    }
    let states = uses.list(&limits, None).await.unwrap();
    let seen: Vec<_> = states.iter().map(row).collect();
    let expected = [
        ("exports", Some("jim"), None, 4, 6),
        ("exports", Some("ada"), None, 2, 8),
        ("tools", None, Some("export_all"), 4, 6),
        ("tools", None, Some("export"), 2, 8),
        ("unused", None, None, 0, 10),
    ];
    assert_eq!(seen, expected);
    // A unit of ten a day flows back in 8,640 seconds.
    assert_eq!(states[0].resets_in_seconds, 4 * 8_640);
    tokio::time::advance(Duration::from_secs(8_640)).await;
    let states = uses.list(&limits, None).await.unwrap();
    assert_eq!(row(&states[0]), ("exports", Some("jim"), None, 3, 7));
    assert_eq!(states[0].resets_in_seconds, 3 * 8_640);
}

#[tokio::test(start_paused = true)]
async fn an_operator_of_a_tenant_sees_what_counts_that_tenant_alone() {
    let (rates, uses) = uses();
    let overview = quota("exports", r#""caller""#).overview();
    let owners = [("north", Some("ada")), ("south", Some("jim")), ("", None)];
    for (index, (tenant, subject)) in owners.into_iter().enumerate() {
        let bucket = Digest::compute(&[u8::try_from(index).unwrap()]);
        uses.note(bucket, || BucketOwner {
            limit: overview.name.clone(),
            tenant: subject.map(|_| tenant.to_owned()),
            subject: subject.map(str::to_owned),
            ..BucketOwner::default()
        });
        let taken = rates
            .try_acquire_calls(bucket, overview.rate, NonZeroU32::MIN)
            .await;
        assert_eq!(taken, Ok(()));
    }
    let limits = [overview];
    let of_north = uses.list(&limits, Some("north")).await.unwrap();
    let seen: Vec<_> = of_north.iter().map(row).collect();
    assert_eq!(seen, [("exports", Some("ada"), None, 1, 9)]);
    assert_eq!(uses.list(&limits, None).await.unwrap().len(), 3);
    let of_west = uses.list(&limits, Some("west")).await.unwrap();
    assert_eq!(row(&of_west[0]), ("exports", None, None, 0, 10));
}

#[test]
fn a_use_is_counted_the_same_by_a_store_in_microseconds_and_here_in_nanoseconds() {
    // 7 a minute do not divide evenly; each call takes 8.571428571… seconds.
    let limit = LimitOverview {
        name: "uneven".to_owned(),
        rate: "7/m".parse().unwrap(),
        per: Vec::new(),
    };
    let used = |full_in| {
        let owner = BucketOwner::default();
        limit.state(Some(&BucketUse { owner, full_in })).used
    };
    for calls in 1..=7 {
        assert_eq!(
            used(Duration::from_nanos(calls * 8_571_428_572)),
            u32::try_from(calls).unwrap()
        );
        assert_eq!(
            used(Duration::from_micros(calls * 8_571_429)),
            u32::try_from(calls).unwrap()
        );
    }
    assert_eq!(used(Duration::from_hours(1)), 7);
    assert_eq!(used(Duration::ZERO), 0);
}
