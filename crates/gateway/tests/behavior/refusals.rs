//! Requests that never became a call. They are counted, and recorded once a second.

use std::collections::BTreeMap;
use std::time::Duration;

use wardgate_domain::{Clock, Refusals};

use crate::world::{MODERN, OLDEST, Reply, World};
use wardgate_testkit::PATIENCE;

/// Returns the recorded counts by reason and subject.
fn counts(windows: &[Refusals]) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for count in windows.iter().flat_map(|window| &window.counts) {
        let kind = (count.reason.clone(), count.subject.clone());
        *counts.entry(kind).or_default() += count.count;
    }
    counts
}

fn total(windows: &[Refusals]) -> u64 {
    counts(windows).values().sum()
}

async fn refuse(world: &World, token: &str) {
    let request = world.message_of(token, MODERN, "tools/list", "");
    assert_eq!(Reply::to(request).await.status, 401);
}

#[tokio::test]
async fn a3_refused_requests_are_recorded_as_counts_not_one_by_one() {
    let world = World::start().await;
    let expired = world.issuer.token_until("dr.lee", &[], 1_700_000_000);
    for _ in 0..20 {
        refuse(&world, &expired).await;
    }
    refuse(&world, "garbage").await;
    // The caller of the following requests is known, so their counts have its subject.
    Reply::to(world.message(MODERN, "tools/list", "").body("{")).await;
    Reply::to(world.message(MODERN, "prompts/list", "")).await;
    Reply::to(world.http.get(world.url("/mcp")).bearer_auth(&world.token)).await;

    let windows = world.audit.refusals.until(|all| total(all) >= 24).await;
    assert!(windows.len() <= 3, "{windows:?}");
    let expected = [
        ("malformed_json", "dr.lee", 1),
        ("method_not_allowed", "dr.lee", 1),
        ("token_expired", "", 20),
        ("token_malformed", "", 1),
        ("unknown_method", "dr.lee", 1),
    ];
    let expected: BTreeMap<_, _> = expected
        .map(|(reason, subject, count)| ((reason.to_owned(), subject.to_owned()), count))
        .into();
    assert_eq!(counts(&windows), expected);
    let addresses = windows.iter().flat_map(|window| &window.counts);
    assert!(
        addresses
            .map(|count| &*count.client_ip)
            .all(|ip| ip == "127.0.0.1")
    );
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn a_refused_message_of_a_batch_is_counted_like_any_other() {
    let world = World::start().await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"prompts/list"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"1.0","id":3,"method":"ping"}]"#;
    let reply = Reply::to(world.message(OLDEST, "ping", "").body(batch)).await;
    assert_eq!(reply.json().as_array().unwrap().len(), 3);
    let windows = world.audit.refusals.until(|all| total(all) >= 2).await;
    let reasons: Vec<String> = counts(&windows).into_keys().map(|kind| kind.0).collect();
    assert_eq!(reasons, ["invalid_request", "unknown_method"]);
}

#[tokio::test]
async fn a_refused_call_of_a_tool_has_its_own_record_and_is_not_counted() {
    let world = World::start().await;
    world.call("nonesuch").await;
    refuse(&world, "garbage").await;
    let windows = world.audit.refusals.until(|all| total(all) >= 1).await;
    assert_eq!(total(&windows), 1);
    assert_eq!(windows[0].counts[0].reason, "token_malformed");
}

#[tokio::test]
async fn counts_that_cannot_be_recorded_are_kept_until_they_can() {
    let world = World::start().await;
    let start = world.clock.now().minus(Duration::from_secs(1));
    world.audit.fails_after(Duration::ZERO);
    refuse(&world, "garbage").await;
    world.audit.refusal_attempts.reaches(1).await;
    refuse(&world, "garbage").await;
    // The append failed, was repeated, and the same happened a second later.
    world.audit.refusal_attempts.reaches(4).await;
    assert_eq!(world.audit.refusals.count(), 0);
    world.clock.advance(Duration::from_secs(30));
    world.audit.recovers();
    let windows = world.audit.refusals.until(|all| total(all) >= 2).await;
    assert_eq!(total(&windows), 2);
    assert_eq!(
        windows[0].window_start, start,
        "the window is as long as the outage"
    );

    refuse(&world, "garbage").await;
    let windows = world.audit.refusals.until(|all| total(all) >= 3).await;
    let last = windows.last().unwrap().window_start;
    assert_eq!(last, start.plus(Duration::from_secs(30)));
}

#[tokio::test]
async fn a_flood_of_different_refusals_stays_bounded_while_the_record_is_away() {
    let world = World::start().await;
    world.audit.fails_after(Duration::from_millis(700));
    refuse(&world, "garbage").await;
    for round in 1..=2 {
        // While the attempt to record the counts fails, further requests are refused.
        world.audit.refusal_attempts.reaches(round).await;
        for caller in 0..200 {
            let token = world.issuer.token(&format!("caller-{round}-{caller}"), &[]);
            let request = world.http.get(world.url("/mcp")).bearer_auth(token);
            assert_eq!(Reply::to(request).await.status, 405);
        }
    }
    world.audit.refusal_attempts.reaches(3).await;
    world.audit.recovers();
    let windows = world.audit.refusals.until(|all| total(all) >= 401).await;
    assert_eq!(total(&windows), 401, "none is lost");
    // 256 kinds, and one for the remaining refusals of each of the two reasons.
    let kinds = counts(&windows).len();
    assert!(kinds <= 258, "{kinds}");
}

#[tokio::test]
async fn a3_what_is_only_counted_when_the_gateway_stops_is_recorded_first() {
    let world = World::start().await;
    // A window was just recorded, so that the next one is a second away.
    refuse(&world, "garbage").await;
    world.audit.refusals.reaches(1).await;
    refuse(&world, "garbage").await;
    let audit = std::sync::Arc::clone(&world.audit);
    tokio::time::timeout(PATIENCE, world.stop())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(total(&audit.refusals.entries()), 2);
}
