use std::sync::mpsc;

use wardgate_domain::{Ambient, Digest, Event, Record, RefusalCount, Refusals};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::TestDatabase;
use wardgate_transparency::CompactTree;

use super::*;
use crate::MacKey;
use crate::store::{StoreReader, TileRoot, prepare};

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
    RecordEntry::from_record(&Record { time, event }, &key, None).unwrap()
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
    disk.block_until(held).await;
    let slow = queue.append(entry(1), false).await;
    assert!(matches!(slow, Err(Error::NotDurable)));
    let mut readiness = queue.readiness();
    assert!(!readiness.borrow().is_ready());
    assert_eq!(reader.head().await.unwrap().size, 1, "the store has it");
    release.send(()).unwrap();
    readiness.wait_for(Readiness::is_ready).await.unwrap();

    // This write takes longer than a store of usual speed is allowed.
    let (release, held) = mpsc::channel();
    disk.block_until(held).await;
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

/// Returns the first growth of a tree, by the records with these leaf hashes.
fn first_growth(leaves: &[Digest]) -> TreeGrowth {
    let mut tree = CompactTree::default();
    let from = tree.head();
    for leaf in leaves {
        tree.append(*leaf.as_bytes(), |_, _| {});
    }
    TreeGrowth {
        from,
        to: tree.head(),
        // No tile is full yet, but the store accepts any.
        tile_roots: vec![TileRoot {
            level: 1,
            position: leaves.len() as u64,
            root: *Digest::compute(b"tile").as_bytes(),
        }],
        checkpoint: Some("checkpoint".to_owned()),
    }
}

/// Returns the writer of a new store, which has the record `entry(1)`.
async fn start_writer(database: &TestDatabase) -> (AppendQueue, Digest) {
    let settings = DatabaseSettings::default();
    let address = Address::new(&database.url(), &settings).unwrap();
    prepare(&address, &settings).await.unwrap();
    let queue = start(address, WRITE_LIMIT, None).await.unwrap();
    let first = queue.append(entry(1), false).await.unwrap();
    assert_eq!(first.sequence(), 0);
    (queue, first.leaf_hash())
}

/// Returns the number of transactions in the write-ahead log of a SQLite database: the number of frames whose header has the
/// size of the database after a commit (sqlite.org/fileformat2.html, section 4.1).
fn commits(database: &TestDatabase) -> usize {
    let path = database.url().trim_start_matches("sqlite:").to_owned() + "-wal";
    let log = std::fs::read(path).unwrap();
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap());
    let frames = log[32..].chunks_exact(24 + usize::try_from(page).unwrap());
    // Frames of an earlier use of the file have other salts.
    let current = frames.filter(|frame| frame[8..16] == log[16..24]);
    current.filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn the_tree_grows_in_the_transaction_of_the_next_record() {
    for database in TestDatabase::each_store("audit").await {
        let (queue, leaf) = start_writer(&database).await;
        let is_sqlite = database.is_sqlite();
        let before = is_sqlite.then(|| commits(&database));
        let growing = queue.clone();
        let growth = tokio::spawn(async move { growing.grow(first_growth(&[leaf])).await });
        // Each yield lets all other tasks of this thread run, so the writer has received the growth before there is a record.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!growth.is_finished());
        assert_eq!(queue.append(entry(2), false).await.unwrap().sequence(), 1);
        assert!(growth.await.unwrap().unwrap());
        if let Some(before) = before {
            assert_eq!(commits(&database), before + 1);
        } else {
            let together = "SELECT count(*) FROM audit.tree, audit.record WHERE tree.xmin = record.xmin AND sequence = 1";
            assert_eq!(database.number(together).await, 1);
        }
    }
}

#[tokio::test]
async fn the_tree_grows_without_a_record_and_beside_one_that_is_refused() {
    for database in TestDatabase::each_store("audit").await {
        let (queue, leaf) = start_writer(&database).await;
        let of_call = || RecordEntry {
            call_id: Some("call".to_owned()),
            ..entry(2)
        };
        let second = queue.append(of_call(), false).await.unwrap().leaf_hash();

        // Another record of the same call and event is refused, which undoes the transaction.
        let one = first_growth(&[leaf]);
        let growth = queue.grow(one.clone());
        let (grown, refused) = tokio::join!(growth, queue.append(of_call(), false));
        assert!(grown.unwrap());
        assert!(matches!(refused, Err(Error::AlreadyRecorded { .. })));

        let both = first_growth(&[leaf, second]);
        let from_one = TreeGrowth {
            from: one.to,
            ..both.clone()
        };
        let again = TreeGrowth {
            from: both.to,
            ..both.clone()
        };
        // The stored tree is larger than the one that this growth begins with, which does not affect the record.
        let (grown, appended) = tokio::join!(queue.grow(both), queue.append(entry(3), false));
        assert!(!grown.unwrap());
        assert_eq!(appended.unwrap().sequence(), 2);
        assert!(queue.grow(from_one).await.unwrap());

        // The store refuses a growth whose tile it has already, and stores the record.
        let (grown, appended) = tokio::join!(queue.grow(again), queue.append(entry(4), false));
        assert!(matches!(grown, Err(Error::NotDurable)));
        assert_eq!(appended.unwrap().sequence(), 3);
    }
}
