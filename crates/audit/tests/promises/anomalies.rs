//! Tests of anomaly detection: an anomaly is recorded once, whichever replica searches and wherever it was interrupted.

use std::time::{Duration, Instant};

use serde_json::Value;
use wardgate_audit::{AnomalySettings, CallingProcesses, Config, LogCloser, RecordReader};
use wardgate_domain::{Ambient, CallFacts, Status};
use wardgate_rpc::client::{AuditClient, AuditFilter, ContentFilter, QueriedRecord};
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::until;

use crate::support::{TestStore, json, keys, on_both_stores, outcome, subject};

on_both_stores! {
    unusual_behaviour_is_on_record_once_with_two_replicas
    an_interrupted_search_tells_nothing_twice
    the_search_continues_after_a_record_that_cannot_be_read
}

pub(crate) const DENIALS: usize = 3;

pub(crate) async fn service(store: &TestStore) -> (AuditClient, LogCloser) {
    let settings = format!(r#"{{"denials":{{"count":{DENIALS},"within":"5m"}}}}"#);
    let settings: AnomalySettings = serde_json::from_str(&settings).unwrap();
    let config = Config {
        anomalies: Some(settings),
        ..Config::for_store(&store.url)
    };
    let callers = CallingProcesses::OtherProcesses;
    let service = wardgate_audit::service(config, keys(), callers, None, Ambient::system());
    let (service, closer) = Box::pin(service).await.unwrap();
    let audit = link::local(service, Peer::Gateway).link;
    // The search begins with records that are appended after the first start.
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let begun = Instant::now();
    while reader
        .export_position("anomaly_detection")
        .await
        .unwrap()
        .is_none()
    {
        pause(begun).await;
    }
    (AuditClient::new(audit, Duration::from_mins(1)), closer)
}

async fn pause(begun: Instant) {
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "it takes too long"
    );
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn deny(audit: &AuditClient, subject_name: &str, times: usize) {
    for _ in 0..times {
        let call = CallFacts {
            subject: subject_name.to_owned(),
            ..subject()
        };
        let denied = outcome(&call, Status::Denied);
        audit.append(&denied, false).await.unwrap();
    }
}

/// Returns the recorded anomalies, once there is one of `subject`.
pub(crate) async fn anomalies(store: &TestStore, subject: &str) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let filter = AuditFilter {
            content: ContentFilter {
                event: Some("anomaly".to_owned()),
                ..ContentFilter::default()
            },
            ..AuditFilter::default()
        };
        let found = store.read_records(filter).await.into_iter();
        let found: Vec<Value> = found
            .filter_map(|found| match found {
                QueriedRecord::Intact(stored) => Some(json(&stored)),
                QueriedRecord::Damaged(_) => None,
            })
            .collect();
        if found.iter().any(|it| it["caller"]["subject"] == subject) {
            return found;
        }
        pause(begun).await;
    }
}

pub(crate) fn subjects(anomalies: &[Value]) -> Vec<&str> {
    let subjects = anomalies.iter();
    subjects
        .map(|it| it["caller"]["subject"].as_str().unwrap())
        .collect()
}

async fn unusual_behaviour_is_on_record_once_with_two_replicas(store: &TestStore) {
    let (first, first_closer) = service(store).await;
    let (second, second_closer) = service(store).await;
    deny(&first, "mallory", DENIALS - 1).await;
    deny(&second, "mallory", DENIALS).await;
    let found = anomalies(store, "mallory").await;
    let [anomaly] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(anomaly["anomaly"], "denial_burst");
    assert_eq!(anomaly["caller"]["issuer"], "https://issuer.example");
    assert_eq!(anomaly["caller"]["tenant"], "north");
    assert_eq!(
        (&anomaly["count"], &anomaly["threshold"]),
        (&3.into(), &3.into())
    );
    assert_eq!(anomaly["within_seconds"], 300);
    assert_eq!(anomaly["last_sequence"], DENIALS - 1);
    // When the searching replica ends, the other continues and knows the earlier records.
    drop(first);
    first_closer.close().await;
    deny(&second, "mallory", 1).await;
    deny(&second, "eve", DENIALS).await;
    assert_eq!(subjects(&anomalies(store, "eve").await), ["mallory", "eve"]);
    drop(second);
    second_closer.close().await;
}

async fn an_interrupted_search_tells_nothing_twice(store: &TestStore) {
    let (audit, closer) = service(store).await;
    deny(&audit, "mallory", DENIALS).await;
    anomalies(store, "mallory").await;
    drop(audit);
    closer.close().await;
    // The cursor is as it would be if the process had been killed before it stored its progress.
    let back = "UPDATE export_cursor SET position = 0 WHERE name = 'anomaly_detection'";
    store.execute(back).await.unwrap();
    let (audit, closer) = service(store).await;
    deny(&audit, "eve", DENIALS).await;
    assert_eq!(subjects(&anomalies(store, "eve").await), ["mallory", "eve"]);
    drop(audit);
    closer.close().await;
}

async fn the_search_continues_after_a_record_that_cannot_be_read(store: &TestStore) {
    let (audit, closer) = service(store).await;
    deny(&audit, "mallory", DENIALS).await;
    anomalies(store, "mallory").await;
    drop(audit);
    closer.close().await;
    // PostgreSQL stores no text that cannot be read, so there the bytes are changed.
    let (unlock, change) = if store.is_sqlite() {
        (
            "DROP TRIGGER record_is_not_changed",
            "UPDATE record SET subject = CAST(x'ff' AS TEXT) WHERE sequence = 1",
        )
    } else {
        (
            "DROP TRIGGER record_is_not_changed ON record",
            "UPDATE record SET canonical = leaf_hash WHERE sequence = 1",
        )
    };
    store.execute(unlock).await.unwrap();
    store.execute(change).await.unwrap();
    let found = store.read_records(AuditFilter::default()).await;
    let damaged: Vec<_> = found
        .iter()
        .filter_map(|found| match found {
            QueriedRecord::Intact(_) => None,
            QueriedRecord::Damaged(damage) => Some(damage.sequence),
        })
        .collect();
    assert_eq!((damaged, found.len()), (vec![Some(1)], DENIALS + 1));

    let back = "UPDATE export_cursor SET position = 0 WHERE name = 'anomaly_detection'";
    store.execute(back).await.unwrap();
    let (audit, closer) = service(store).await;
    deny(&audit, "eve", DENIALS).await;
    assert_eq!(subjects(&anomalies(store, "eve").await), ["mallory", "eve"]);
    drop(audit);
    closer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_continues_after_records_on_a_corrupt_page_of_the_database() {
    let store = TestStore::sqlite();
    let (audit, closer) = service(&store).await;
    let calls: Vec<_> = (0..40).map(|_| subject()).collect();
    for call in &calls {
        let record = outcome(call, Status::Ok);
        audit.append(&record, false).await.unwrap();
    }
    drop(audit);
    closer.close().await;
    store.corrupt_pages_of(&calls[20..21]).await;
    let whole = store.read_records(AuditFilter::default()).await;
    let is_damaged = |found: &QueriedRecord| matches!(found, QueriedRecord::Damaged(_));
    assert!(whole.iter().any(is_damaged), "the page cannot be read");

    let back = "UPDATE export_cursor SET position = 0 WHERE name = 'anomaly_detection'";
    store.execute(back).await.unwrap();
    let (audit, closer) = service(&store).await;
    deny(&audit, "eve", DENIALS).await;
    // The records of a caller are found by an index, without the corrupt page.
    let anomaly = AuditFilter {
        subject: Some("eve".to_owned()),
        content: ContentFilter {
            event: Some("anomaly".to_owned()),
            ..ContentFilter::default()
        },
        ..AuditFilter::default()
    };
    until("the anomaly is recorded", async || {
        let found = store.read_records(anomaly.clone()).await;
        (!found.is_empty()).then_some(())
    })
    .await;
    drop(audit);
    closer.close().await;
}
