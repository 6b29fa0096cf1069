//! Calls that somebody has to approve: other people by methods of the gateway, or the caller by an elicitation.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use wardgate_domain::{Approvers, BundleReference, Digest, Status};

use crate::input_required::{self, ASK, goes_on, state};
use crate::legacy_input::{able, respond, response};
use crate::sessions::{begin_with, within};
use crate::world::{LEGACY, MODERN, Reply, World};
use wardgate_testkit::{AppendBehavior, EventStreamClient, PolicyAnswer};

fn by_managers() -> Approvers {
    Approvers {
        roles: BTreeSet::from(["Manager".to_owned()]),
        caller: false,
    }
}

fn by_caller() -> Approvers {
    Approvers {
        roles: BTreeSet::new(),
        caller: true,
    }
}

/// Starts a gateway whose every call needs the approval of one of `approvers`.
async fn world(approvers: Approvers) -> World {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::NeedsApproval(approvers));
    world
}

fn manager(world: &World) -> String {
    world.issuer.token("mia", &["Manager"])
}

async fn call(world: &World, arguments: &str) -> Reply {
    Reply::to(world.tools_call(MODERN, "writes", arguments)).await
}

/// Returns the id of the approval request that a call waits for.
fn waits(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.at("/error/data/reason"), "approval_required");
    let id = reply.at("/error/data/approval/id");
    id.as_str()
        .unwrap_or_else(|| panic!("{reply:?}"))
        .to_owned()
}

async fn method(world: &World, token: &str, method: &str, id: &str) -> Reply {
    let params = if id.is_empty() {
        String::new()
    } else {
        format!(r#""id":"{id}""#)
    };
    Reply::to(world.message_of(token, MODERN, method, &params)).await
}

async fn approve(world: &World, token: &str, id: &str) -> Reply {
    method(world, token, "approvals/approve", id).await
}

/// Returns method, status, reason and approval of each recorded outcome. Tool calls have no method.
fn recorded_outcomes(world: &World) -> Vec<(String, Status, String, Option<String>)> {
    let outcomes = world.audit.outcomes.entries();
    let outcomes = outcomes.into_iter().map(|it| {
        let approval = it.call.approval_id.map(|id| id.to_string());
        (it.call.method, it.status, it.reason, approval)
    });
    outcomes.collect()
}

#[tokio::test]
async fn a_call_waits_for_somebody_elses_approval_and_then_runs_once() {
    let world = world(by_managers()).await;
    let bundle = BundleReference {
        version: 2,
        digest: Digest::compute(b"the second bundle"),
    };
    world.policy.change_bundle(bundle);
    let first = call(&world, r#"{"n":1.10}"#).await;
    let id = waits(&first);
    let approval = first.at("/error/data/approval");
    assert_eq!(
        approval["approvers"],
        json!({ "roles": ["Manager"], "caller": false })
    );
    assert_eq!(approval["expiresAt"], "2027-01-15T08:15:00.000000Z");
    let words = first.at("/error/message").as_str().unwrap().to_owned();
    assert!(words.contains(&format!("wardgate approvals approve {id}")));
    // A repetition of the call waits for the same request.
    assert_eq!(waits(&call(&world, r#"{"n":1.10}"#).await), id);
    assert_eq!(world.tool_runner.asked.count(), 0, "nothing ran");

    let manager = manager(&world);
    let listed = method(&world, &manager, "approvals/list", "").await;
    let listed = listed.at("/result/approvals");
    assert_eq!(listed[0]["id"], id);
    assert_eq!(listed[0]["tool"], "writes");
    assert_eq!(listed[0]["caller"]["subject"], "dr.lee");
    assert!(listed[1].is_null() && listed[0]["arguments"].is_null());
    let shown = method(&world, &manager, "approvals/get", &id).await;
    assert_eq!(shown.at("/result/approval/arguments"), r#"{"n":1.10}"#);
    let approved = approve(&world, &manager, &id).await;
    assert_eq!(approved.at("/result/state"), "approved", "{approved:?}");

    // A call with other arguments is a different call.
    assert_ne!(waits(&call(&world, r#"{"n":1.1}"#).await), id);
    let run = call(&world, r#"{"n":1.10}"#).await;
    assert!(run.is_released());
    assert_eq!(world.tool_runner.asked.count(), 1);
    let next = waits(&call(&world, r#"{"n":1.10}"#).await);
    assert_ne!(next, id, "an approval is used once");
    assert_eq!(world.tool_runner.asked.count(), 1);

    // The calls and the decision are recorded.
    let own = Some(id.clone());
    let required = (
        String::new(),
        Status::Denied,
        "approval_required".to_owned(),
        own.clone(),
    );
    let recorded = recorded_outcomes(&world);
    assert_eq!(recorded[0], required);
    assert_eq!(recorded[1], required);
    let of = |method: &str| (method.to_owned(), Status::Ok, String::new(), own.clone());
    assert_eq!(recorded[2], of("approvals/get"), "who saw the arguments");
    assert_eq!(recorded[3], of("approvals/approve"));
    assert_eq!(recorded[5], of(""));
    let by = &world.audit.outcomes.entries()[3].call;
    assert_eq!(
        (&*by.subject, by.roles.as_slice()),
        ("mia", &["Manager".to_owned()][..])
    );
    assert!(by.decision_id.is_some() && by.tool.is_some());
    assert_eq!(by.bundle, Some(bundle), "the policies that decided");
    let intents = world.audit.intents.entries();
    let intended: Vec<_> = intents.iter().map(|it| &*it.method).collect();
    assert_eq!(intended, ["approvals/approve", ""], "only what runs");
    for intent in &intents {
        assert_eq!(intent.approval_id.unwrap().to_string(), id);
    }
}

#[tokio::test]
async fn repeated_at_the_same_time_an_approved_call_runs_once() {
    let world = world(by_managers()).await;
    let id = waits(&call(&world, "{}").await);
    approve(&world, &manager(&world), &id).await;
    let calls = futures::future::join_all((0..6).map(|_| call(&world, "{}"))).await;
    let ran = calls.iter().filter(|reply| reply.code() == 0);
    assert_eq!(ran.count(), 1, "{calls:?}");
    assert_eq!(world.tool_runner.asked.count(), 1);
    for refused in calls.iter().filter(|reply| reply.code() != 0) {
        assert_eq!(refused.at("/error/data/reason"), "approval_required");
    }
}

#[tokio::test]
async fn of_two_decisions_at_once_one_counts_and_the_record_says_which() {
    let world = world(by_managers()).await;
    let id = waits(&call(&world, "{}").await);
    let manager = manager(&world);
    let (approved, refused) = tokio::join!(
        approve(&world, &manager, &id),
        method(&world, &manager, "approvals/refuse", &id)
    );
    let counted = [&approved, &refused].map(|reply| reply.code() == 0);
    assert!(counted[0] != counted[1], "{approved:?} {refused:?}");
    let recorded = recorded_outcomes(&world);
    let decided = recorded.iter().filter(|it| it.0.starts_with("approvals/"));
    let of_winner = decided.filter(|it| it.1 == Status::Ok).map(|it| &*it.0);
    let winner = if counted[0] {
        "approvals/approve"
    } else {
        "approvals/refuse"
    };
    assert_eq!(of_winner.collect::<Vec<_>>(), [winner], "{recorded:?}");
}

#[tokio::test]
async fn nothing_but_the_arguments_that_were_approved_reaches_the_tool() {
    let world = world(by_managers()).await;
    let more = r#","inputResponses":{"beneficiary":{}}"#;
    let asked =
        async || Reply::to(input_required::call_request(&world, "writes", "{}", more)).await;
    let id = waits(&asked().await);
    approve(&world, &manager(&world), &id).await;
    assert!(asked().await.is_released());
    let run = world.tool_runner.asked.entries().remove(0);
    let interaction = run.interaction.unwrap();
    assert!(interaction.unasked_responses_json.is_empty());
    assert!(interaction.meta_json.is_empty());
}

#[tokio::test]
async fn a_refusal_stands_and_is_on_record() {
    let world = world(by_managers()).await;
    let id = waits(&call(&world, "{}").await);
    let refused = method(&world, &manager(&world), "approvals/refuse", &id).await;
    assert_eq!(refused.at("/result/state"), "refused", "{refused:?}");
    let reply = call(&world, "{}").await;
    assert_eq!(reply.at("/error/data/reason"), "approval_refused");
    assert_eq!(world.tool_runner.asked.count(), 0);
    let again = approve(&world, &manager(&world), &id).await;
    assert_eq!(again.at("/error/data/reason"), "unknown_approval");
    let recorded = recorded_outcomes(&world);
    let of = |at: usize| {
        (
            &*recorded[at].0,
            &*recorded[at].2,
            recorded[at].3.as_deref(),
        )
    };
    assert_eq!(of(1), ("approvals/refuse", "", Some(&*id)));
    assert_eq!(of(2), ("", "approval_refused", Some(&*id)));
    // The refusal expires with the request.
    world.clock.advance(Duration::from_mins(15));
    assert_ne!(waits(&call(&world, "{}").await), id);
}

#[tokio::test]
async fn nobody_approves_their_own_call_nor_without_the_role() {
    let world = world(by_managers()).await;
    let both = world.issuer.token("tom", &["Teller", "Manager"]);
    let reply = Reply::to(world.tools_call_of(&both, MODERN, "writes", "{}")).await;
    let id = waits(&reply);
    let own = approve(&world, &both, &id).await;
    assert_eq!(own.at("/error/data/reason"), "approver_refused", "{own:?}");
    let words = own.at("/error/message").as_str().unwrap().to_owned();
    assert!(words.contains("another user must approve"), "{words}");
    let listed = method(&world, &both, "approvals/list", "").await;
    assert_eq!(listed.at("/result/approvals"), json!([]));
    // For somebody who may not decide it, the request does not exist.
    let stranger = world.issuer.token("uwe", &["Teller"]);
    for name in ["approvals/get", "approvals/approve", "approvals/refuse"] {
        let reply = method(&world, &stranger, name, &id).await;
        let made_up = "019a7318-2b40-7000-8000-000000000009";
        let unknown = method(&world, &stranger, name, made_up).await;
        assert_eq!(reply.at("/error/data/reason"), "unknown_approval");
        assert_eq!(reply.text, unknown.text);
    }
    assert_eq!(world.tool_runner.asked.count(), 0);
    let denied = recorded_outcomes(&world)
        .into_iter()
        .filter(|it| it.2 == "approver_refused");
    assert_eq!(denied.count(), 1, "who tried is on record");
    approve(&world, &manager(&world), &id).await;
    let run = Reply::to(world.tools_call_of(&both, MODERN, "writes", "{}")).await;
    assert!(run.is_released());
}

#[tokio::test]
async fn an_approval_ends_with_its_time_and_with_the_policies_it_was_given_under() {
    let world = world(by_managers()).await;
    let id = waits(&call(&world, "{}").await);
    approve(&world, &manager(&world), &id).await;
    world.clock.advance(Duration::from_mins(15));
    let next = waits(&call(&world, "{}").await);
    assert_ne!(next, id);
    approve(&world, &manager(&world), &next).await;
    world.policy.change(b"other policies");
    assert_ne!(waits(&call(&world, "{}").await), next);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn a_decision_that_cannot_be_recorded_does_not_count() {
    let world = world(by_managers()).await;
    let id = waits(&call(&world, "{}").await);
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = approve(&world, &manager(&world), &id).await;
    assert_eq!(reply.at("/error/data/reason"), "not_durable", "{reply:?}");
    assert_eq!(waits(&call(&world, "{}").await), id);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

async fn call_with_form(world: &World, more: &str) -> Reply {
    let arguments = "{\"to\":\"a\u{202e}b\"}";
    Reply::to(input_required::call_request(
        world, "writes", arguments, more,
    ))
    .await
}

#[tokio::test]
async fn a_modern_client_asks_its_user_and_comes_back_with_the_approval() {
    let world = world(by_caller()).await;
    let first = call_with_form(&world, "").await;
    let form = first.at("/result/inputRequests/approval");
    assert_eq!(form["method"], "elicitation/create");
    let message = form["params"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Tool: writes"), "{message}");
    assert!(message.contains(r#""to": "a‹U+202E›b""#), "{message}");
    let state = state(&first);
    assert_eq!(world.tool_runner.asked.count(), 0);

    let accepted = r#"{"approval":{"action":"accept","content":{}}}"#;
    let second = call_with_form(&world, &goes_on(&state, accepted)).await;
    assert!(second.is_released());
    let again = call_with_form(&world, &goes_on(&state, accepted)).await;
    assert!(again.is_unknown("requestState"), "{again:?}");
    assert_eq!(world.tool_runner.asked.count(), 1);

    let recorded = recorded_outcomes(&world);
    let of = |at: usize| (&*recorded[at].0, &*recorded[at].2);
    assert_eq!(of(0), ("", "input_required"));
    assert_eq!(of(1), ("approvals/approve", ""));
    assert_eq!(of(2), ("", ""));
    assert!(recorded[1].3.is_some() && recorded[1].3 == recorded[2].3);
}

#[tokio::test]
async fn what_was_approved_under_other_policies_is_asked_anew() {
    let world = world(by_caller()).await;
    let earlier = state(&call_with_form(&world, "").await);
    world.policy.change(b"other policies");
    let accepted = r#"{"approval":{"action":"accept","content":{}}}"#;
    let anew = call_with_form(&world, &goes_on(&earlier, accepted)).await;
    let anew = state(&anew);
    assert_eq!(world.tool_runner.asked.count(), 0);
    assert!(
        call_with_form(&world, &goes_on(&anew, accepted))
            .await
            .is_released()
    );

    // The same applies to requests that other people want to approve.
    world
        .policy
        .says(PolicyAnswer::NeedsApproval(by_managers()));
    let id = waits(&call(&world, "{}").await);
    world.policy.change(b"yet other policies");
    let late = approve(&world, &manager(&world), &id).await;
    assert_eq!(
        late.at("/error/data/reason"),
        "approver_refused",
        "{late:?}"
    );
}

#[tokio::test]
async fn a_declined_call_does_not_run_whatever_the_policies_say_by_then() {
    let world = world(by_caller()).await;
    let declined = r#"{"approval":{"action":"decline"}}"#;
    let under_others = state(&call_with_form(&world, "").await);
    world.policy.change(b"other policies");
    let refused = call_with_form(&world, &goes_on(&under_others, declined)).await;
    assert_eq!(refused.at("/error/data/reason"), "approval_refused");

    let needed_then = state(&call_with_form(&world, "").await);
    world.policy.says(PolicyAnswer::Allow);
    let refused = call_with_form(&world, &goes_on(&needed_then, declined)).await;
    assert_eq!(refused.at("/error/data/reason"), "approval_refused");
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn whoever_declines_their_own_call_has_refused_it() {
    let world = world(by_caller()).await;
    for answer in [
        r#"{"approval":{"action":"decline"}}"#,
        r#"{"approval":{"action":"cancel"}}"#,
        "{}",
    ] {
        let state = state(&call_with_form(&world, "").await);
        let refused = call_with_form(&world, &goes_on(&state, answer)).await;
        assert_eq!(refused.at("/error/data/reason"), "approval_refused");
    }
    assert_eq!(world.tool_runner.asked.count(), 0);
    let recorded = recorded_outcomes(&world);
    assert_eq!(
        (&*recorded[1].0, recorded[1].1),
        ("approvals/refuse", Status::Ok)
    );
    assert_eq!(
        (&*recorded[2].2, recorded[2].1),
        ("approval_refused", Status::Denied)
    );
    assert_eq!(recorded[1].3, recorded[2].3);
}

#[tokio::test]
async fn an_older_client_is_asked_on_the_stream_of_its_call() {
    let world = world(by_caller()).await;
    for (version, action, released) in [
        (LEGACY, "accept", true),
        ("2025-06-18", "accept", true),
        (LEGACY, "decline", false),
    ] {
        let session = begin_with(&world, version, &able()).await;
        let ran = world.tool_runner.asked.count();
        let request = world.tools_call(version, "writes", r#"{"n":1}"#);
        let mut ear = EventStreamClient::open(within(request, &session)).await;
        let form = ear.next_message().await.unwrap();
        assert_eq!(form["method"], "elicitation/create");
        let message = form["params"]["message"].as_str().unwrap();
        assert!(message.contains("Tool: writes"), "{message}");
        assert_eq!(world.tool_runner.asked.count(), ran);
        let answer = response(&form["id"], &json!({ "action": action, "content": {} }));
        assert_eq!(
            respond(&world, version, &session, &world.token, &answer).await,
            202
        );
        let answer = ear.next_message().await.unwrap();
        if released {
            assert_eq!(answer["result"]["isError"], false, "{answer}");
        } else {
            assert_eq!(answer["error"]["data"]["reason"], "approval_refused");
        }
        assert_eq!(world.tool_runner.asked.count(), ran + usize::from(released));
    }
}

#[tokio::test]
async fn a_client_without_elicitation_is_told_how_its_user_approves() {
    let world = world(by_caller()).await;
    let id = waits(&call(&world, "{}").await);
    let others = approve(&world, &manager(&world), &id).await;
    assert_eq!(others.at("/error/data/reason"), "unknown_approval");
    let listed = method(&world, &world.token, "approvals/list", "").await;
    assert_eq!(listed.at("/result/approvals/0/id"), id.as_str());
    approve(&world, &world.token, &id).await;
    assert!(call(&world, "{}").await.is_released());
    waits(&call(&world, "{}").await);

    // A client of an older version gets the same error.
    let session = begin_with(&world, LEGACY, &json!({})).await;
    let older = within(world.tools_call(LEGACY, "writes", r#"{"n":2}"#), &session);
    waits(&Reply::to(older).await);
}

#[tokio::test]
async fn a_tool_that_asks_for_more_goes_on_by_the_approval_it_began_with() {
    let world = world(by_caller()).await;
    let state = state(&call_with_form(&world, "").await);
    input_required::asks(&world, ASK);
    let accepted = r#"{"approval":{"action":"accept","content":{}}}"#;
    let asked = call_with_form(&world, &goes_on(&state, accepted)).await;
    let state = input_required::state(&asked);
    assert!(
        asked.at("/result/inputRequests/who").is_object(),
        "{asked:?}"
    );
    let done = call_with_form(
        &world,
        &goes_on(&state, r#"{"who":{"action":"accept","content":{}}}"#),
    )
    .await;
    assert!(done.is_released());
    let approvals: BTreeSet<_> = recorded_outcomes(&world)
        .into_iter()
        .filter_map(|it| it.3)
        .collect();
    assert_eq!(approvals.len(), 1, "one approval for all of it");
}

#[tokio::test]
async fn one_person_has_so_many_calls_wait() {
    let world = world(by_managers()).await;
    for number in 0..32 {
        waits(&call(&world, &json!({ "n": number }).to_string()).await);
    }
    let more = call(&world, r#"{"n":33}"#).await;
    assert_eq!(
        (more.status, more.at("/error/data/reason")),
        (429, Value::from("over_share"))
    );
    let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(64 << 10));
    let long = call(&world, &long).await;
    assert_eq!(long.code(), -32602, "{}", long.status);
}
