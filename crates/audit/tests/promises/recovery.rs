//! Tests of calls whose process ended before they did.

use std::time::Duration;

use wardgate_audit::CallingProcesses;
use wardgate_domain::{CallFacts, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::StoredRecord;
use wardgate_testkit::TestClock;

use crate::support::{NOW, TestService, TestStore, intent, json, on_both_stores, outcome, subject};

on_both_stores! {
    a6_every_abandoned_intent_has_an_outcome_before_readiness
    an_intent_that_becomes_too_old_is_closed_while_the_service_runs
}

/// Returns the call ids of the outcomes `unknown`.
fn calls_with_unknown_outcome(records: &[StoredRecord]) -> Vec<String> {
    let unknown = records
        .iter()
        .map(json)
        .filter(|record| record["status"] == "unknown");
    unknown
        .map(|record| record["call_id"].as_str().unwrap().to_owned())
        .collect()
}

async fn a6_every_abandoned_intent_has_an_outcome_before_readiness(store: &TestStore) {
    let clock = TestClock::at(NOW);
    let finished = subject();
    // There are more intents than fit on one page.
    let abandoned: Vec<CallFacts> = (0..300).map(|_| subject()).collect();
    {
        let service = store.service_at(clock.ambient(), 60).await;
        service
            .audit
            .append(&intent(&finished), false)
            .await
            .unwrap();
        service
            .audit
            .append(&outcome(&finished, Status::Ok), false)
            .await
            .unwrap();
        let appends = abandoned.iter().map(|call| {
            let (audit, record) = (service.audit.clone(), intent(call));
            async move { audit.append(&record, false).await.unwrap() }
        });
        futures::future::join_all(appends).await;
    }
    // The intents are too young: the calls may still be running.
    clock.advance(Duration::from_secs(60));
    let service = store.service_at(clock.ambient(), 60).await;
    assert!(service.readiness.borrow().is_ready());
    assert_eq!(store.records().await.len(), 302);
    drop(service);

    clock.advance(Duration::from_secs(1));
    let service = store.service_at(clock.ambient(), 60).await;
    let records = store.records().await;
    let mut expected: Vec<_> = abandoned
        .iter()
        .map(|call| call.call_id.to_string())
        .collect();
    let mut found = calls_with_unknown_outcome(&records);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    // The outcome has the same caller and tool as the intent.
    let (intent, unknown) = (json(&records[2]), json(records.last().unwrap()));
    for field in [
        "caller",
        "tool",
        "requested_tool",
        "client_ip",
        "arguments_hmac",
        "protocol",
    ] {
        assert_eq!(intent[field], unknown[field], "{field}");
    }
    assert_eq!(unknown.get("rows"), None, "nobody knows");

    // The outcome of a call that was only slow is refused, so the only outcome remains `unknown`.
    let late = service
        .audit
        .append(&outcome(&abandoned[0], Status::Ok), true)
        .await
        .unwrap_err();
    assert_eq!(late.reason(), ErrorReason::InvalidMessage);
    drop(service);
    drop(store.service_at(clock.ambient(), 0).await);
    assert_eq!(
        store.records().await.len(),
        records.len(),
        "nothing is closed twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_only_process_left_open_is_closed_before_readiness_whatever_its_age() {
    let store = TestStore::sqlite();
    let clock = TestClock::at(NOW);
    let start =
        async |callers| TestService::start_for(callers, &store.url, clock.ambient(), 600).await;
    let abandoned = subject();
    let earlier = start(CallingProcesses::ThisProcess).await;
    let appended = earlier.audit.append(&intent(&abandoned), false).await;
    appended.unwrap();

    // While another process uses the store, its call may still be running.
    let beside = start(CallingProcesses::ThisProcess).await;
    assert_eq!(calls_with_unknown_outcome(&store.records().await), [""; 0]);
    drop((beside, earlier));
    // Callers in other processes may have outlived their audit service.
    drop(start(CallingProcesses::OtherProcesses).await);
    assert_eq!(calls_with_unknown_outcome(&store.records().await), [""; 0]);

    let service = start(CallingProcesses::ThisProcess).await;
    assert!(service.readiness.borrow().is_ready());
    let closed = calls_with_unknown_outcome(&store.records().await);
    assert_eq!(closed, [abandoned.call_id.to_string()]);
}

async fn an_intent_that_becomes_too_old_is_closed_while_the_service_runs(store: &TestStore) {
    let clock = TestClock::at(NOW);
    let service = store.service_at(clock.ambient(), 1).await;
    let (abandoned, young) = (subject(), subject());
    service
        .audit
        .append(&intent(&abandoned), false)
        .await
        .unwrap();
    clock.advance(Duration::from_secs(2));
    let mut record = intent(&young);
    record.time = record.time.plus(Duration::from_secs(2));
    service.audit.append(&record, false).await.unwrap();

    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let closed = async {
        loop {
            looks.tick().await;
            let closed = calls_with_unknown_outcome(&store.records().await);
            if !closed.is_empty() {
                return closed;
            }
        }
    };
    let closed = tokio::time::timeout(Duration::from_mins(1), closed)
        .await
        .expect("it is closed");
    assert_eq!(closed, [abandoned.call_id.to_string()]);
    service
        .audit
        .append(&outcome(&young, Status::Ok), false)
        .await
        .unwrap();
}
