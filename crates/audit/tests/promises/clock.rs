//! Tests with clocks that step forward or back by a day, or stand still: records are ordered by sequence number.

use std::fs;

use futures::future::join_all;
use wardgate_audit::{CheckpointKind, RecordReader};
use wardgate_domain::{Ambient, CallFacts, Record, Status, Timestamp};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{AuditClient, AuditFilter, StoredRecord};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::TestClock;
use wardgate_transparency::{CompactTree, Cosigner, leaf_hash};

use crate::support::{
    NOW, TestStore, intact, intent, json, log_key, on_both_stores, outcome, refusals, subject,
};
use crate::{anomalies, cosigning, log};

on_both_stores! {
    no_step_of_a_clock_changes_the_order_of_records_or_their_history
    a_step_forward_closes_what_is_under_way_and_a_step_back_closes_nothing
    witnesses_cosign_whatever_their_clocks_show
    unusual_behaviour_is_found_after_each_step
    a_restart_after_a_step_back_misses_no_unusual_behaviour
}

const DAY: i64 = 86_400;

/// The successive times of a clock, which steps forward, back and further back, and stands still.
const STEPS: [i64; 6] = [NOW, NOW + DAY, NOW, NOW - DAY, NOW - DAY, NOW];

fn at(time: Timestamp, record: Record) -> Record {
    Record { time, ..record }
}

async fn no_step_of_a_clock_changes_the_order_of_records_or_their_history(store: &TestStore) {
    const EACH: usize = 20;
    let clock = TestClock::at(NOW);
    // No intent is old enough to be closed.
    let service = store.service_at(clock.ambient(), 30 * 86_400).await;
    let mut sequence = 0;
    let mut before: Vec<StoredRecord> = Vec::new();
    let mut signed = Vec::new();
    for step in STEPS {
        clock.set(step);
        let now = Timestamp::from_seconds(step);
        let calls = join_all((0..EACH / 2).map(async |_| {
            let call = subject();
            let intent = at(now, intent(&call));
            let first = service.audit.append(&intent, false).await.unwrap();
            let outcome = at(now, outcome(&call, Status::Ok));
            let second = service.audit.append(&outcome, false).await.unwrap();
            assert!(first.sequence() < second.sequence());
        }));
        calls.await;
        sequence += EACH as u64;
        // The records are equal, including their time, and are still stored twice.
        for _ in 0..2 {
            let refused = at(now, refusals(7));
            let receipt = service.audit.append(&refused, false).await.unwrap();
            assert_eq!(receipt.sequence(), sequence);
            sequence += 1;
        }
        log::wait_for_checkpoint(store, sequence).await;
        signed.push(log::checkpoint(store).await);
        let after = store.records().await;
        assert!(after.iter().map(|it| it.sequence).eq(0..sequence));
        for (record, earlier) in after.iter().zip(&before) {
            assert_eq!(record.record, earlier.record, "nothing is rewritten");
        }
        before = after;
    }
    // All checkpoints belong to the same history.
    let mut tree = CompactTree::default();
    let mut heads = vec![tree.head()];
    for record in &before {
        tree.append(leaf_hash(&record.record), |_, _| ());
        heads.push(tree.head());
    }
    for head in signed {
        assert_eq!(head, heads[usize::try_from(head.size).unwrap()]);
    }
    query_by_time(store, &before).await;
}

/// Checks that a query with a period returns the records whose time is in it, ordered by time and then by sequence number, and
/// that a query without a period returns all records in the order of their sequence numbers.
async fn query_by_time(store: &TestStore, all: &[StoredRecord]) {
    let time_of = |record: &StoredRecord| -> Timestamp {
        json(record)["time"].as_str().unwrap().parse().unwrap()
    };
    for (since, until) in [
        (NOW - DAY, NOW + 1),
        (NOW - DAY, NOW),
        (NOW, NOW + DAY),
        (NOW + DAY, NOW + 2 * DAY),
        (NOW + 1, NOW + DAY),
    ] {
        let (since, until) = (
            Timestamp::from_seconds(since),
            Timestamp::from_seconds(until),
        );
        let mut expected: Vec<_> = all
            .iter()
            .filter(|record| (since..until).contains(&time_of(record)))
            .map(|record| (time_of(record), record.sequence))
            .collect();
        expected.sort_unstable();
        for newest_first in [false, true] {
            let filter = AuditFilter {
                since: Some(since),
                until: Some(until),
                newest_first,
                ..AuditFilter::default()
            };
            let found = store.read_records(filter).await.into_iter().map(intact);
            let found: Vec<_> = found
                .map(|record| (time_of(&record), record.sequence))
                .collect();
            assert_eq!(found, expected);
            expected.reverse();
        }
    }
}

async fn a_step_forward_closes_what_is_under_way_and_a_step_back_closes_nothing(store: &TestStore) {
    let clock = TestClock::at(NOW);
    let (slow, quick) = (subject(), subject());
    let start = async |time: i64| {
        clock.set(time);
        // Intents that are old enough are closed before the service is ready.
        store.service_at(clock.ambient(), 60).await
    };
    let status_of = async |call: &CallFacts| {
        let filter = AuditFilter {
            call_id: Some(call.call_id.to_string()),
            ..AuditFilter::default()
        };
        let found = store.read_records(filter).await.into_iter().map(intact);
        let found: Vec<_> = found.map(|record| json(&record)).collect();
        found.last().unwrap()["status"].as_str().map(str::to_owned)
    };
    let service = start(NOW).await;
    for call in [&slow, &quick] {
        service.audit.append(&intent(call), false).await.unwrap();
    }
    drop(service);

    // Intents with a time in the future are not closed, and their calls can still end.
    let service = start(NOW - DAY).await;
    assert_eq!(status_of(&slow).await, None);
    let early = at(
        Timestamp::from_seconds(NOW - DAY),
        outcome(&quick, Status::Ok),
    );
    service.audit.append(&early, false).await.unwrap();
    drop(service);

    // For a clock that stepped forward, the other intent is a day old and is closed. Its call can no longer record an outcome,
    // and therefore releases nothing.
    let service = start(NOW + DAY).await;
    assert_eq!(status_of(&slow).await.as_deref(), Some("unknown"));
    let late = outcome(&slow, Status::Ok);
    let refused = service.audit.append(&late, true).await.unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::InvalidMessage);
    drop(service);

    // The outcome remains when the clock is right again.
    drop(start(NOW + 1).await);
    assert_eq!(status_of(&slow).await.as_deref(), Some("unknown"));
    assert_eq!(status_of(&quick).await.as_deref(), Some("ok"));
    assert_eq!(store.records().await.len(), 4);
}

async fn witnesses_cosign_whatever_their_clocks_show(store: &TestStore) {
    let clock = TestClock::at(NOW);
    let mut witnesses = cosigning::TestWitnesses::with(clock.ambient());
    witnesses.start("one", 11).await;
    let quorum = "quorum one";
    let (audit, closer) = witnesses.service(store, quorum).await;
    let policy = fs::read_to_string(witnesses.policy(quorum)).unwrap();
    let cosigner = Cosigner::from_pkcs8("witness.example/one", &log_key(11)).unwrap();
    for (size, step) in (1..).zip(STEPS) {
        clock.set(step);
        cosigning::append(&audit, 1).await;
        cosigning::reaches(store, CheckpointKind::Cosigned, size).await;
        let verified = cosigning::verify(store, &policy, CheckpointKind::Cosigned).await;
        assert_eq!(verified, Ok(size));
        let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap();
        let note = reader.checkpoint(CheckpointKind::Cosigned).await.unwrap();
        // The cosignature has the time of the witness's clock, even if that is before an earlier one.
        let expected = cosigner.cosign(&note, u64::try_from(step).unwrap());
        assert!(note.signatures().contains(&expected), "{step}: {note}");
    }
    drop(audit);
    closer.close().await;
}

async fn unusual_behaviour_is_found_after_each_step(store: &TestStore) {
    let (audit, closer) = anomalies::service(store).await;
    let deny = async |name: &str, time: i64| {
        for _ in 0..anomalies::DENIALS {
            let call = CallFacts {
                subject: name.to_owned(),
                ..subject()
            };
            let denied = at(
                Timestamp::from_seconds(time),
                outcome(&call, Status::Denied),
            );
            audit.append(&denied, false).await.unwrap();
        }
    };
    for step in STEPS {
        deny("mallory", step).await;
    }
    deny("eve", NOW).await;
    let found = anomalies::anomalies(store, "eve").await;
    // There is one anomaly for each step of the clock, and none while it stands still.
    let expected = ["mallory", "mallory", "mallory", "mallory", "mallory", "eve"];
    assert_eq!(anomalies::subjects(&found), expected);
    drop(audit);
    closer.close().await;
}

async fn a_restart_after_a_step_back_misses_no_unusual_behaviour(store: &TestStore) {
    /// Longer than the window in which denials are counted.
    const BACK: i64 = 600;
    let deny = async |audit: &AuditClient, name: &str, time: i64| {
        let call = CallFacts {
            subject: name.to_owned(),
            ..subject()
        };
        let denied = outcome(&call, Status::Denied);
        let denied = at(Timestamp::from_seconds(time), denied);
        audit.append(&denied, false).await.unwrap();
    };
    let now = Ambient::system().now().as_seconds();
    let (audit, closer) = anomalies::service(store).await;
    for time in [now, now - BACK, now, now] {
        deny(&audit, "mallory", time).await;
    }
    drop(audit);
    closer.close().await;
    let (audit, closer) = anomalies::service(store).await;
    // This is the third denial since the clock was corrected. The first one was before the clock was wrong.
    deny(&audit, "mallory", now).await;
    let found = anomalies::anomalies(store, "mallory").await;
    assert_eq!(anomalies::subjects(&found), ["mallory"]);
    assert_eq!(found[0]["last_sequence"], 4);
    drop(audit);
    closer.close().await;
}
