//! Tests of the rotation of the master key of the details of calls.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::TryStreamExt;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc;
use wardgate_audit::{
    AuditKeys, CallingProcesses, Config, DetailsKey, DetailsKeys, Error, RecordReader,
    RekeyOutcome, rekey,
};
use wardgate_domain::{Ambient, OperatorAction};
use wardgate_rpc::Peer;
use wardgate_rpc::client::{
    AuditFilter, DataSubjectFilter, HoldScope, OperatorAuditClient, RecordDetails,
};
use wardgate_store::{DatabaseSettings, RekeyProgress};
use wardgate_testkit::{FakePolicy, unverified_token};

use crate::details::{about, outcome_about};
use crate::support::{TestService, TestStore, intact, keys, on_both_stores};

on_both_stores! {
    a_store_moves_to_a_new_details_key_however_often_that_is_interrupted
    services_go_on_during_the_rotation_and_what_they_add_is_under_the_new_key
    a_rotation_with_other_keys_is_refused_and_loses_nothing
    a_key_that_no_details_key_decrypts_stays_and_is_counted
    a_store_of_an_earlier_release_moves_to_a_new_details_key
    keys_that_a_service_of_an_earlier_release_adds_are_moved_too
    a_store_without_keys_of_data_subjects_is_refused
}

const LIMIT: Duration = Duration::from_secs(60);

/// The details key of [`keys`].
const OLD: u8 = 9;
const NEW: u8 = 10;
const THIRD: u8 = 11;

fn details_keys(current: u8, former: &[u8]) -> DetailsKeys {
    let key = |byte: &u8| DetailsKey::from_bytes(&[*byte; 32]);
    DetailsKeys::new(key(&current), former.iter().map(key).collect())
}

/// Starts the service with a policy that permits `ada` to manage the audit log.
async fn start(store: &TestStore, details: DetailsKeys) -> Result<TestService, Error> {
    let policy: Arc<FakePolicy> = FakePolicy::new(Ambient::system());
    policy.lets_operate(OperatorAction::ManageRecord, "ada");
    let policy = Some(policy.client(Peer::Audit));
    let keys = AuditKeys { details, ..keys() };
    let config = Config::for_store(&store.url);
    let callers = CallingProcesses::OtherProcesses;
    TestService::start_keyed(config, keys, callers, policy, Ambient::system()).await
}

fn ada(service: &TestService) -> OperatorAuditClient {
    service.operator(&unverified_token("ada", ""))
}

fn patient(key: &str) -> DataSubjectFilter {
    DataSubjectFilter {
        tenant: "north".to_owned(),
        key: key.to_owned(),
    }
}

async fn append_about(service: &TestService, patients: &[&str]) {
    let patients: Vec<_> = patients.iter().map(|patient| (*patient, 1)).collect();
    let record = outcome_about(&patients);
    service.audit.append(&record, false).await.unwrap();
}

/// Records calls about more data subjects than one batch moves, under the old key.
async fn fill(store: &TestStore) {
    let service = store.service().await;
    for call in 0..3 {
        let patients: Vec<_> = (0..100).map(|n| format!("P{call}{n:02}")).collect();
        let patients: Vec<_> = patients.iter().map(String::as_str).collect();
        append_about(&service, &patients).await;
    }
    append_about(&service, &["NUGWI"]).await;
    append_about(&service, &[]).await;
    service.closer.close().await;
}

/// Returns the details of the calls about a data subject, read without the service.
async fn details(store: &TestStore, keys: DetailsKeys, patient: &str) -> Vec<RecordDetails> {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let reader = reader.with_details_keys(keys).await.unwrap();
    let found = reader.query(about("north", patient)).unwrap();
    let found: Vec<_> = found.try_collect().await.unwrap();
    let details = found.into_iter().map(|found| intact(found).details);
    details.map(Option::unwrap).collect()
}

/// Checks that everything of [`fill`] can be found and opened with `keys`.
async fn is_whole(store: &TestStore, keys: &DetailsKeys) {
    for patient in ["NUGWI", "P000", "P199", "P250"] {
        let found = details(store, keys.clone(), patient).await;
        assert!(
            matches!(found.as_slice(), [RecordDetails::Open(_)]),
            "{patient}: {found:?}"
        );
    }
}

async fn run(store: &TestStore, keys: DetailsKeys) -> Result<RekeyOutcome, Error> {
    let settings = DatabaseSettings::default();
    rekey(&store.url, &settings, keys, Ambient::system(), |_| ()).await
}

/// Runs the rotation, and ends it as a killed process would after so many steps. Returns `None` if it was ended.
async fn run_killed_after(store: &TestStore, steps: u32) -> Option<RekeyOutcome> {
    let mut left = steps;
    let killed = poll_fn(|_| {
        left = left.saturating_sub(1);
        if left == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    tokio::select! {
        biased;
        outcome = run(store, details_keys(NEW, &[OLD])) => Some(outcome.unwrap()),
        () = killed => None,
    }
}

/// Begins the rotation, and ends it as a killed process would after the first batch.
async fn run_first_batch(store: &TestStore) {
    let (sender, mut told) = mpsc::unbounded_channel();
    let settings = DatabaseSettings::default();
    let keys = details_keys(NEW, &[OLD]);
    let tell = move |so_far: &RekeyProgress| {
        let _ = sender.send(*so_far);
    };
    let running = rekey(&store.url, &settings, keys, Ambient::system(), tell);
    tokio::select! {
        biased;
        Some(so_far) = told.recv() => assert!(so_far.done < so_far.total, "{so_far:?}"),
        outcome = running => panic!("the rotation has one batch: {outcome:?}"),
    }
}

async fn a_store_moves_to_a_new_details_key_however_often_that_is_interrupted(store: &TestStore) {
    fill(store).await;
    let both = details_keys(NEW, &[OLD]);
    is_whole(store, &both).await;
    let (mut steps, mut killed) = (1, 0);
    while run_killed_after(store, steps).await.is_none() {
        killed += 1;
        steps += 1 + steps / 4;
        is_whole(store, &both).await;
    }
    assert!(killed > 5, "{killed}");
    let again = run(store, both).await.unwrap();
    assert_eq!(again, RekeyOutcome::NotNeeded { unreadable: 0 });
    is_whole(store, &details_keys(NEW, &[])).await;
    let refused = start(store, details_keys(OLD, &[])).await.err().unwrap();
    assert!(matches!(refused, Error::OtherDetailsKey), "{refused}");
    let service = start(store, details_keys(NEW, &[])).await.unwrap();
    append_about(&service, &["NUGWI"]).await;
    let found = details(store, details_keys(NEW, &[]), "NUGWI").await;
    assert_eq!(found.len(), 2, "the tag of the data subject is the same");
}

async fn services_go_on_during_the_rotation_and_what_they_add_is_under_the_new_key(
    store: &TestStore,
) {
    fill(store).await;
    let service = start(store, details_keys(NEW, &[OLD])).await.unwrap();
    // Before the rotation, services that have only the former key read what the others write.
    append_about(&service, &["EARLY"]).await;
    let early = details(store, details_keys(OLD, &[]), "EARLY").await;
    assert!(matches!(early.as_slice(), [RecordDetails::Open(_)]));
    let operator = ada(&service);
    let held = HoldScope::DataSubject(patient("P000"));
    operator.set_hold("inquiry", held, LIMIT).await.unwrap();

    run_first_batch(store).await;
    append_about(&service, &["DURING", "NUGWI"]).await;
    assert!(operator.erase(patient("EARLY"), LIMIT).await.unwrap());
    let outcome = run(store, details_keys(NEW, &[OLD])).await.unwrap();
    assert!(
        matches!(
            outcome,
            RekeyOutcome::Finished(RekeyProgress { unreadable: 0, .. })
        ),
        "{outcome:?}"
    );
    append_about(&service, &["LATE", "NUGWI"]).await;

    let new = details_keys(NEW, &[]);
    for (patient, calls) in [("DURING", 1), ("LATE", 1), ("NUGWI", 3), ("P199", 1)] {
        let found = details(store, new.clone(), patient).await;
        assert_eq!(found.len(), calls, "{patient}");
        let is_open = |details: &RecordDetails| matches!(details, RecordDetails::Open(_));
        assert!(found.iter().all(is_open), "{patient}: {found:?}");
    }
    let early = details(store, new.clone(), "EARLY").await;
    assert_eq!(early, [RecordDetails::Erased]);
    assert!(operator.erase(patient("P000"), LIMIT).await.is_err());
    assert!(operator.erase(patient("LATE"), LIMIT).await.unwrap());
    let late = details(store, new, "LATE").await;
    assert_eq!(late, [RecordDetails::Erased]);
    service.closer.close().await;
}

async fn a_rotation_with_other_keys_is_refused_and_loses_nothing(store: &TestStore) {
    fill(store).await;
    let refusal = async |keys: DetailsKeys| run(store, keys).await.unwrap_err();
    for former in [&[][..], &[THIRD]] {
        let error = refusal(details_keys(NEW, former)).await;
        assert!(matches!(error, Error::OtherDetailsKey), "{error}");
    }
    let error = refusal(details_keys(OLD, &[OLD])).await;
    assert!(matches!(error, Error::SameDetailsKey), "{error}");
    let outcome = run(store, details_keys(OLD, &[])).await.unwrap();
    assert_eq!(outcome, RekeyOutcome::NotInProgress);
    is_whole(store, &details_keys(OLD, &[])).await;

    run_first_batch(store).await;
    let error = refusal(details_keys(NEW, &[])).await;
    assert!(matches!(error, Error::FormerDetailsKey), "{error}");
    let error = refusal(details_keys(NEW, &[THIRD])).await;
    assert!(matches!(error, Error::FormerDetailsKey), "{error}");
    let error = refusal(details_keys(THIRD, &[NEW, OLD])).await;
    assert!(matches!(error, Error::RekeyUnfinished), "{error}");
    let error = start(store, details_keys(NEW, &[])).await.err().unwrap();
    assert!(matches!(error, Error::FormerDetailsKey), "{error}");
    is_whole(store, &details_keys(NEW, &[OLD])).await;

    run(store, details_keys(NEW, &[OLD])).await.unwrap();
    run(store, details_keys(THIRD, &[NEW])).await.unwrap();
    is_whole(store, &details_keys(THIRD, &[])).await;
}

async fn a_key_that_no_details_key_decrypts_stays_and_is_counted(store: &TestStore) {
    let service = store.service().await;
    append_about(&service, &["NUGWI"]).await;
    append_about(&service, &[]).await;
    service.closer.close().await;
    let nothing = if store.is_sqlite() {
        "x'00'"
    } else {
        "'\\x00'"
    };
    let damage = format!(
        "UPDATE data_subject_key SET wrapped = {nothing} WHERE tag IN (SELECT tag FROM data_subject)"
    );
    store.execute(&damage).await.unwrap();
    let outcome = run(store, details_keys(NEW, &[OLD])).await.unwrap();
    let expected = RekeyProgress {
        done: 1,
        total: 2,
        unreadable: 1,
    };
    assert_eq!(outcome, RekeyOutcome::Finished(expected));
    let again = run(store, details_keys(NEW, &[OLD])).await.unwrap();
    assert_eq!(again, RekeyOutcome::NotNeeded { unreadable: 1 });
    // A query returns the record whose details cannot be decrypted, which is intact otherwise.
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let reader = reader.with_details_keys(details_keys(NEW, &[])).await;
    let filter = AuditFilter {
        with_details: true,
        ..AuditFilter::default()
    };
    let found = reader.unwrap().query(filter).unwrap();
    let found: Vec<_> = found.try_collect().await.unwrap();
    let details: Vec<_> = found.into_iter().map(|it| intact(it).details).collect();
    assert!(
        matches!(
            details.as_slice(),
            [
                Some(RecordDetails::Undecryptable),
                Some(RecordDetails::Open(_))
            ]
        ),
        "{details:?}"
    );
    assert!(start(store, details_keys(NEW, &[])).await.is_ok());
}

async fn keys_that_a_service_of_an_earlier_release_adds_are_moved_too(store: &TestStore) {
    fill(store).await;
    let keep = "CREATE TABLE kept AS SELECT tag, wrapped FROM data_subject_key";
    store.execute(keep).await.unwrap();
    let put_back = "UPDATE data_subject_key
        SET wrapped = (SELECT kept.wrapped FROM kept WHERE kept.tag = data_subject_key.tag)
        WHERE tag IN (SELECT tag FROM data_subject)";
    let (both, new) = (details_keys(NEW, &[OLD]), details_keys(NEW, &[]));

    // The key is added behind the position of the rotation.
    run_first_batch(store).await;
    store.execute(put_back).await.unwrap();
    run(store, both.clone()).await.unwrap();
    is_whole(store, &new).await;

    // The key is added after the end of the rotation.
    store.execute(put_back).await.unwrap();
    let outcome = run(store, both.clone()).await.unwrap();
    let expected = RekeyProgress {
        done: 301,
        total: 301,
        unreadable: 0,
    };
    assert_eq!(outcome, RekeyOutcome::Finished(expected));
    is_whole(store, &new).await;
    let again = run(store, both).await.unwrap();
    assert_eq!(again, RekeyOutcome::NotNeeded { unreadable: 0 });
}

async fn a_store_without_keys_of_data_subjects_is_refused(store: &TestStore) {
    store.service().await.closer.close().await;
    let forget = "DELETE FROM details_key; DELETE FROM data_subject_key";
    store.execute(forget).await.unwrap();
    for _ in 0..2 {
        let refused = run(store, details_keys(NEW, &[OLD])).await.unwrap_err();
        assert!(matches!(refused, Error::NoSubjectKeys), "{refused}");
    }
}

async fn a_store_of_an_earlier_release_moves_to_a_new_details_key(store: &TestStore) {
    fill(store).await;
    store.execute("DELETE FROM details_key").await.unwrap();
    is_whole(store, &details_keys(NEW, &[OLD])).await;
    let outcome = run(store, details_keys(NEW, &[OLD])).await.unwrap();
    let expected = RekeyProgress {
        done: 302,
        total: 302,
        unreadable: 0,
    };
    assert_eq!(outcome, RekeyOutcome::Finished(expected));
    is_whole(store, &details_keys(NEW, &[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_leaves_no_key_under_the_former_details_key_in_the_file() {
    let store = TestStore::sqlite();
    {
        let service = store.service().await;
        append_about(&service, &["NUGWI"]).await;
        service.closer.close().await;
    }
    let wrapped = store.newest_subject_key().await;
    let holds_key = |bytes: Vec<u8>| bytes.windows(wrapped.len()).any(|part| part == wrapped);
    assert!(holds_key(store.every_byte().await));
    run(&store, details_keys(NEW, &[OLD])).await.unwrap();
    assert!(!holds_key(store.every_byte().await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_rotation_removes_the_former_keys_that_a_reader_kept_in_the_log() {
    let store = TestStore::sqlite();
    let service = store.service().await;
    append_about(&service, &["NUGWI"]).await;
    let wrapped = store.newest_subject_key().await;
    let holds_key = |bytes: Vec<u8>| bytes.windows(wrapped.len()).any(|part| part == wrapped);
    // While another connection is open, the log is not removed when a process closes its connections.
    let mut other = SqliteConnection::connect(&store.url).await.unwrap();
    let mut reader = SqliteConnection::connect(&store.url).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    let count = "SELECT count(*) FROM record";
    let _: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut *reading)
        .await
        .unwrap();
    let _: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut other)
        .await
        .unwrap();
    service.closer.close().await;
    run(&store, details_keys(NEW, &[OLD])).await.unwrap();
    assert!(holds_key(store.every_byte().await));
    reading.rollback().await.unwrap();
    reader.close().await.unwrap();
    let again = run(&store, details_keys(NEW, &[OLD])).await.unwrap();
    assert_eq!(again, RekeyOutcome::NotNeeded { unreadable: 0 });
    assert!(!holds_key(store.every_byte().await));
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_gives_up_while_keys_are_added_under_the_former_details_key() {
    let store = TestStore::sqlite();
    let service = store.service().await;
    append_about(&service, &["NUGWI"]).await;
    service.closer.close().await;
    let put_back = "CREATE TRIGGER put_back AFTER UPDATE OF wrapped ON data_subject_key BEGIN
        UPDATE data_subject_key SET wrapped = OLD.wrapped WHERE tag = NEW.tag; END";
    store.execute(put_back).await.unwrap();
    let error = run(&store, details_keys(NEW, &[OLD])).await.unwrap_err();
    assert!(matches!(error, Error::FormerKeyInUse), "{error}");

    store.execute("DROP TRIGGER put_back").await.unwrap();
    run(&store, details_keys(NEW, &[OLD])).await.unwrap();
    let found = details(&store, details_keys(NEW, &[]), "NUGWI").await;
    assert!(matches!(found.as_slice(), [RecordDetails::Open(_)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_does_not_exist_is_not_created() {
    let store = TestStore::sqlite();
    let error = run(&store, details_keys(NEW, &[OLD])).await.unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    let path = store.url.strip_prefix("sqlite:").unwrap();
    assert!(!Path::new(path).exists());
}
