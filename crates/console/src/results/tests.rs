//! Tests of the store of results on SQLite, and on PostgreSQL if `WARDGATE_TEST_POSTGRES` names a server.

use wardgate_domain::CallerClaims;
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{TestClock, TestDatabase};

use super::*;
use crate::CookieKey;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// Replicas that share a database.
struct TestReplicas {
    clock: TestClock,
    database: TestDatabase,
}

impl TestReplicas {
    async fn each() -> impl Iterator<Item = Self> {
        let databases = TestDatabase::each_store("console").await.into_iter();
        databases.map(|database| Self {
            clock: TestClock::at(NOW),
            database,
        })
    }

    async fn replica(&self, key: u8) -> Arc<ConsoleStore> {
        let ambient = self.clock.ambient();
        let key = CookieKey::from_bytes(&[key; 32]);
        let settings = DatabaseSettings::default();
        let url = self.database.url();
        let store = ConsoleStore::open(&url, &settings, &key, ambient);
        store.await.unwrap()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

fn caller(subject: &str, role: &str) -> Caller {
    Caller::from_verified(CallerClaims {
        expires_at: Timestamp::from_seconds(NOW + 3_600),
        ..wardgate_testkit::claims(subject, &[role])
    })
}

fn call() -> SubmittedCall {
    SubmittedCall {
        tool: "look_up".to_owned(),
        fields: FormFields::default(),
        at_micros: Timestamp::from_seconds(NOW).as_micros(),
        outcome: None,
    }
}

fn answer(bytes: usize) -> CallOutcome {
    CallOutcome::Answered {
        request: String::new(),
        answer: "x".repeat(bytes),
    }
}

#[tokio::test]
async fn a_result_is_shown_at_any_replica_to_whom_it_was_given_with_the_rights_they_had() {
    for stage in TestReplicas::each().await {
        let (one, other) = (stage.replica(7).await, stage.replica(7).await);
        let doctor = caller("yenji", "Doctor");
        let running = one.begin("1".to_owned(), &doctor, call()).await.unwrap();
        let seen = other.get("1", &doctor).await.unwrap().unwrap();
        assert!(seen.outcome.is_none());
        running.unwrap().finish(answer(3)).await.unwrap();
        let seen = other.get("1", &doctor).await.unwrap().unwrap();
        assert!(
            matches!(seen.outcome, Some(CallOutcome::Answered { answer, .. }) if answer == "xxx")
        );
        for stranger in [caller("joy", "Doctor"), caller("yenji", "Nurse")] {
            assert!(one.get("1", &stranger).await.unwrap().is_none());
        }
        // A replica with another key cannot read the result.
        let foreign = stage.replica(8).await;
        let refused = foreign.get("1", &doctor).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unreadable));
        stage.advance(KEPT);
        assert!(one.get("1", &doctor).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_form_begins_one_call_over_all_replicas() {
    for stage in TestReplicas::each().await {
        let (one, other) = (stage.replica(7).await, stage.replica(7).await);
        let doctor = caller("yenji", "Doctor");
        let running = one.begin("1".to_owned(), &doctor, call()).await.unwrap();
        let again = other.begin("1".to_owned(), &doctor, call()).await.unwrap();
        assert!(running.is_some() && again.is_none());
    }
}

#[tokio::test]
async fn a_call_that_broke_off_says_so_also_where_its_process_ended() {
    for stage in TestReplicas::each().await {
        let store = stage.replica(7).await;
        let doctor = caller("yenji", "Doctor");
        let running = store.begin("1".to_owned(), &doctor, call()).await.unwrap();
        let outcome = async || store.get("1", &doctor).await.unwrap().unwrap().outcome;
        // The process was killed, so no outcome was stored.
        let mut running = running.unwrap();
        assert!(running.call.take().is_some());
        drop(running);
        assert!(outcome().await.is_none());
        // The call was dropped in a running process, which stores the outcome at once.
        let again = store.begin("2".to_owned(), &doctor, call()).await.unwrap();
        drop(again);
        let ended = async {
            loop {
                let call = store.get("2", &doctor).await.unwrap().unwrap();
                if call.outcome.is_some() {
                    return call.outcome;
                }
                tokio::task::yield_now().await;
            }
        };
        assert!(matches!(ended.await, Some(CallOutcome::Interrupted)));
        assert!(outcome().await.is_none());
        stage.advance(CALL_LIMIT + Duration::from_secs(1));
        assert!(matches!(outcome().await, Some(CallOutcome::Interrupted)));
    }
}

#[tokio::test]
async fn newer_results_take_the_place_of_older_ones_of_the_same_caller() {
    for stage in TestReplicas::each().await {
        let store = stage.replica(7).await;
        let (doctor, nurse) = (caller("yenji", "Doctor"), caller("joy", "Nurse"));
        let add = async |who: &Caller, id: &str, bytes: usize| {
            let running = store.begin(id.to_owned(), who, call()).await.unwrap();
            running.unwrap().finish(answer(bytes)).await.unwrap();
            stage.advance(Duration::from_secs(1));
        };
        let has = async |who: &Caller, id: &str| store.get(id, who).await.unwrap().is_some();
        add(&nurse, "nurse", 10).await;
        for id in ["a", "b", "c", "d", "e"] {
            add(&doctor, id, 4 << 20).await;
        }
        assert!(!has(&doctor, "a").await && has(&doctor, "e").await && has(&nurse, "nurse").await);
        for id in 0..70 {
            add(&doctor, &id.to_string(), 1).await;
        }
        assert!(!has(&doctor, "5").await && has(&doctor, "6").await && has(&doctor, "69").await);
        assert!(has(&nurse, "nurse").await);
        // A file does not grow beyond its limit; the newest results stay. A server has more room.
        if !stage.database.is_sqlite() {
            continue;
        }
        for id in 100..104 {
            add(
                &caller(&id.to_string(), "Doctor"),
                &id.to_string(),
                10 << 20,
            )
            .await;
        }
        assert!(!has(&nurse, "nurse").await && !has(&doctor, "69").await);
    }
}
