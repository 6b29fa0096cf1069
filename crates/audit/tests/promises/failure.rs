//! Tests of failures of the store: every append fails in time, and works again once the store has recovered.

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

/// Maximum time of an append on any store. On a store of usual speed, the limit is less than a second, but a test cannot know the
/// speed of its machine. The test `a5_an_append_that_the_writer_does_not_answer_fails_within_a_second` and the tests of
/// `wardgate_rpc::LatencyLimit` check that limit with a paused clock.
pub(crate) const AT_MOST: Duration = Duration::from_secs(5);

/// Appends all records at once. Each append must fail with the right error and in time.
async fn all_are_refused(service: &TestService, records: &[Record]) {
    join_all(records.iter().map(async |record| {
        let started = Instant::now();
        let error = service.audit.append(record, false).await.unwrap_err();
        assert_eq!(error.reason(), ErrorReason::NotDurable);
        assert!(started.elapsed() < AT_MOST, "{:?}", started.elapsed());
    }))
    .await;
}

/// Checks one failure from its beginning in `fail` to its end in `mend`.
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
    assert!(cause.contains("does not accept records: "), "{cause}");
    all_are_refused(service, &records).await;

    mend().await;
    service.ready().await;
    let mut sequences = Vec::new();
    for record in &records {
        let receipt = service.audit.append(record, true).await.unwrap();
        sequences.push(receipt.sequence());
    }
    // A write that was only slow has stored its records, in the order of their arrival.
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

    // This write takes longer than a store of usual speed is allowed.
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
        // The lock lasts longer than a write may take.
        tokio::time::sleep(Duration::from_secs(5)).await;
        lock.rollback().await.unwrap();
    };
    let (service, ()) = tokio::join!(store.service(), unlock);
    let record = outcome(&subject(), Status::Ok);
    service.audit.append(&record, false).await.unwrap();
}

/// Starts the service with a faulty line to its store.
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
    Box::pin(no_record_over(Line::Cut)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_no_record_while_the_network_is_silent() {
    Box::pin(no_record_over(Line::Silent)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_no_record_while_the_database_is_read_only() {
    let Some(store) = TestStore::postgres().await else {
        return;
    };
    let mut service = store.service().await;
    let mut readiness = service.readiness.clone();
    let mut names_the_cause = async || {
        let named = readiness.wait_for(|state| {
            let Readiness::NotReady(cause) = state else {
                return false;
            };
            cause.contains("in a read-only transaction")
        });
        let named = tokio::time::timeout(Duration::from_mins(1), named).await;
        drop(named.expect("readiness names the cause").unwrap());
    };
    let database = store.url.rsplit_once('/').unwrap().1;
    let set = async |setting: &str| {
        // Existing connections would keep the old setting, so they are closed.
        let statement = format!(
            "SET transaction_read_only = off; ALTER DATABASE {database} {setting};
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()"
        );
        store.execute(&statement).await.unwrap();
    };
    fails_closed_and_recovers(
        &mut service,
        &store,
        async || set("SET default_transaction_read_only = on").await,
        async || {
            names_the_cause().await;
            set("RESET default_transaction_read_only").await;
        },
    )
    .await;
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

/// Environment variable with the directory in which a file system is mounted, in a process with its own mount namespace.
const MOUNTED_IN: &str = "WARDGATE_TEST_MOUNTED_IN";

/// Runs the test `name` again in the mount namespace that `unshare` creates with these options. There, it calls `body` with a
/// directory in which the command `mount` has mounted a file system.
fn on_its_own_file_system(name: &str, namespace: &[&str], mount: &str, body: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(MOUNTED_IN) {
        return body(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", script]);
        command
            .arg(std::env::current_exe().unwrap())
            .arg(dir.path())
            .arg(name)
            .env(MOUNTED_IN, dir.path());
        command.status().is_ok_and(|status| status.success())
    };
    if run(mount) {
        let again = format!(r#"{mount} && exec "$0" --exact "$2""#);
        assert!(run(&again));
        return;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "`unshare {}` must give a namespace where `{mount}` works",
        namespace.join(" ")
    );
    eprintln!("skipped: this machine gives no namespace with such a file system");
}

/// Runs `body` with a file system of two megabytes.
pub(crate) fn on_a_file_system_of_two_megabytes(name: &str, body: impl FnOnce(&Path)) {
    let namespace = ["--map-root-user", "--mount"];
    let mount = r#"mount -t tmpfs -o size=2m none "$1""#;
    on_its_own_file_system(name, &namespace, mount, body);
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

/// Creates a file system in the file `image`, and mounts it as `disk`.
const DISK_IN_A_FILE: &str = r#"cd "$1" && mkdir -p disk && truncate -s 16M image && mkfs.ext4 -q -F image && mount -o loop image disk"#;

#[test]
fn p2_no_record_on_a_disk_that_became_read_only() {
    let name = "failure::p2_no_record_on_a_disk_that_became_read_only";
    on_its_own_file_system(name, &["--mount"], DISK_IN_A_FILE, |dir| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(on_a_disk_that_becomes_read_only(dir));
    });
}

fn mount(arguments: &[&str], dir: &Path) {
    let mut command = Command::new("mount");
    let status = command.args(arguments).current_dir(dir).status();
    assert!(status.unwrap().success(), "mount {arguments:?}");
}

async fn on_a_disk_that_becomes_read_only(dir: &Path) {
    let url = format!("sqlite:{}", dir.join("disk/audit.sqlite").display());
    let start = async || TestService::start(&url, wardgate_domain::Ambient::system(), 60).await;
    let service = start().await;
    let first = outcome(&subject(), Status::Ok);
    let before = service.audit.append(&first, false).await.unwrap();

    // The file system does the same by itself when its disk fails, even if files are open.
    mount(&["-o", "remount,abort", "disk"], dir);
    let records: Vec<_> = (0..64).map(|_| outcome(&subject(), Status::Ok)).collect();
    all_are_refused(&service, &records).await;
    all_are_refused(&service, &records).await;
    let Readiness::NotReady(cause) = service.readiness.borrow().clone() else {
        panic!("readiness tells of the failure")
    };
    assert!(cause.contains("readonly database"), "{cause}");
    drop(service);

    // To repair the disk, an operator has to unmount it.
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let unmounted = async {
        while !Command::new("umount")
            .arg(dir.join("disk"))
            .status()
            .unwrap()
            .success()
        {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), unmounted)
        .await
        .expect("nothing is open any more");
    mount(&["-o", "loop", "image", "disk"], dir);
    let service = start().await;
    let again = service.audit.append(&first, true).await.unwrap();
    assert_eq!(again, before, "what was acknowledged is there");
    for (record, sequence) in records.iter().zip(1..) {
        let receipt = service.audit.append(record, true).await.unwrap();
        assert_eq!(
            receipt.sequence(),
            sequence,
            "what was refused left no trace"
        );
    }
}
