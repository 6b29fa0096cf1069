//! Tests of the second copy: an acknowledged record is durable in two places, and a record in only one place is not
//! acknowledged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tempfile::TempDir;
use wardgate_audit::{CallingProcesses, Config, CopyProblem, Error, RecordReader, Verifier};
use wardgate_domain::{Ambient, Receipt, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::Readiness;
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Signer, TrustPolicy};

use crate::failure::{AT_MOST, on_a_file_system_of_two_megabytes};
use crate::support::{TestService, TestStore, keys, log_key, on_both_stores, outcome, subject};

on_both_stores! {
    what_is_acknowledged_is_in_both_places
    a_second_copy_begins_with_what_a_kept_checkpoint_covers
    processes_on_one_store_share_a_second_copy
    p2_no_record_while_the_second_copy_is_gone
    a_start_adds_what_the_second_copy_lacks
    a_second_copy_with_another_record_is_a_fork_and_nothing_starts
    a_second_copy_with_more_records_than_the_store_is_no_copy_of_it
}

const ORIGIN: &str = "example.com/audit";

/// Creates an empty directory with the marker file of a second copy.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("wardgate-second-copy"), "").unwrap();
    directory
}

fn config(url: &str, copy: &Path) -> Config {
    Config {
        second_copy_dir: Some(copy.to_owned()),
        log_origin: Some(ORIGIN.to_owned()),
        ..Config::for_store(url)
    }
}

async fn service(url: &str, copy: &Path) -> TestService {
    let callers = CallingProcesses::OtherProcesses;
    TestService::start_as(config(url, copy), callers, None, Ambient::system()).await
}

/// Returns the error with which the service fails to start.
async fn refusal(store: &TestStore, copy: &Path) -> Error {
    let callers = CallingProcesses::OtherProcesses;
    let config = config(&store.url, copy);
    let started = wardgate_audit::service(config, keys(), callers, None, Ambient::system());
    Box::pin(started).await.err().expect("it does not start")
}

async fn append(service: &TestService, count: usize) -> Vec<Receipt> {
    let appends = (0..count).map(async |_| {
        let record = outcome(&subject(), Status::Ok);
        service.audit.append(&record, false).await.unwrap()
    });
    join_all(appends).await
}

/// Returns the lines of all files, as `{"sequence":…,"record":…}`.
fn lines(copy: &Path) -> Vec<String> {
    let files = files(copy).into_iter();
    let texts = files.map(|file| fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn files(copy: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(copy)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    files
}

/// Returns every record of the store, in the form of a line of the copy.
async fn expected_lines(store: &TestStore) -> Vec<String> {
    let records = store.records().await.into_iter().map(|stored| {
        let record = String::from_utf8(stored.record.to_vec()).unwrap();
        format!(r#"{{"sequence":{},"record":{record}}}"#, stored.sequence)
    });
    records.collect()
}

fn verifier() -> Verifier {
    let log = Signer::from_pkcs8(ORIGIN, &log_key(1)).unwrap();
    Verifier {
        policy: TrustPolicy::of_log(log.verifier_key().clone()),
        since: None,
        receipt: None,
    }
}

async fn what_is_acknowledged_is_in_both_places(store: &TestStore) {
    let copy = directory();
    let service = service(&store.url, copy.path()).await;
    append(&service, 1).await;
    assert_eq!(lines(copy.path()), expected_lines(store).await);
    append(&service, 300).await;
    assert_eq!(lines(copy.path()), expected_lines(store).await);
    service.closer.close().await;
    let verified = verifier().verify(copy.path(), |_, _| ()).unwrap();
    assert_eq!(verified.checkpoint.head.size, 301);

    let reader = RecordReader::open(&store.url, &DatabaseSettings::default()).await;
    let compared = reader.unwrap().compare_second_copy(copy.path()).await;
    assert_eq!(compared.unwrap(), (301, 301));
}

async fn a_second_copy_begins_with_what_a_kept_checkpoint_covers(store: &TestStore) {
    let (copy, other) = (directory(), directory());
    let started = service(&store.url, copy.path()).await;
    append(&started, 3).await;
    started.closer.close().await;
    let kept = other.path().join("kept");
    fs::copy(copy.path().join("checkpoint"), &kept).unwrap();
    let started = service(&store.url, copy.path()).await;
    append(&started, 2).await;
    started.closer.close().await;
    let since = Verifier {
        since: Some(kept),
        ..verifier()
    };
    let verified = since.verify(copy.path(), |_, _| ()).unwrap();
    assert_eq!(verified.checkpoint.head.size, 5);

    // Another log has the same key and the same size.
    let forked = TestStore::sqlite();
    let started = service(&forked.url, other.path()).await;
    append(&started, 5).await;
    started.closer.close().await;
    let refused = since.verify(other.path(), |_, _| ()).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("two histories"), "{refused}");
}

async fn processes_on_one_store_share_a_second_copy(store: &TestStore) {
    let copy = directory();
    let first = service(&store.url, copy.path()).await;
    append(&first, 3).await;
    let second = service(&store.url, copy.path()).await;
    append(&second, 3).await;
    let receipts = append(&first, 1).await;
    // The files of a process contain the records that it acknowledged, and all records before them.
    let own = fs::read_to_string(&files(copy.path())[0]).unwrap();
    let own: Vec<_> = own.lines().collect();
    assert_eq!(own, expected_lines(store).await);
    assert_eq!(receipts[0].sequence(), 6);
    second.closer.close().await;
    first.closer.close().await;
    verifier().verify(copy.path(), |_, _| ()).unwrap();
}

async fn p2_no_record_while_the_second_copy_is_gone(store: &TestStore) {
    let copy = directory();
    let mut service = service(&store.url, copy.path()).await;
    append(&service, 1).await;
    let elsewhere = copy.path().with_extension("elsewhere");
    fs::rename(copy.path(), &elsewhere).unwrap();
    // The directory is empty, like a mount point without its disk.
    fs::create_dir(copy.path()).unwrap();

    let records: Vec<_> = (0..8).map(|_| outcome(&subject(), Status::Ok)).collect();
    for record in &records {
        let started = Instant::now();
        let error = service.audit.append(record, false).await.unwrap_err();
        assert_eq!(error.reason(), ErrorReason::NotDurable);
        assert!(started.elapsed() < AT_MOST);
    }
    let Readiness::NotReady(cause) = service.readiness.borrow().clone() else {
        panic!("readiness tells of the failure")
    };
    assert!(cause.contains("audit.second_copy_dir: "), "{cause}");
    assert!(cause.contains("its disk is not mounted"), "{cause}");
    assert!(fs::read_dir(copy.path()).unwrap().next().is_none());

    fs::remove_dir(copy.path()).unwrap();
    fs::rename(&elsewhere, copy.path()).unwrap();
    service.ready().await;
    assert_eq!(lines(copy.path()), expected_lines(store).await);
    for record in &records {
        service.audit.append(record, true).await.unwrap();
    }
    assert_eq!(lines(copy.path()), expected_lines(store).await);
    assert_eq!(store.records().await.len(), 9);

    // A new disk in the same place gets all records.
    fs::rename(copy.path(), copy.path().with_extension("broken")).unwrap();
    let refused = outcome(&subject(), Status::Ok);
    service.audit.append(&refused, false).await.unwrap_err();
    fs::create_dir(copy.path()).unwrap();
    fs::write(copy.path().join("wardgate-second-copy"), "").unwrap();
    service.ready().await;
    service.audit.append(&refused, true).await.unwrap();
    assert_eq!(lines(copy.path()), expected_lines(store).await);
}

async fn a_start_adds_what_the_second_copy_lacks(store: &TestStore) {
    let copy = directory();
    append(&service(&store.url, copy.path()).await, 2).await;
    // The store and the copy are as a process leaves them that is killed between its two writes, or during the second.
    append(&store.service().await, 600).await;
    let file = &files(copy.path())[0];
    let whole = fs::read_to_string(file).unwrap();
    fs::write(file, format!("{whole}{{\"sequence\":2,\"rec")).unwrap();

    let started = service(&store.url, copy.path()).await;
    assert!(started.readiness.borrow().is_ready());
    let mut all = lines(copy.path());
    assert_eq!(all.remove(2), r#"{"sequence":2,"rec"#);
    assert_eq!(all, expected_lines(store).await);
    started.closer.close().await;
    verifier().verify(copy.path(), |_, _| ()).unwrap();

    // An empty disk gets all records.
    let empty = directory();
    drop(service(&store.url, empty.path()).await);
    assert_eq!(lines(empty.path()), expected_lines(store).await);
    let unmarked = tempfile::tempdir().unwrap();
    let refused = refusal(store, unmarked.path()).await.to_string();
    assert!(
        refused.contains("the file `wardgate-second-copy` does not exist"),
        "{refused}"
    );
}

async fn a_second_copy_with_another_record_is_a_fork_and_nothing_starts(store: &TestStore) {
    let copy = directory();
    let started = service(&store.url, copy.path()).await;
    append(&started, 5).await;
    started.closer.close().await;
    let file = &files(copy.path())[0];
    let whole = fs::read_to_string(file).unwrap();
    fs::write(
        file,
        whole
            .replacen("Doctor", "Hacker", 4)
            .replacen("Hacker", "Doctor", 3),
    )
    .unwrap();
    let refused = refusal(store, copy.path()).await;
    let Error::SecondCopy { problem, .. } = &refused else {
        panic!("{refused}")
    };
    assert!(
        matches!(problem, CopyProblem::Fork { sequence: 3 }),
        "{refused}"
    );
    let verified = verifier().verify(copy.path(), |_, _| ()).unwrap_err();
    assert!(
        verified.to_string().contains("do not match the root"),
        "{verified}"
    );

    fs::write(file, &whole).unwrap();
    // Another file has the same records, except for one that is changed.
    let other = copy.path().join("records-00000000000000000001-7.jsonl");
    let later = &whole[whole.find('\n').unwrap() + 1..];
    fs::write(&other, later.replacen("Doctor", "Hacker", 1)).unwrap();
    let verified = verifier()
        .verify(copy.path(), |_, _| ())
        .unwrap_err()
        .to_string();
    assert!(
        verified.contains("record 1 differs from the one"),
        "{verified}"
    );
    fs::write(&other, later).unwrap();
    verifier().verify(copy.path(), |_, _| ()).unwrap();
    // The first file is missing.
    fs::remove_file(file).unwrap();
    let verified = verifier()
        .verify(copy.path(), |_, _| ())
        .unwrap_err()
        .to_string();
    assert!(verified.contains("no file contains record 0"), "{verified}");
}

async fn a_second_copy_with_more_records_than_the_store_is_no_copy_of_it(store: &TestStore) {
    let copy = directory();
    append(&service(&store.url, copy.path()).await, 3).await;
    let file = &files(copy.path())[0];
    let whole = fs::read_to_string(file).unwrap();
    let more = whole
        .lines()
        .last()
        .unwrap()
        .replacen("\"sequence\":2", "\"sequence\":3", 1);
    fs::write(file, format!("{whole}{more}\n")).unwrap();
    let refused = refusal(store, copy.path()).await;
    let Error::SecondCopy { problem, .. } = &refused else {
        panic!("{refused}")
    };
    let ahead = CopyProblem::Ahead {
        copied: 4,
        stored: 3,
    };
    assert_eq!(problem.to_string(), ahead.to_string());
}

#[test]
fn p2_no_record_while_the_disk_of_the_second_copy_is_full() {
    on_a_file_system_of_two_megabytes(
        "second_copy::p2_no_record_while_the_disk_of_the_second_copy_is_full",
        |disk| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(on_a_small_disk(disk));
        },
    );
}

async fn on_a_small_disk(disk: &Path) {
    let store = TestStore::sqlite();
    fs::write(disk.join("wardgate-second-copy"), "").unwrap();
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![0; 1_500_000]).unwrap();
    let mut service = service(&store.url, disk).await;
    let mut acknowledged = 0;
    let refused = loop {
        let record = outcome(&subject(), Status::Ok);
        match service.audit.append(&record, false).await {
            Ok(_) => acknowledged += 1,
            Err(error) => {
                assert_eq!(error.reason(), ErrorReason::NotDurable);
                break record;
            }
        }
    };
    assert!(acknowledged > 10, "there was room for some");
    assert_eq!(
        store.records().await.len(),
        acknowledged + 1,
        "the store has room"
    );
    let Readiness::NotReady(cause) = service.readiness.borrow().clone() else {
        panic!("readiness tells of the failure")
    };
    assert!(cause.contains("No space left on device"), "{cause}");

    fs::remove_file(&ballast).unwrap();
    service.ready().await;
    service.audit.append(&refused, true).await.unwrap();
    assert_eq!(
        lines(disk),
        expected_lines(&store).await,
        "what did not fit left no trace"
    );
    // The free space of the disk of the copy counts, like that of the disk of the store.
    let room = config(&store.url, disk).room();
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default()).await;
    let growth = reader.unwrap().growth(&room, Ambient::system().now()).await;
    assert!(growth.unwrap().free.is_some_and(|free| free < 2_100_000));
    tokio::time::timeout(Duration::from_secs(30), service.closer.close())
        .await
        .unwrap();
}
