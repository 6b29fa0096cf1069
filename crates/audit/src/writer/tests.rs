use std::sync::mpsc;

use wardgate_domain::{Ambient, Event, Record, RefusalCount, Refusals};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::TestDatabase;

use super::*;
use crate::MacKey;
use crate::store::{StoreReader, prepare};

fn entry(count: u64) -> RecordEntry {
    let time = Ambient::system().now();
    let counts = vec![RefusalCount {
        reason: "token_expired".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        subject: String::new(),
        count,
    }];
    let event = Event::Refusals(Refusals {
        window_start: time,
        counts,
    });
    let key = MacKey::from_bytes(&[7; 32]);
    RecordEntry::of(&Record { time, event }, &key, None).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_second_copy_refuses_once_and_then_has_the_time_it_needs() {
    let database = TestDatabase::sqlite("");
    let settings = DatabaseSettings::default();
    let address = Address::new(&database.url(), &settings).unwrap();
    prepare(&address, &settings).await.unwrap();
    let reader = StoreReader::new(&address, &settings);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("wardgate-second-copy"), "").unwrap();
    let copy = SecondCopy::open(directory.path(), reader.clone());
    let copy = copy.await.unwrap();
    let disk = copy.disk();
    let queue = start(address, WRITE_LIMIT, Some(copy)).await.unwrap();

    let (release, held) = mpsc::channel();
    disk.hold(held).await;
    let slow = queue.append(entry(1), false).await;
    assert!(matches!(slow, Err(Error::NotDurable)));
    let mut readiness = queue.readiness();
    assert!(!readiness.borrow().is_ready());
    assert_eq!(reader.head().await.unwrap().size, 1, "the store has it");
    release.send(()).unwrap();
    readiness.wait_for(Readiness::is_ready).await.unwrap();

    // This write takes longer than a store of usual speed is allowed.
    let (release, held) = mpsc::channel();
    disk.hold(held).await;
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        release.send(()).unwrap();
    };
    let (appended, ()) = tokio::join!(queue.append(entry(2), false), unlock);
    assert_eq!(appended.unwrap().sequence(), 1);
    assert!(readiness.borrow().is_ready());
    let written = std::fs::read_to_string(
        directory
            .path()
            .join("records-00000000000000000000-0.jsonl"),
    );
    assert_eq!(written.unwrap().lines().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a5_an_append_that_the_writer_does_not_answer_fails_within_a_second() {
    let (sender, _jobs) = tokio::sync::mpsc::channel(QUEUE);
    let (_ready, readiness) = watch::channel(Readiness::Ready);
    let (_stored, size) = watch::channel(0);
    let queue = AppendQueue {
        queue: sender,
        readiness,
        size,
        leaves: Arc::default(),
        write_limit: Arc::new(LatencyLimit::new(WRITE_LIMIT, LONGEST_WRITE)),
    };
    let started = tokio::time::Instant::now();
    let refused = queue.append(entry(1), false).await;
    assert!(matches!(refused, Err(Error::NotDurable)));
    let took = started.elapsed();
    assert!(took <= Duration::from_secs(1), "{took:?}");
}
