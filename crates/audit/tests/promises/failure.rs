//! What happens when the store fails: every append says so in time, and all goes on once the store is back.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::future::join_all;
use sqlx::{Connection, SqliteConnection};
use wardgate_domain::{Record, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::Readiness;

use crate::faulty_line::{FaultyLine, Line};
use crate::support::{TestService, TestStore, outcome, subject};

/// The longest that an append takes on any store. On a fast one it takes less than a second; a test cannot know how fast
/// the machine under it is, so `wardgate_rpc::LatencyLimit` has that bound in its own tests.
pub(crate) const AT_MOST: Duration = Duration::from_secs(5);

/// Appends all at once; each must fail as it should and in time.
async fn all_are_refused(service: &TestService, records: &[Record]) {
    join_all(records.iter().map(async |record| {
        let started = Instant::now();
        let error = service.audit.append(record, false).await.unwrap_err();
        assert_eq!(error.reason(), ErrorReason::NotDurable);
        assert!(started.elapsed() < AT_MOST, "{:?}", started.elapsed());
    }))
    .await;
}

/// One failure from beginning to end, between `fail` and `mend`.
async fn fails_closed_and_recovers(
    service: &mut TestService,
    store: &TestStore,
    fail: impl AsyncFnOnce(),
    mend: impl AsyncFnOnce(),
) {
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    fail().await;
    let records: Vec<_> = (0..64).map(|_| outcome(&subject(), Status::Ok)).collect();
    all_are_refused(service, &records).await;
    let Readiness::NotReady(cause) = service.readiness.borrow().clone() else {
        panic!("readiness tells of the failure")
    };
    assert!(cause.contains("takes no records: "), "{cause}");
    all_are_refused(service, &records).await;

    mend().await;
    service.ready().await;
    let mut sequences = Vec::new();
    for record in &records {
        let receipt = service.audit.append(record, true).await.unwrap();
        sequences.push(receipt.sequence());
    }
    // A write that was only slow has stored its records, in the order in which they reached it.
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(1..=64));
    assert_eq!(
        store.records().await.len(),
        65,
        "nothing twice, nothing missing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_no_record_while_another_program_holds_the_file() {
    let store = TestStore::sqlite();
    let mut service = store.service().await;
    let mut other = SqliteConnection::connect(&store.url).await.unwrap();
    let other = tokio::sync::Mutex::new(&mut other);
    let run = async |statement: &'static str| {
        sqlx::query(statement)
            .execute(&mut **other.lock().await)
            .await
            .unwrap();
    };
    fails_closed_and_recovers(
        &mut service,
        &store,
        async || run("BEGIN IMMEDIATE").await,
        async || run("ROLLBACK").await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_became_slow_refuses_once_and_then_has_the_time_it_needs() {
    let store = TestStore::sqlite();
    let mut service = store.service().await;
    let mut other = SqliteConnection::connect(&store.url).await.unwrap();
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let first = outcome(&subject(), Status::Ok);
    let slow = service.audit.append(&first, false).await.unwrap_err();
    assert_eq!(slow.reason(), ErrorReason::NotDurable);
    lock.rollback().await.unwrap();
    service.ready().await;

    // Longer than a store may take that was never seen to be slow.
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let second = outcome(&subject(), Status::Ok);
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(800)).await;
        lock.rollback().await.unwrap();
    };
    let (appended, ()) = tokio::join!(service.audit.append(&second, false), unlock);
    appended.unwrap();
    assert!(service.readiness.borrow().is_ready());
    service.audit.append(&first, true).await.unwrap();
    assert_eq!(store.records().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_a_store_that_another_program_has_locked() {
    let store = TestStore::sqlite();
    let path = store.url.strip_prefix("sqlite:").unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    let lock = other.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let unlock = async {
        // Longer than a write may take.
        tokio::time::sleep(Duration::from_secs(5)).await;
        lock.rollback().await.unwrap();
    };
    let (service, ()) = tokio::join!(store.service(), unlock);
    let record = outcome(&subject(), Status::Ok);
    service.audit.append(&record, false).await.unwrap();
}

/// The service over a line, and the line.
async fn over_a_line(store: &TestStore) -> (TestService, FaultyLine) {
    let (before, authority_and_path) = store.url.rsplit_once('@').expect("the URL names a user");
    let (server, path) = authority_and_path.split_once('/').unwrap();
    let line = FaultyLine::to(server.to_owned()).await;
    let url = format!("{before}@{}/{path}", line.address);
    (
        TestService::start(&url, wardgate_domain::Ambient::system(), 60).await,
        line,
    )
}

async fn no_record_over(fault: Line) {
    let Some(store) = TestStore::postgres().await else {
        return;
    };
    let (mut service, line) = over_a_line(&store).await;
    let set = async |to| line.set(to);
    let (fail, mend) = (async || set(fault).await, async || set(Line::Whole).await);
    fails_closed_and_recovers(&mut service, &store, fail, mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_no_record_while_the_server_is_gone() {
    no_record_over(Line::Cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_no_record_while_the_network_is_silent() {
    no_record_over(Line::Silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_a_failure_that_a_retry_settles() {
    let Some(store) = TestStore::postgres().await else {
        return;
    };
    let (mut service, line) = over_a_line(&store).await;
    service
        .audit
        .append(&outcome(&subject(), Status::Ok), false)
        .await
        .unwrap();
    line.set(Line::Unanswered);
    let record = outcome(&subject(), Status::Ok);
    all_are_refused(&service, std::slice::from_ref(&record)).await;
    assert_eq!(store.records().await.len(), 2, "it was stored all the same");

    line.set(Line::Whole);
    service.ready().await;
    let receipt = service.audit.append(&record, true).await.unwrap();
    assert_eq!(receipt.sequence(), 1);
    assert_eq!(store.records().await.len(), 2);
}

/// Names the directory of the small file system, in the process that has one.
const SMALL_DISK: &str = "WARDGATE_TEST_SMALL_DISK";

/// Runs the test `name` once more, in a mount namespace with a file system of two megabytes: there it is `body`.
pub(crate) fn on_a_file_system_of_two_megabytes(name: &str, body: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(SMALL_DISK) {
        return body(Path::new(&dir));
    }
    let possible = Command::new("unshare")
        .args(["--map-root-user", "--mount", "true"])
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "`unshare --map-root-user --mount` must work"
        );
        eprintln!("skipped: this machine gives no mount namespace");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let again = r#"mount -t tmpfs -o size=2m none "$1" && exec "$0" --exact "$2""#;
    let ended = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", again])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .arg(name)
        .env(SMALL_DISK, dir.path())
        .status();
    assert!(ended.unwrap().success());
}

#[test]
fn p2_no_record_on_a_full_disk() {
    on_a_file_system_of_two_megabytes("failure::p2_no_record_on_a_full_disk", |dir| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(on_a_small_disk(dir));
    });
}

async fn on_a_small_disk(dir: &Path) {
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![0; 500_000]).unwrap();
    let url = format!("sqlite:{}", dir.join("audit.sqlite").display());
    let mut service = TestService::start(&url, wardgate_domain::Ambient::system(), 60).await;
    let mut stored = 0;
    let refused = loop {
        let record = outcome(&subject(), Status::Ok);
        let started = Instant::now();
        match service.audit.append(&record, false).await {
            Ok(receipt) => assert_eq!(receipt.sequence(), stored),
            Err(error) => {
                assert_eq!(error.reason(), ErrorReason::NotDurable);
                assert!(started.elapsed() < AT_MOST);
                break record;
            }
        }
        stored += 1;
    };
    assert!(stored > 10, "there was room for some");

    std::fs::remove_file(&ballast).unwrap();
    service.ready().await;
    let receipt = service.audit.append(&refused, true).await.unwrap();
    assert_eq!(receipt.sequence(), stored, "what was refused left no trace");
}
