//! Reuse of permits.

use std::time::Duration;

use wardgate_domain::{BundleReference, Digest, Status};

use crate::world::{MODERN, Reply, World};
use wardgate_testkit::{PolicyAnswer, RunBehavior, until_true};

/// Calls `tool`, and returns how often the policy service was asked.
async fn count_policy_requests(world: &World, tool: &str) -> usize {
    let before = world.policy.asked.count();
    let reply = world.call(tool).await;
    assert!(reply.is_released(), "{reply:?}");
    world.policy.asked.count() - before
}

/// Calls until a permit is reused. From then on the gateway knows the policy version in force.
async fn settle(world: &World) {
    until_true("a permit is used again", async || {
        count_policy_requests(world, "slow").await == 0
    })
    .await;
}

#[tokio::test]
async fn a_reusable_permit_is_used_again_while_the_policy_stays_the_same() {
    let world = World::start().await;
    settle(&world).await;
    assert_eq!(count_policy_requests(&world, "reads").await, 1);
    for _ in 0..5 {
        assert_eq!(count_policy_requests(&world, "reads").await, 0);
    }
    // The same tool under its alias, and with other arguments.
    assert_eq!(count_policy_requests(&world, "reads_alias").await, 0);
    let other = world.tools_call(MODERN, "reads", r#"{"n":2}"#);
    assert!(Reply::to(other).await.is_released());
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
    // Another tool needs another permit.
    assert_eq!(count_policy_requests(&world, "writes").await, 1);
}

#[tokio::test]
async fn the_record_names_the_decision_a_reused_permit_came_from() {
    let world = World::start().await;
    settle(&world).await;
    world.call("reads").await;
    world.call("reads").await;
    let outcomes = world.audit.outcomes.entries();
    let [.., first, second] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_ne!(first.call.call_id, second.call.call_id);
    assert_eq!(first.call.decision_id, second.call.decision_id);
    assert_eq!(first.call.permit_id, second.call.permit_id);
}

#[tokio::test]
async fn no_permit_outlives_the_policy_it_was_given_under() {
    let world = World::start().await;
    settle(&world).await;
    count_policy_requests(&world, "reads").await;
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
    world.policy.change(b"other policies");
    until_true("the policy is asked anew", async || {
        count_policy_requests(&world, "reads").await == 1
    })
    .await;
    // Permits of the new policy version are cached as well.
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
}

#[tokio::test]
async fn no_permit_names_a_former_bundle_of_the_same_policies() {
    let world = World::start().await;
    settle(&world).await;
    count_policy_requests(&world, "reads").await;
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
    let bundle = BundleReference {
        version: 2,
        digest: Digest::compute(b"the second bundle"),
    };
    world.policy.change_bundle(bundle);
    until_true("the policy is asked anew", async || {
        count_policy_requests(&world, "reads").await == 1
    })
    .await;
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
    let outcomes = world.audit.outcomes.entries();
    assert_eq!(outcomes.last().unwrap().call.bundle, Some(bundle));
}

#[tokio::test]
async fn a_permit_is_reused_if_the_policy_service_does_not_announce_its_bundle() {
    let world = World::start().await;
    settle(&world).await;
    world.policy.change_bundle_silently(BundleReference {
        version: 2,
        digest: Digest::compute(b"an unannounced bundle"),
    });
    assert_eq!(count_policy_requests(&world, "reads").await, 1);
    let outcomes = world.audit.outcomes.entries();
    assert!(outcomes.last().unwrap().call.bundle.is_some());
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
}

#[tokio::test]
async fn while_the_policy_version_is_unknown_no_permit_is_used_again() {
    let world = World::start().await;
    settle(&world).await;
    world.policy.stop_announcing();
    until_true("the gateway notices", async || {
        count_policy_requests(&world, "reads").await == 1
            && count_policy_requests(&world, "reads").await == 1
    })
    .await;
    for _ in 0..5 {
        assert_eq!(count_policy_requests(&world, "reads").await, 1);
    }
    world.policy.change(b"the policies after the outage");
    settle(&world).await;
}

#[tokio::test]
async fn a_permit_is_not_used_in_its_last_second() {
    let world = World::start().await;
    settle(&world).await;
    count_policy_requests(&world, "reads").await;
    world.clock.advance(Duration::from_millis(58_999));
    assert_eq!(count_policy_requests(&world, "reads").await, 0);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(count_policy_requests(&world, "reads").await, 1);
}

#[tokio::test]
async fn a_permit_bound_to_its_arguments_is_for_one_call() {
    let world = World::start().await;
    settle(&world).await;
    world.policy.says(PolicyAnswer::AllowThese);
    for _ in 0..3 {
        assert_eq!(count_policy_requests(&world, "reads").await, 1);
    }
}

#[tokio::test]
async fn a_permit_is_for_one_caller_with_the_same_rights() {
    let world = World::start().await;
    settle(&world).await;
    count_policy_requests(&world, "reads").await;
    let callers = [
        ("dr.lee", ["Doctor"].as_slice(), 0),
        ("dr.lee", &["Doctor", "Auditor"], 1),
        ("dr.lee", &[], 1),
        ("dr.kim", &["Doctor"], 1),
    ];
    for (subject, roles, expected) in callers {
        let before = world.policy.asked.count();
        // A new token of the same person with the same rights is the same caller.
        let end = world.issuer.token_until(subject, roles, 1_800_001_000);
        let call = world.tools_call_of(&end, MODERN, "reads", "{}");
        assert!(Reply::to(call).await.is_released());
        let asked = world.policy.asked.count() - before;
        assert_eq!(asked, expected, "{subject} {roles:?}");
    }
}

#[tokio::test]
async fn a_kept_permit_that_is_refused_costs_one_new_decision_and_one_more_run() {
    let world = World::start().await;
    settle(&world).await;
    count_policy_requests(&world, "writes").await;
    let (decisions, runs) = (world.policy.asked.count(), world.tool_runner.asked.count());
    world.tool_runner.next([RunBehavior::RefusePermit]);
    let reply = world.call("writes").await;
    assert!(reply.is_released());
    assert_eq!(world.policy.asked.count() - decisions, 1);
    assert_eq!(world.tool_runner.asked.count() - runs, 2);

    let ran = world.tool_runner.asked.entries();
    let [.., refused, accepted] = &ran[..] else {
        panic!("{ran:?}")
    };
    assert_eq!(refused.call_id, accepted.call_id);
    assert_ne!(refused.permit, accepted.permit);
    // There is one intent for the call, and the outcome names the permit under which it ran.
    assert_eq!(world.audit.intents.count(), 2);
    let outcome = world.audit.outcomes.entries().pop().unwrap();
    let intent = world.audit.intents.entries().pop().unwrap();
    assert_eq!(intent.call_id, outcome.call.call_id);
    assert_ne!(intent.permit_id, outcome.call.permit_id);
    // The new permit replaces the refused one in the cache.
    assert_eq!(count_policy_requests(&world, "writes").await, 0);
}

#[tokio::test]
async fn a_permit_refused_twice_ends_the_call_in_an_error() {
    let world = World::start().await;
    settle(&world).await;
    let (decisions, runs) = (world.policy.asked.count(), world.tool_runner.asked.count());
    world
        .tool_runner
        .next([RunBehavior::RefusePermit, RunBehavior::RefusePermit]);
    let reply = world.call("reads").await;
    assert_eq!(reply.code(), -32603, "{reply:?}");
    assert_eq!(world.policy.asked.count() - decisions, 2);
    assert_eq!(world.tool_runner.asked.count() - runs, 2);
    let outcome = world.audit.outcomes.entries().pop().unwrap();
    assert_eq!(outcome.status, Status::Error);
    assert_eq!(outcome.reason, "permit_refused");
}
