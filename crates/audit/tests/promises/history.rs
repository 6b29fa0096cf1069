//! Tests of the counts of earlier calls.

use std::time::Duration;

use futures::future::join_all;
use wardgate_domain::{CallFacts, Digest, Event, Status, Timestamp};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{AuditClient, CallCountQuery, CallError, CallSelection};
use wardgate_testkit::TestClock;

use crate::support::{NOW, TestStore, intent, on_both_stores, outcome, start, subject};

on_both_stores! {
    calls_that_may_have_done_something_are_counted
    a_call_that_is_decided_counts_those_before_it
    of_calls_that_are_decided_at_once_each_counts_those_before_it
    calls_are_those_of_the_caller_of_the_tools_and_within_the_time
    calls_of_a_conversation_and_those_that_released_health_information_are_told_apart
    calls_are_counted_by_the_tags_that_their_tools_had
    calls_are_not_counted_by_tag_if_a_record_among_them_does_not_contain_tags
    calls_are_not_counted_by_tag_while_a_call_whose_intent_does_not_contain_tags_runs
    calls_are_counted_by_tag_within_a_conversation_and_if_they_released_health_information
    the_outcome_of_an_abandoned_call_has_the_tags_of_its_intent
    requests_about_a_call_are_no_calls
    a_call_without_an_intent_is_not_counted_for
}

const PATIENCE: Duration = Duration::from_mins(1);

/// Returns a call of `tool`.
fn tool_call(tool: &str) -> CallFacts {
    CallFacts {
        tool: Some(tool.parse().unwrap()),
        ..subject()
    }
}

fn since(before: Duration, tools: &[&str]) -> CallSelection {
    CallSelection {
        tools: tools.iter().map(|tool| tool.parse().unwrap()).collect(),
        tags: Vec::new(),
        since: start().minus(before),
        conversation: None,
        phi: false,
    }
}

fn build_query(selections: Vec<CallSelection>, decided: Option<&CallFacts>) -> CallCountQuery {
    CallCountQuery {
        subject: subject().subject,
        call_id: decided.map(|call| call.call_id),
        selections,
        until: None,
    }
}

async fn count(policy: &AuditClient, tool: &str, decided: Option<&CallFacts>) -> u64 {
    let query = build_query(vec![since(Duration::from_hours(1), &[tool])], decided);
    policy.count_calls(query, PATIENCE).await.unwrap()[0]
}

async fn calls_that_may_have_done_something_are_counted(store: &TestStore) {
    let service = store.service().await;
    let mut counted = 0;
    for (status, counts) in [
        (Status::Ok, true),
        (Status::Error, true),
        (Status::Timeout, true),
        (Status::Cancelled, true),
        (Status::Unknown, true),
        (Status::Denied, false),
        (Status::UnknownTool, false),
        (Status::InvalidArguments, false),
    ] {
        let call = tool_call("export");
        if status == Status::Ok {
            service.audit.append(&intent(&call), false).await.unwrap();
            assert_eq!(
                count(&service.policy, "export", None).await,
                1,
                "while it runs"
            );
        }
        service
            .audit
            .append(&outcome(&call, status), false)
            .await
            .unwrap();
        counted += u64::from(counts);
        let found = count(&service.policy, "export", None).await;
        assert_eq!(found, counted, "{status:?}");
    }
}

async fn a_call_that_is_decided_counts_those_before_it(store: &TestStore) {
    let service = store.service().await;
    let calls: Vec<_> = (0..3).map(|_| tool_call("export")).collect();
    for call in &calls {
        service.audit.append(&intent(call), false).await.unwrap();
    }
    for (before, call) in (0..).zip(&calls) {
        assert_eq!(count(&service.policy, "export", Some(call)).await, before);
    }
    // A call that has ended also counts for calls whose intents precede its own, because it may have run before them.
    service
        .audit
        .append(&outcome(&calls[2], Status::Ok), false)
        .await
        .unwrap();
    assert_eq!(count(&service.policy, "export", Some(&calls[0])).await, 1);
    service
        .audit
        .append(&outcome(&calls[0], Status::Denied), false)
        .await
        .unwrap();
    assert_eq!(count(&service.policy, "export", Some(&calls[1])).await, 1);
}

async fn of_calls_that_are_decided_at_once_each_counts_those_before_it(store: &TestStore) {
    let services: [_; 2] = tokio::join!(store.service(), store.service()).into();
    let decide = |number: usize| {
        let service = &services[number % 2];
        async move {
            let call = tool_call("export");
            service.audit.append(&intent(&call), false).await.unwrap();
            let before = count(&service.policy, "export", Some(&call)).await;
            let status = if before < 3 {
                Status::Ok
            } else {
                Status::Denied
            };
            service
                .audit
                .append(&outcome(&call, status), false)
                .await
                .unwrap();
            status
        }
    };
    let decided = join_all((0..16).map(decide)).await;
    let allowed = decided.into_iter().filter(|it| *it == Status::Ok).count();
    assert!((1..=3).contains(&allowed), "{allowed} of a limit of 3");
}

async fn calls_are_those_of_the_caller_of_the_tools_and_within_the_time(store: &TestStore) {
    let service = store.service().await;
    let other = CallFacts {
        subject: "dr.other".to_owned(),
        ..tool_call("export")
    };
    for call in [&tool_call("export"), &tool_call("mail"), &other] {
        service
            .audit
            .append(&outcome(call, Status::Ok), false)
            .await
            .unwrap();
    }
    let hour = Duration::from_hours(1);
    let later = CallSelection {
        since: Timestamp::from_micros(start().as_micros() + 1),
        ..since(hour, &["export"])
    };
    let selections = vec![
        since(hour, &["export"]),
        since(hour, &["export", "mail", "none"]),
        since(Duration::ZERO, &["export"]),
        later,
    ];
    let query = build_query(selections, None);
    let counts = service.policy.count_calls(query.clone(), PATIENCE).await;
    assert_eq!(counts.unwrap(), [1, 2, 1, 0]);
    let until = CallCountQuery {
        until: Some(start()),
        ..query
    };
    let counts = service.policy.count_calls(until, PATIENCE).await;
    assert_eq!(counts.unwrap(), [0, 0, 0, 0]);
}

async fn calls_of_a_conversation_and_those_that_released_health_information_are_told_apart(
    store: &TestStore,
) {
    let service = store.service().await;
    let conversation = |name: &str| Some(Digest::compute(name.as_bytes()));
    let of = |name: &str, tool: &str| CallFacts {
        conversation: conversation(name),
        ..tool_call(tool)
    };
    let without_phi = |call: &CallFacts| {
        let mut record = outcome(call, Status::Ok);
        if let Event::Outcome(outcome) = &mut record.event {
            outcome.phi = false;
        }
        record
    };
    for record in [
        outcome(&of("a", "records"), Status::Ok),
        without_phi(&of("a", "records")),
        intent(&of("a", "records")),
        outcome(&of("b", "records"), Status::Ok),
        outcome(&tool_call("records"), Status::Ok),
    ] {
        service.audit.append(&record, false).await.unwrap();
    }
    let count = async |name: Option<&str>, tools: &[&str], phi: bool| {
        let selection = CallSelection {
            conversation: name.and_then(conversation),
            phi,
            ..since(Duration::from_hours(1), tools)
        };
        let counts = service
            .policy
            .count_calls(build_query(vec![selection], None), PATIENCE);
        counts.await.unwrap()[0]
    };
    assert_eq!(count(Some("a"), &["records"], false).await, 3);
    assert_eq!(count(Some("a"), &[], false).await, 3);
    assert_eq!(count(Some("a"), &[], true).await, 1);
    assert_eq!(count(Some("a"), &["mail"], true).await, 0);
    assert_eq!(count(Some("c"), &[], true).await, 0);
    assert_eq!(count(None, &[], true).await, 3);
    assert_eq!(count(None, &[], false).await, 5);
}

/// Returns a call of `tool`, which has these tags.
fn tagged_call(tool: &str, tags: &[&str]) -> CallFacts {
    CallFacts {
        tags: Some(texts(tags).into()),
        ..tool_call(tool)
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// Returns the selection of calls of tools with one of these tags.
fn by_tag(tags: &[&str]) -> CallSelection {
    CallSelection {
        tags: texts(tags),
        ..since(Duration::from_hours(1), &[])
    }
}

async fn count_by_tag(policy: &AuditClient, tags: &[&str]) -> Result<u64, CallError> {
    let counts = policy.count_calls(build_query(vec![by_tag(tags)], None), PATIENCE);
    counts.await.map(|counts| counts[0])
}

async fn calls_are_counted_by_the_tags_that_their_tools_had(store: &TestStore) {
    let service = store.service().await;
    for record in [
        outcome(&tagged_call("export", &["export", "bulk"]), Status::Ok),
        // The tool was renamed, and another tool was tagged later.
        outcome(&tagged_call("export_v2", &["export"]), Status::Error),
        outcome(&tagged_call("dump", &[]), Status::Ok),
        intent(&tagged_call("dump", &["export"])),
        outcome(&tagged_call("mail", &["mail", "exports"]), Status::Ok),
        outcome(&tagged_call("export", &["export"]), Status::Denied),
    ] {
        service.audit.append(&record, false).await.unwrap();
    }
    let count = async |tags: &[&str]| count_by_tag(&service.policy, tags).await.unwrap();
    assert_eq!(count(&["export"]).await, 3);
    assert_eq!(count(&["bulk"]).await, 1);
    assert_eq!(
        count(&["bulk", "export", "mail"]).await,
        4,
        "each call counts once"
    );
    assert_eq!(count(&["Export"]).await, 0);
    // A query must not exclude calls by accident.
    let both = CallSelection {
        tags: texts(&["export"]),
        ..since(Duration::from_hours(1), &["export"])
    };
    let refused = service
        .policy
        .count_calls(build_query(vec![both], None), PATIENCE);
    assert_eq!(reason(refused.await), ErrorReason::InvalidMessage);
    let seventeen = count_by_tag(&service.policy, &["t"; 17]).await;
    assert_eq!(reason(seventeen), ErrorReason::InvalidMessage);
}

async fn calls_are_not_counted_by_tag_if_a_record_among_them_does_not_contain_tags(
    store: &TestStore,
) {
    let service = store.service().await;
    let record = outcome(&tagged_call("export", &["export"]), Status::Ok);
    service.audit.append(&record, false).await.unwrap();
    // A denied call does not count, whatever its tags are.
    let denied = outcome(&tool_call("export"), Status::Denied);
    service.audit.append(&denied, false).await.unwrap();
    // A call that failed before its tool was known has no tags to record, and counts for no tag.
    let without_tool = CallFacts {
        tool: None,
        ..subject()
    };
    let without_tool = outcome(&without_tool, Status::Error);
    service.audit.append(&without_tool, false).await.unwrap();
    let counted = count_by_tag(&service.policy, &["export"]).await;
    assert_eq!(counted.unwrap(), 1);
    let all = build_query(vec![since(Duration::from_hours(1), &[])], None);
    let all = service.policy.count_calls(all, PATIENCE).await;
    assert_eq!(all.unwrap(), [2]);
    let untagged = outcome(&tool_call("mail"), Status::Ok);
    service.audit.append(&untagged, false).await.unwrap();
    assert_refused_as_untagged(&service.policy).await;
    assert_eq!(count(&service.policy, "mail", None).await, 1);
}

/// Asserts that calls cannot be counted by tag, because a record contains no tags.
async fn assert_refused_as_untagged(policy: &AuditClient) {
    let refused = count_by_tag(policy, &["export"]).await.unwrap_err();
    assert!(refused.to_string().contains("earlier release"), "{refused}");
}

async fn calls_are_not_counted_by_tag_while_a_call_whose_intent_does_not_contain_tags_runs(
    store: &TestStore,
) {
    let service = store.service().await;
    let running = tool_call("mail");
    let record = intent(&running);
    service.audit.append(&record, false).await.unwrap();
    assert_refused_as_untagged(&service.policy).await;
    // The call that is decided is not counted, so its own intent needs no tags.
    let selection = by_tag(&["export"]);
    let query = build_query(vec![selection], Some(&running));
    let counted = service.policy.count_calls(query, PATIENCE).await;
    assert_eq!(counted.unwrap(), [0]);
    let denied = outcome(&running, Status::Denied);
    service.audit.append(&denied, false).await.unwrap();
    let counted = count_by_tag(&service.policy, &["export"]).await;
    assert_eq!(counted.unwrap(), 0);
}

async fn calls_are_counted_by_tag_within_a_conversation_and_if_they_released_health_information(
    store: &TestStore,
) {
    let service = store.service().await;
    let conversation = Some(Digest::compute(b"a"));
    let in_conversation = |tags: &[&str]| CallFacts {
        conversation,
        ..tagged_call("export", tags)
    };
    let mut without_phi = outcome(&tagged_call("export", &["export"]), Status::Ok);
    if let Event::Outcome(outcome) = &mut without_phi.event {
        outcome.phi = false;
    }
    for record in [
        outcome(&in_conversation(&["export"]), Status::Ok),
        outcome(&in_conversation(&["mail"]), Status::Ok),
        outcome(&tagged_call("export", &["export"]), Status::Ok),
        without_phi,
    ] {
        service.audit.append(&record, false).await.unwrap();
    }
    let count = async |conversation: Option<Digest>, phi: bool| {
        let selection = CallSelection {
            conversation,
            phi,
            ..by_tag(&["export"])
        };
        let query = build_query(vec![selection], None);
        let counts = service.policy.count_calls(query, PATIENCE).await;
        counts.map(|counts| counts[0])
    };
    assert_eq!(count(None, false).await.unwrap(), 3);
    assert_eq!(count(None, true).await.unwrap(), 2);
    assert_eq!(count(conversation, false).await.unwrap(), 1);
    assert_eq!(count(conversation, true).await.unwrap(), 1);
    // A record without tags prevents only the counts that could contain its call.
    let mut untagged = outcome(&tool_call("export"), Status::Ok);
    if let Event::Outcome(outcome) = &mut untagged.event {
        outcome.phi = false;
    }
    service.audit.append(&untagged, false).await.unwrap();
    assert!(count(None, false).await.is_err());
    assert_eq!(count(None, true).await.unwrap(), 2);
    assert_eq!(count(conversation, false).await.unwrap(), 1);
}

async fn the_outcome_of_an_abandoned_call_has_the_tags_of_its_intent(store: &TestStore) {
    let clock = TestClock::at(NOW);
    {
        let service = store.service_at(clock.ambient(), 60).await;
        let record = intent(&tagged_call("export", &["export"]));
        service.audit.append(&record, false).await.unwrap();
    }
    clock.advance(Duration::from_secs(61));
    let service = store.service_at(clock.ambient(), 60).await;
    assert_eq!(store.records().await.len(), 2);
    let counted = count_by_tag(&service.policy, &["export"]).await;
    assert_eq!(counted.unwrap(), 1);
}

async fn requests_about_a_call_are_no_calls(store: &TestStore) {
    let service = store.service().await;
    let asked = CallFacts {
        method: "tasks/get".to_owned(),
        ..tool_call("export")
    };
    service
        .audit
        .append(&outcome(&asked, Status::Ok), false)
        .await
        .unwrap();
    assert_eq!(count(&service.policy, "export", None).await, 0);
}

async fn a_call_without_an_intent_is_not_counted_for(store: &TestStore) {
    let service = store.service().await;
    let of_other = CallFacts {
        subject: "dr.other".to_owned(),
        ..tool_call("export")
    };
    service
        .audit
        .append(&intent(&of_other), false)
        .await
        .unwrap();
    for call in [&tool_call("export"), &of_other] {
        let selections = vec![since(Duration::from_hours(1), &["export"])];
        let query = build_query(selections, Some(call));
        let refused = service.policy.count_calls(query, PATIENCE).await;
        assert_eq!(reason(refused), ErrorReason::InvalidMessage);
    }
}

fn reason<T: std::fmt::Debug>(answer: Result<T, CallError>) -> ErrorReason {
    answer.unwrap_err().reason()
}
