//! Tests of readers, with and without the service.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use sqlx::{Connection, PgConnection};
use wardgate_audit::{Error, RecordReader, StoreRoom};
use wardgate_domain::{Ambient, Record, Status};
use wardgate_rpc::client::AuditFilter;
use wardgate_store::DatabaseSettings;

use crate::support::{TestStore, on_both_stores, outcome, subject};

on_both_stores! {
    a_reader_needs_no_service_and_disturbs_none
    the_size_the_pace_and_the_room_of_the_record_are_measured
}

async fn the_size_the_pace_and_the_room_of_the_record_are_measured(store: &TestStore) {
    let service = store.service().await;
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let capacity = &StoreRoom {
        capacity: Some(1 << 30),
        second_copy: None,
    };
    let now = || Ambient::system().now();
    let before = reader.growth(capacity, now()).await.unwrap();
    assert_eq!(before.days_left(), Some(f64::INFINITY), "{before:?}");
    for _ in 0..50 {
        let record = Record {
            time: now(),
            ..outcome(&subject(), Status::Ok)
        };
        service.audit.append(&record, false).await.unwrap();
    }
    let after = reader.growth(capacity, now()).await.unwrap();
    assert!(after.bytes > before.bytes, "{before:?} {after:?}");
    assert_eq!(after.free, Some((1 << 30) - after.bytes));
    assert!(after.days_left().unwrap() < 10_000.0, "{after:?}");
    let unknown = reader.growth(&StoreRoom::default(), now()).await.unwrap();
    assert_eq!(unknown.free.is_some(), store.is_sqlite(), "{unknown:?}");
    let later = now().plus(Duration::from_hours(25));
    let still = reader.growth(capacity, later).await.unwrap();
    assert_eq!(still.days_left(), Some(f64::INFINITY), "{still:?}");
}

async fn a_reader_needs_no_service_and_disturbs_none(store: &TestStore) {
    assert!(
        matches!(
            RecordReader::open(&store.url, &DatabaseSettings::default())
                .await
                .err(),
            Some(Error::Open { .. })
        ),
        "nothing there"
    );
    let service = store.service().await;
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let count = async || {
        let records = reader.query(AuditFilter::default()).unwrap();
        records.try_collect::<Vec<_>>().await.unwrap().len()
    };
    assert_eq!(count().await, 1);
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    assert_eq!(count().await, 2);
    drop(service);
    assert_eq!(count().await, 2);
    assert_eq!(store.records().await.len(), 2);
}

#[tokio::test]
async fn a_store_that_is_none_is_refused() {
    for store in [
        "",
        "audit.sqlite",
        "sqlite:",
        "sqlite::memory:",
        "mysql://localhost/audit",
        "postgres://[",
    ] {
        assert!(
            matches!(
                RecordReader::open(store, &DatabaseSettings::default())
                    .await
                    .err(),
                Some(Error::UnknownStore)
            ),
            "{store}"
        );
    }
    let error = RecordReader::open(
        "postgres://u:hunter2@127.0.0.1:1/audit",
        &DatabaseSettings::default(),
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1/audit"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_nobody_waits_for_any_more_stops_at_the_server() {
    let Some(store) = TestStore::postgres().await else {
        return;
    };
    let service = store.service().await;
    let record = outcome(&subject(), Status::Ok);
    service.audit.append(&record, false).await.unwrap();
    let filter = || AuditFilter {
        tool: Some("nothing".to_owned()),
        ..AuditFilter::default()
    };
    let (console, reader) = (
        service.console.clone(),
        RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap(),
    );
    // After a first query, neither reader counts the records again.
    let by_console = console.query(filter()).await.unwrap();
    assert_eq!(by_console.count().await, 0);
    assert_eq!(reader.query(filter()).unwrap().count().await, 0);
    // From now on, no query ends by itself.
    let mut other = PgConnection::connect(&store.url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit.record IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    // Waits until this number of statements that filter by tool is running.
    let mut looking = PgConnection::connect(&store.url).await.unwrap();
    let mut reaches = async |readings: i64| {
        let begun = Instant::now();
        loop {
            let found: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'wardgate audit reader' AND state = 'active' AND query LIKE '% AND tool = %'",
            )
            .fetch_one(&mut looking)
            .await
            .unwrap();
            if found == readings {
                return;
            }
            // This is well before the server cancels a statement that takes too long.
            assert!(begun.elapsed() < Duration::from_secs(15), "{found} read");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    let readings = [
        tokio::spawn({
            let reading = filter();
            async move { console.query(reading).await.unwrap().count().await }
        }),
        tokio::spawn(reader.query(filter()).unwrap().count()),
    ];
    reaches(2).await;
    for reading in readings {
        reading.abort();
    }
    reaches(0).await;
    lock.rollback().await.unwrap();
}
