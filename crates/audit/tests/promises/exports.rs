//! Tests of exports: a security tool receives every record at least once, in order, and nothing waits for the tool.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};
use wardgate_audit::{CallingProcesses, Config, ExportSettings, LogCloser, RecordReader};
use wardgate_domain::{Ambient, Status};
use wardgate_rpc::client::{AuditClient, AuditFilter, QueriedRecord};
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;

use crate::support::{
    TestStore, admin_change, intent, json, keys, on_both_stores, outcome, refusals, subject,
};

on_both_stores! {
    a_security_tool_has_every_record_in_order
    an_export_goes_on_where_it_was
    a_tool_that_refuses_gets_the_same_batch_again_and_no_append_waits
    two_processes_do_not_export_at_once
    an_export_copies_the_kinds_that_it_names
    records_that_were_changed_are_left_out_and_the_rest_goes_on
}

/// A webhook that stores the records it accepts.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    lines: Arc<Mutex<Vec<Value>>>,
    ids: Arc<Mutex<Vec<String>>>,
    refuses: Arc<Mutex<bool>>,
}

impl Receiver {
    pub(crate) async fn serve(&self) -> String {
        async fn receive_events(
            State(receiver): State<Receiver>,
            headers: HeaderMap,
            body: String,
        ) -> StatusCode {
            let id = headers
                .get("webhook-id")
                .map(|id| id.to_str().unwrap().to_owned());
            receiver.ids.lock().unwrap().extend(id);
            if *receiver.refuses.lock().unwrap() {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            let events = body.lines().map(|line| serde_json::from_str(line).unwrap());
            receiver.lines.lock().unwrap().extend(events);
            StatusCode::ACCEPTED
        }
        let router = Router::new()
            .fallback(receive_events)
            .with_state(self.clone());
        format!("http://{}/in", wardgate_testkit::serve(router).await)
    }

    fn refuse(&self, refuses: bool) {
        *self.refuses.lock().unwrap() = refuses;
    }

    /// Returns the sequence numbers of the received records, in the order of arrival.
    pub(crate) fn sequences(&self) -> Vec<u64> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .map(|line| line["metadata"]["sequence"].as_u64().unwrap())
            .collect()
    }

    pub(crate) async fn has(&self, count: usize) {
        until(|| self.sequences().len() >= count).await;
    }
}

async fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it takes too long"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn webhook(url: &str, more: &str) -> ExportSettings {
    let text =
        format!(r#"{{"name":"soc","webhook":{{"url":"{url}","private_addresses":true}}{more}}}"#);
    serde_json::from_str(&text).unwrap()
}

/// The name of the log of stores that [`service`] creates.
const ORIGIN: &str = "example.com/audit";

/// Starts the service on `store`, with one export.
async fn service(store: &TestStore, export: ExportSettings) -> (AuditClient, LogCloser) {
    service_of_log(store, Some(ORIGIN), export).await
}

/// Starts the service on `store`, whose log has the name `origin`, or its own name without one.
async fn service_of_log(
    store: &TestStore,
    origin: Option<&str>,
    export: ExportSettings,
) -> (AuditClient, LogCloser) {
    let config = Config {
        log_origin: origin.map(str::to_owned),
        exports: vec![export],
        ..Config::for_store(&store.url)
    };
    let callers = CallingProcesses::OtherProcesses;
    let service = wardgate_audit::service(config, keys(), callers, None, Ambient::system());
    let (service, closer) = Box::pin(service).await.unwrap();
    let audit = link::local(service, Peer::Gateway).link;
    (AuditClient::new(audit, Duration::from_mins(1)), closer)
}

async fn append(audit: &AuditClient, count: usize) {
    for _ in 0..count {
        let record = outcome(&subject(), Status::Ok);
        audit.append(&record, false).await.unwrap();
    }
}

async fn a_security_tool_has_every_record_in_order(store: &TestStore) {
    let receiver = Receiver::default();
    let (audit, closer) = service(store, webhook(&receiver.serve().await, "")).await;
    append(&audit, 300).await;
    receiver.has(300).await;
    assert_eq!(receiver.sequences(), (0..300).collect::<Vec<_>>());
    drop(audit);
    closer.close().await;
    // Each received record equals the stored one.
    let lines = receiver.lines.lock().unwrap().clone();
    for (line, stored) in lines.iter().zip(store.records().await) {
        let raw = line["raw_data"].as_str().unwrap();
        assert_eq!(raw.as_bytes(), stored.record);
        assert_eq!(
            line["metadata"]["original_event_uid"],
            stored.leaf_hash.to_string()
        );
        assert_eq!(
            line["metadata"]["uid"],
            format!("{ORIGIN}#{}", stored.sequence)
        );
        assert_eq!(
            line["metadata"]["correlation_uid"],
            json(&stored)["call_id"]
        );
    }
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    assert_eq!(
        reader.export_position("soc").await.unwrap(),
        Some((300, 300))
    );
    assert_eq!(reader.export_position("other").await.unwrap(), None);
}

async fn an_export_goes_on_where_it_was(store: &TestStore) {
    let receiver = Receiver::default();
    let url = receiver.serve().await;
    for round in 1..=3 {
        let (audit, closer) = service(store, webhook(&url, "")).await;
        append(&audit, 5).await;
        receiver.has(5 * round).await;
        // The position is stored only after the tool has received the records.
        let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap();
        let size = 5 * round as u64;
        let begun = Instant::now();
        while reader.export_position("soc").await.unwrap() != Some((size, size)) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(audit);
        closer.close().await;
    }
    assert_eq!(receiver.sequences(), (0..15).collect::<Vec<_>>());
    // A new export with another name begins with new records, if it is configured to.
    let late = Receiver::default();
    let export = ExportSettings {
        name: "late".to_owned(),
        ..webhook(&late.serve().await, r#","start":"now""#)
    };
    let (audit, closer) = service(store, export).await;
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let begun = Instant::now();
    while reader.export_position("late").await.unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    append(&audit, 1).await;
    late.has(1).await;
    assert_eq!(late.sequences(), [15]);
    drop(audit);
    closer.close().await;
}

async fn a_tool_that_refuses_gets_the_same_batch_again_and_no_append_waits(store: &TestStore) {
    let receiver = Receiver::default();
    receiver.refuse(true);
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let mut export = webhook(&receiver.serve().await, "");
    let settings = export.webhook.as_mut().unwrap();
    settings.signing_key_file = Some(key);
    let (audit, closer) = service(store, export).await;
    append(&audit, 1).await;
    until(|| receiver.ids.lock().unwrap().len() >= 2).await;
    // In the meantime, records are appended as usual.
    append(&audit, 10).await;
    assert_eq!(receiver.sequences(), [0_u64; 0]);
    receiver.refuse(false);
    receiver.has(11).await;
    assert_eq!(receiver.sequences(), (0..11).collect::<Vec<_>>());
    let ids = receiver.ids.lock().unwrap().clone();
    let (last, refused) = ids[..ids.len() - 1].split_last().unwrap();
    assert!(refused.iter().all(|id| id == last), "{ids:?}");
    drop(audit);
    closer.close().await;
}

async fn two_processes_do_not_export_at_once(store: &TestStore) {
    let receiver = Receiver::default();
    let url = receiver.serve().await;
    let (first, first_closer) = service(store, webhook(&url, "")).await;
    append(&first, 1).await;
    receiver.has(1).await;
    let (second, second_closer) = service(store, webhook(&url, "")).await;
    for _ in 0..20 {
        append(&first, 2).await;
        append(&second, 2).await;
    }
    receiver.has(81).await;
    assert_eq!(receiver.sequences(), (0..81).collect::<Vec<_>>());
    // When the exporting process ends, the other continues.
    drop(first);
    first_closer.close().await;
    append(&second, 5).await;
    receiver.has(86).await;
    assert_eq!(receiver.sequences(), (0..86).collect::<Vec<_>>());
    drop(second);
    second_closer.close().await;
}

async fn an_export_copies_the_kinds_that_it_names(store: &TestStore) {
    let receiver = Receiver::default();
    let named = webhook(
        &receiver.serve().await,
        r#","records":["refusals","admin_change"]"#,
    );
    let (audit, closer) = service(store, named).await;
    let call = subject();
    for record in [
        intent(&call),
        outcome(&call, Status::Denied),
        refusals(3),
        outcome(&subject(), Status::Ok),
        admin_change("ada", false),
    ] {
        audit.append(&record, false).await.unwrap();
    }
    receiver.has(2).await;
    drop(audit);
    closer.close().await;
    assert_eq!(receiver.sequences(), [2, 4]);
}

async fn records_that_were_changed_are_left_out_and_the_rest_goes_on(store: &TestStore) {
    let quiet = Receiver::default();
    let (audit, closer) = service(
        store,
        ExportSettings {
            name: "other".to_owned(),
            ..webhook(&quiet.serve().await, "")
        },
    )
    .await;
    append(&audit, 4).await;
    drop(audit);
    closer.close().await;
    let unlocked = if store.url.starts_with("sqlite") {
        "DROP TRIGGER record_is_not_changed"
    } else {
        "DROP TRIGGER record_is_not_changed ON record"
    };
    store.execute(unlocked).await.unwrap();
    let change = "UPDATE record SET canonical = leaf_hash WHERE sequence = 1";
    store.execute(change).await.unwrap();
    let receiver = Receiver::default();
    let (audit, closer) = service(store, webhook(&receiver.serve().await, "")).await;
    receiver.has(3).await;
    assert_eq!(receiver.sequences(), [0, 2, 3]);
    drop(audit);
    closer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_continues_after_records_on_a_corrupt_page_of_the_database() {
    let store = TestStore::sqlite();
    let calls = store.append_calls(40).await;
    store.corrupt_pages_of(&calls[20..21]).await;
    let found = store.read_records(AuditFilter::default()).await;
    let readable: Vec<u64> = found
        .iter()
        .filter_map(|found| match found {
            QueriedRecord::Intact(stored) => Some(stored.sequence),
            QueriedRecord::Damaged(_) => None,
        })
        .collect();
    assert!((1..40).contains(&readable.len()), "{readable:?}");
    let receiver = Receiver::default();
    let (audit, closer) = service_of_log(&store, None, webhook(&receiver.serve().await, "")).await;
    receiver.has(readable.len()).await;
    assert_eq!(receiver.sequences(), readable);
    drop(audit);
    closer.close().await;
}

/// Returns the end of the claim to the export, in seconds, and the position of the export.
async fn claim_of_export(store: &TestStore) -> Option<(f64, i64)> {
    let mut connection = SqliteConnection::connect(&store.url).await.unwrap();
    let claim = "SELECT claimed_until, position FROM export_cursor WHERE name = 'soc'";
    let claim = sqlx::query_as(claim).fetch_optional(&mut connection).await;
    connection.close().await.unwrap();
    claim.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_stays_where_it_is_while_no_record_of_a_whole_page_can_be_read() {
    // More records than an export reads at once.
    let store = TestStore::sqlite();
    let calls = store.append_calls(300).await;
    let pages = store.corrupt_pages_of(&calls[..256]).await;
    let receiver = Receiver::default();
    let url = receiver.serve().await;
    let (audit, closer) = service_of_log(&store, None, webhook(&url, "")).await;
    let begun =
        wardgate_testkit::until("the export begins", async || claim_of_export(&store).await);
    let (begun, _) = begun.await;
    // The claim is renewed by the next attempt, after the first one has failed.
    let renewed = wardgate_testkit::until("the export tries again", async || {
        let claim = claim_of_export(&store).await;
        claim.filter(|(claimed_until, _)| *claimed_until > begun)
    });
    let (_, position) = renewed.await;
    assert_eq!(position, 0);
    assert_eq!(receiver.sequences(), [0_u64; 0]);
    drop(audit);
    closer.close().await;

    store.repair_pages(&pages);
    let (audit, closer) = service_of_log(&store, None, webhook(&url, "")).await;
    receiver.has(300).await;
    assert_eq!(receiver.sequences(), (0..300).collect::<Vec<_>>());
    drop(audit);
    closer.close().await;
}
