use futures::future::join_all;
use sqlx::{ConnectOptions, Connection};
use wardgate_domain::Digest;
use wardgate_resilience::LeaseRequest;
use wardgate_testkit::{TestClock, TestDatabase};

use super::sessions::{EACH, IDLE};
use super::streams::ALIVE;
use super::*;

mod approvals;
mod subscriptions;

async fn open(url: &str, ambient: Ambient) -> Result<Arc<Store>, StoreError> {
    Store::open(url, &DatabaseSettings::default(), ambient).await
}

/// Two gateways with the same store and the same clock.
struct TwoReplicas {
    one: Arc<Store>,
    other: Arc<Store>,
    clock: TestClock,
    database: TestDatabase,
}

async fn each() -> Vec<TwoReplicas> {
    let mut all = Vec::new();
    for database in TestDatabase::each_store("gateway").await {
        let clock = TestClock::at(1_800_000_000);
        let ambient = clock.ambient();
        let url = database.url();
        let (one, other) = tokio::join!(open(&url, ambient.clone()), open(&url, ambient.clone()));
        all.push(TwoReplicas {
            one: one.unwrap(),
            other: other.unwrap(),
            clock,
            database,
        });
    }
    all
}

const SESSION: SessionId = SessionId([1; 16]);
const STREAM: StreamId = StreamId([2; 16]);
const MINE: ReplicaId = ReplicaId([3; 16]);
const OTHERS: ReplicaId = ReplicaId([4; 16]);

fn owner() -> Digest {
    Digest::compute(b"owner")
}

fn texts(kept: &StreamPage) -> Vec<&[u8]> {
    kept.events.iter().map(|(_, text)| &text[..]).collect()
}

/// Creates a session with a stream that this replica writes.
async fn begin_stream(store: &Store) {
    store.begin_session(SESSION, owner()).await.unwrap();
    store.beat(MINE).await.unwrap();
    let opened = store
        .open_stream(STREAM, SESSION, MINE, b"request", Some(b"basis"))
        .await;
    assert!(opened.unwrap());
}

async fn read_page(store: &Store, after: i64) -> StreamPage {
    let kept = store.read_stream(STREAM, SESSION, after).await.unwrap();
    kept.expect("there is such a stream")
}

#[tokio::test]
async fn what_is_no_store_is_refused_without_repeating_it() {
    for url in ["", "sqlite:", "mysql://u:canary@h/d", "postgres://[canary"] {
        let error = open(url, Ambient::system()).await.err().unwrap();
        assert!(matches!(error, StoreError::UnknownStore), "{url}");
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_made_and_a_newer_store_are_refused_at_once() {
    let nowhere = open("sqlite:/nowhere/at/all.sqlite", Ambient::system()).await;
    assert!(matches!(nowhere.err(), Some(StoreError::Database(_))));
    for two in each().await {
        let newer = if two.database.is_sqlite() {
            "PRAGMA user_version = 9"
        } else {
            "UPDATE gateway.schema_version SET version = 9"
        };
        two.database.execute(newer).await;
        let refused = open(&two.database.url(), Ambient::system()).await;
        let newer = matches!(
            refused.err(),
            Some(StoreError::Schema(MigrationError::Newer { found: 9, .. }))
        );
        assert!(newer);
    }
}

#[tokio::test]
async fn a_file_that_another_program_has_locked_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sqlite");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut other = options.connect().await.unwrap();
    let lock = other.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let url = format!("sqlite:{}", path.display());
    let opening = tokio::spawn(async move { open(&url, Ambient::system()).await.map(drop) });
    // This is longer than any other operation waits for the store.
    tokio::time::sleep(LIMIT + Duration::from_secs(1)).await;
    assert!(!opening.is_finished());
    lock.rollback().await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u@{}/d", listener.local_addr().unwrap());
    let store = open(&url, Ambient::system()).await.unwrap();
    let began = std::time::Instant::now();
    assert!(
        store
            .use_id_once([1; 16], Timestamp::from_seconds(1))
            .await
            .is_err()
    );
    // The limit is two seconds. The rest is for a busy machine.
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn of_all_who_use_an_id_at_all_replicas_one_is_the_first() {
    for two in each().await {
        let until = two.one.now().plus(Duration::from_secs(60));
        for round in 0..5 {
            let used = [&two.one, &two.other].into_iter().cycle().take(16);
            let used = join_all(used.map(|store| store.use_id_once([round; 16], until))).await;
            let first = used.into_iter().filter(|used| *used.as_ref().unwrap());
            assert_eq!(first.count(), 1);
            assert!(two.other.is_id_used([round; 16]).await.unwrap());
        }
        assert!(!two.one.is_id_used([9; 16]).await.unwrap());
    }
}

#[tokio::test]
async fn a_session_is_known_to_every_replica_but_to_its_owner_alone_until_it_ends() {
    for two in each().await {
        two.one.begin_session(SESSION, owner()).await.unwrap();
        let held = two.other.find_session(SESSION, owner()).await.unwrap();
        assert_eq!(held, Some(SessionSettings { log_level: None }));
        let stranger = Digest::compute(b"stranger");
        let found = two.other.find_session(SESSION, stranger).await.unwrap();
        assert_eq!(found, None);
        two.other.set_log_level(SESSION, "error").await.unwrap();
        let held = two.one.find_session(SESSION, owner()).await.unwrap();
        assert_eq!(held.unwrap().log_level.as_deref(), Some("error"));
        two.other.end_session(SESSION).await.unwrap();
        let held = two.one.find_session(SESSION, owner()).await.unwrap();
        assert_eq!(held, None);
    }
}

#[tokio::test]
async fn a_session_lasts_while_it_is_used_and_an_hour_longer() {
    for two in each().await {
        two.one.begin_session(SESSION, owner()).await.unwrap();
        for _ in 0..3 {
            two.clock
                .advance(IDLE.saturating_sub(Duration::from_secs(1)));
            let held = two.other.find_session(SESSION, owner()).await.unwrap();
            assert!(held.is_some());
        }
        two.clock.advance(IDLE);
        let held = two.one.find_session(SESSION, owner()).await.unwrap();
        assert_eq!(held, None);
        two.one.sweep().await.unwrap();
        let left = two.database.number("SELECT count(*) FROM gateway.session");
        assert_eq!(left.await, 0);
    }
}

#[tokio::test]
async fn with_too_many_sessions_of_an_owner_the_one_unused_for_longest_ends() {
    for two in each().await {
        let id = |number: i64| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_be_bytes());
            SessionId(id)
        };
        let others = Digest::compute(b"another owner");
        two.one.begin_session(SESSION, others).await.unwrap();
        for number in 0..EACH {
            two.one.begin_session(id(number), owner()).await.unwrap();
        }
        two.clock.advance(Duration::from_mins(2));
        let first = two.one.find_session(id(0), owner()).await.unwrap();
        assert!(first.is_some());
        two.one.begin_session(id(EACH), owner()).await.unwrap();
        let count = "SELECT count(*) FROM gateway.session";
        assert_eq!(two.database.number(count).await, EACH + 1);
        for still in [id(0), id(EACH)] {
            let held = two.one.find_session(still, owner()).await.unwrap();
            assert!(held.is_some());
        }
        let held = two.one.find_session(SESSION, others).await.unwrap();
        assert!(held.is_some());
    }
}

#[tokio::test]
async fn the_newest_stream_of_get_is_the_one_that_listens() {
    for two in each().await {
        two.one.begin_session(SESSION, owner()).await.unwrap();
        let (first, second) = ([7; 16], [8; 16]);
        two.one.listen_in_session(SESSION, first).await.unwrap();
        assert!(two.one.listens_in_session(SESSION, first).await.unwrap());
        two.other.listen_in_session(SESSION, second).await.unwrap();
        assert!(!two.one.listens_in_session(SESSION, first).await.unwrap());
        assert!(two.one.listens_in_session(SESSION, second).await.unwrap());
        two.one.end_session(SESSION).await.unwrap();
        assert!(!two.one.listens_in_session(SESSION, second).await.unwrap());
    }
}

#[tokio::test]
async fn what_a_replica_wrote_another_reads_to_the_end() {
    for two in each().await {
        begin_stream(&two.one).await;
        let events = [b"1".to_vec(), b"2".to_vec()];
        let written = two.one.write_stream(STREAM, MINE, 0, &events, false).await;
        assert_eq!(written.unwrap(), WriteResult::Stored);
        let kept = read_page(&two.other, 1).await;
        assert_eq!(texts(&kept), [b"2"]);
        assert_eq!(
            (kept.state, &kept.request[..]),
            (StreamState::GoesOn, &b"request"[..])
        );
        let basis = async |session| {
            let basis = two.other.replay_grant_of_stream(STREAM, session);
            basis.await.unwrap()
        };
        assert_eq!(basis(SESSION).await.as_deref(), Some(&b"basis"[..]));
        assert_eq!(basis(SessionId([9; 16])).await, None, "of another session");
        let last = [b"3".to_vec()];
        two.one
            .write_stream(STREAM, MINE, 2, &last, true)
            .await
            .unwrap();
        let kept = read_page(&two.other, 0).await;
        assert_eq!(texts(&kept), [b"1", b"2", b"3"]);
        assert_eq!(kept.state, StreamState::Ended);
        let more = two.one.write_stream(STREAM, MINE, 3, &last, true).await;
        assert_eq!(more.unwrap(), WriteResult::Gone);
        let other_session = SessionId([9; 16]);
        let kept = two.other.read_stream(STREAM, other_session, 0).await;
        assert!(kept.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_long_stream_is_read_page_by_page() {
    for two in each().await {
        begin_stream(&two.one).await;
        let events = vec![b"x".to_vec(); 40];
        two.one
            .write_stream(STREAM, MINE, 0, &events, true)
            .await
            .unwrap();
        let (mut after, mut pages) = (0, 0);
        loop {
            let kept = read_page(&two.other, after).await;
            after = kept.events.last().map_or(after, |(position, _)| *position);
            pages += 1;
            if kept.state == StreamState::Ended {
                break;
            }
            assert_eq!(kept.state, StreamState::GoesOn);
        }
        assert_eq!((after, pages), (40, 3));
    }
}

#[tokio::test]
async fn a_stream_of_a_replica_that_is_gone_goes_to_one_of_the_others() {
    for two in each().await {
        begin_stream(&two.one).await;
        let calls = two
            .one
            .set_suspended_call(STREAM, MINE, Some(b"call"))
            .await;
        assert_eq!(calls.unwrap(), WriteResult::Stored);
        two.other.beat(OTHERS).await.unwrap();
        let early = two.other.take_over_stream(STREAM, OTHERS).await.unwrap();
        assert!(early.is_none(), "{early:?}");
        two.clock.advance(ALIVE + Duration::from_secs(1));
        two.other.beat(OTHERS).await.unwrap();
        assert_eq!(read_page(&two.other, 0).await.state, StreamState::Orphaned);
        let third = ReplicaId([5; 16]);
        let (one, other) = tokio::join!(
            two.other.take_over_stream(STREAM, OTHERS),
            two.one.take_over_stream(STREAM, third)
        );
        // The third replica sends no heartbeat, so a stream that it took over can be taken over again.
        let taken = one.unwrap().or(other.unwrap()).unwrap();
        assert_eq!(
            (taken.waiting.as_deref(), taken.position),
            (Some(&b"call"[..]), 0)
        );
        let late = [b"late".to_vec()];
        let written = two.one.write_stream(STREAM, MINE, 0, &late, true).await;
        assert_eq!(written.unwrap(), WriteResult::Gone);
        let waits = two.one.set_suspended_call(STREAM, MINE, None).await;
        assert_eq!(waits.unwrap(), WriteResult::Gone);
    }
}

#[tokio::test]
async fn what_is_not_kept_any_more_is_told_from_what_ended() {
    for two in each().await {
        begin_stream(&two.one).await;
        two.one.give_up_stream(STREAM).await.unwrap();
        assert_eq!(read_page(&two.other, 0).await.state, StreamState::Broken);
        two.clock.advance(Duration::from_hours(2));
        let kept = two.other.read_stream(STREAM, SESSION, 0).await.unwrap();
        assert!(kept.is_none());
    }
}

#[tokio::test]
async fn streams_end_with_their_session_and_the_oldest_go_for_the_newest() {
    for two in each().await {
        begin_stream(&two.one).await;
        let large = [vec![0; 12 << 20]];
        two.one
            .write_stream(STREAM, MINE, 0, &large, true)
            .await
            .unwrap();
        for number in 10..13_u8 {
            let stream = StreamId([number; 16]);
            let opened = two.one.open_stream(stream, SESSION, MINE, b"r", None).await;
            assert!(opened.unwrap());
            two.one
                .write_stream(stream, MINE, 0, &large, true)
                .await
                .unwrap();
        }
        let newest = StreamId([20; 16]);
        two.one
            .open_stream(newest, SESSION, MINE, b"r", None)
            .await
            .unwrap();
        let streams = "SELECT count(*) FROM gateway.stream";
        assert_eq!(two.database.number(streams).await, 3);
        assert_eq!(
            two.database
                .number("SELECT count(*) FROM gateway.event")
                .await,
            2
        );
        two.one.end_session(SESSION).await.unwrap();
        assert_eq!(two.database.number(streams).await, 0);
        let opened = two.one.open_stream(STREAM, SESSION, MINE, b"r", None).await;
        assert!(!opened.unwrap());
    }
}

#[tokio::test]
async fn the_first_letter_of_an_id_stays_and_is_found_at_every_replica() {
    for two in each().await {
        let id = ReplicaMessageId(Digest::compute(b"letter"));
        assert_eq!(two.other.fetch_replica_message(id).await.unwrap(), None);
        assert!(
            two.one
                .post_replica_message(id, b"first".to_vec())
                .await
                .unwrap()
        );
        assert!(
            !two.other
                .post_replica_message(id, b"second".to_vec())
                .await
                .unwrap()
        );
        let found = two.other.fetch_replica_message(id).await.unwrap();
        assert_eq!(found.as_deref(), Some(&b"first"[..]));
        let recent = Duration::from_secs(10);
        let mut waited: Vec<_> = (0..100_u8)
            .map(|n| ReplicaMessageId(Digest::compute(&[n])))
            .collect();
        waited.push(id);
        let there = two
            .other
            .replica_messages_among(&waited, recent)
            .await
            .unwrap();
        assert_eq!(there, [id]);
        let other = two
            .other
            .replica_messages_among(&waited[..100], recent)
            .await;
        assert_eq!(other.unwrap(), []);
        two.clock.advance(Duration::from_secs(11));
        assert_eq!(
            two.other
                .replica_messages_among(&waited, recent)
                .await
                .unwrap(),
            []
        );
    }
}

#[tokio::test]
async fn what_expired_is_swept_a_bounded_number_at_once() {
    for two in each().await {
        let until = two.one.now();
        for number in 0..SWEEP + 10 {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&number.to_be_bytes());
            two.one.use_id_once(id, until).await.unwrap();
        }
        let later = until.plus(Duration::from_secs(1));
        two.one.use_id_once([0xff; 16], later).await.unwrap();
        assert!(two.one.sweep().await.unwrap());
        assert!(!two.one.sweep().await.unwrap());
        let left = two.database.number("SELECT count(*) FROM gateway.used");
        assert_eq!(left.await, 1);
    }
}

#[tokio::test]
async fn gateways_share_each_call_of_a_rate_and_what_one_spent_alone_counts_for_all() {
    for replicas in each().await {
        let (Some(one), Some(other)) = (replicas.one.shared_rates(), replicas.other.shared_rates())
        else {
            assert!(replicas.database.is_sqlite());
            continue;
        };
        for (replica, running) in [([1; 16], 1), ([1; 16], 1), ([2; 16], 2)] {
            assert_eq!(one.announce(replica).await.unwrap(), running);
        }
        let request = |calls, least, spent| LeaseRequest {
            bucket: Digest::compute(b"caller"),
            calls,
            least,
            interval: Duration::from_hours(1),
            capacity: 100,
            spent,
        };
        let (leases, others) = tokio::join!(
            join_all((0..40).map(|_| one.lease(request(1, 1, 0)))),
            join_all((0..40).map(|_| other.lease(request(1, 1, 0)))),
        );
        let leases = leases.into_iter().chain(others).map(Result::unwrap);
        assert_eq!(leases.map(|lease| lease.calls).sum::<u32>(), 80);
        // Of the remaining 20 calls, 15 were admitted while the store did not answer.
        let lease = other.lease(request(10, 1, 15)).await.unwrap();
        assert_eq!(lease.calls, 5);
        let refused = one.lease(request(10, 1, 0)).await.unwrap();
        assert_eq!(refused.calls, 0);
        let hours = refused.full_in.as_secs_f64() / 3_600.0;
        assert!((99.9..=100.0).contains(&hours), "{hours}");
        // If fewer than `least` calls are left, they stay in the bucket.
        let bucket = Digest::compute(b"other");
        let fresh = LeaseRequest {
            bucket,
            ..request(97, 97, 0)
        };
        assert_eq!(one.lease(fresh).await.unwrap().calls, 97);
        let few = LeaseRequest {
            bucket,
            ..request(10, 4, 0)
        };
        assert_eq!(one.lease(few).await.unwrap().calls, 0);
        assert_eq!(
            one.lease(LeaseRequest { least: 3, ..few })
                .await
                .unwrap()
                .calls,
            3
        );
    }
}
