use futures::FutureExt;
use futures::future::join_all;
use wardgate_domain::{
    CallerClaims, Switch, SwitchAction, SwitchChange, SwitchKind, SwitchScope, SwitchTarget,
};

use wardgate_testkit::{TestDatabase, claims, until_true};

use super::keyed::{KeyedCall, KeyedCallState, KeyedOutcome, Ticket};
use super::stored_results::{NewStoredResult, StoredResultLimits};
use super::*;
use crate::tests::database;
use crate::tests::stores::{self, each_store};

/// Marker in results that must not appear unencrypted in the store.
const CANARY: &[u8] = b"canary-of-a-result";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + seconds)
}

fn caller(subject: &str) -> Caller {
    Caller::from_verified(CallerClaims {
        expires_at: at(3_600),
        ..claims(subject, &["Nurse"])
    })
}

fn open(database: &TestDatabase) -> ToolRunnerStore {
    stores::store(&database.url(), Ambient::system()).unwrap()
}

fn change(name: &str, scope: SwitchScope, action: SwitchAction) -> SwitchChange {
    SwitchChange {
        target: SwitchTarget {
            kind: SwitchKind::Tool,
            name: name.to_owned(),
        },
        scope,
        action,
    }
}

fn call<'a>(caller: &'a Caller, key: &'a str) -> KeyedCall<'a> {
    KeyedCall {
        caller,
        tool: "write_it",
        key,
        arguments: Digest::compute(b"arguments"),
        terms: Digest::compute(b"terms"),
        deadline: at(30),
    }
}

async fn begin_fresh(store: &ToolRunnerStore, call: KeyedCall<'_>, now: Timestamp) -> Ticket {
    match store.begin(call, now).await.unwrap() {
        KeyedCallState::Fresh(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn new_result<'a>(caller: &'a Caller, chunks: &'a [Vec<u8>]) -> NewStoredResult<'a> {
    NewStoredResult {
        caller,
        tool: "read_it",
        definition: Digest::compute(b"definition"),
        policy_hash: Digest::compute(b"policies"),
        terms: CANARY,
        chunks,
        expires_at: at(600),
    }
}

#[test]
fn what_is_no_store_is_refused_without_repeating_it() {
    for url in [
        "",
        "sqlite:",
        "sqlite::memory:",
        "mysql://u:canary@h/d",
        "postgres://[canary",
    ] {
        let error = stores::store(url, Ambient::system());
        let error = error.err().unwrap();
        assert!(matches!(error, StoreError::UnknownStore), "{url}");
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}

#[tokio::test]
async fn a_store_is_made_once_whoever_starts_first() {
    for database in database::each_store().await {
        let (one, other) = (open(&database), open(&database));
        let (first, second) = tokio::join!(one.prepare(), other.prepare());
        first.unwrap();
        second.unwrap();
        one.prepare().await.unwrap();
        assert_eq!(other.switches_version().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_left_alone() {
    for (database, store) in each_store().await {
        database
            .execute(if database.is_sqlite() {
                "PRAGMA user_version = 9"
            } else {
                "UPDATE tool_runner.schema_version SET version = 9"
            })
            .await;
        let error = store.prepare().await.unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Schema(MigrationError::Newer { found: 9, .. })
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_database_that_never_answers_is_given_up_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u@{}/d", listener.local_addr().unwrap());
    let store = stores::store(&url, Ambient::system()).unwrap();
    let began = std::time::Instant::now();
    assert!(store.switches_version().await.is_err());
    // The limit is two seconds; the rest allows for a busy machine.
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn switches_outlive_the_process_and_each_change_moves_the_version() {
    let user = |issuer: Option<&str>| SwitchScope::User {
        subject: "nurse.joy".to_owned(),
        issuer: issuer.map(str::to_owned),
    };
    for (database, store) in each_store().await {
        let changes = [
            change("a", SwitchScope::Everyone, SwitchAction::Disable),
            change(
                "a",
                SwitchScope::Role("Ärztin' --".to_owned()),
                SwitchAction::Enable,
            ),
            change("a", user(None), SwitchAction::Disable),
            change(
                "a",
                user(Some("https://issuer.example")),
                SwitchAction::Enable,
            ),
            change("a", SwitchScope::Everyone, SwitchAction::Enable),
            change("b", SwitchScope::Everyone, SwitchAction::Disable),
            change("b", SwitchScope::Everyone, SwitchAction::Reset),
        ];
        for (version, change) in (1..).zip(&changes) {
            store.set_switch(change, "ada", at(version)).await.unwrap();
            assert_eq!(store.switches_version().await.unwrap(), version);
        }
        drop(store);
        let found = open(&database).switches().await.unwrap();
        let mut expected: Vec<_> = [(4, true, 5), (1, true, 2), (2, false, 3), (3, true, 4)]
            .map(|(index, enabled, seconds)| Switch {
                target: changes[index].target.clone(),
                scope: changes[index].scope.clone(),
                enabled,
                set_by: "ada".to_owned(),
                set_at: at(seconds),
            })
            .into();
        let by_scope = |one: &Switch, other: &Switch| one.scope.cmp(&other.scope);
        expected.sort_by(by_scope);
        let mut sorted = found;
        sorted.sort_by(by_scope);
        assert_eq!(sorted, expected, "{}", database.kind());
    }
}

#[tokio::test]
async fn changes_made_at_once_are_all_kept_and_all_counted() {
    for (database, store) in each_store().await {
        let other = open(&database);
        let changes: Vec<_> = (0..20)
            .map(|n| {
                change(
                    &format!("t{n}"),
                    SwitchScope::Everyone,
                    SwitchAction::Disable,
                )
            })
            .collect();
        let stores = [&store, &other].into_iter().cycle();
        let made = changes
            .iter()
            .zip(stores)
            .map(|(change, store)| store.set_switch(change, "ada", at(0)));
        for made in join_all(made).await {
            made.unwrap();
        }
        assert_eq!(store.switches().await.unwrap().len(), 20);
        assert_eq!(other.switches_version().await.unwrap(), 20);
    }
}

#[tokio::test]
async fn a_key_runs_once_and_then_gives_its_result() {
    for (database, store) in each_store().await {
        let joy = caller("nurse.joy");
        let ticket = begin_fresh(&store, call(&joy, "k"), at(0)).await;
        let again = store.begin(call(&joy, "k"), at(1)).await.unwrap();
        assert!(matches!(again, KeyedCallState::Running), "{again:?}");
        store
            .finish(ticket, KeyedOutcome::Done(CANARY))
            .await
            .unwrap();
        // Another process reads it later.
        let later = open(&database)
            .begin(call(&joy, "k"), at(40))
            .await
            .unwrap();
        assert!(matches!(later, KeyedCallState::Done(result) if result == CANARY));
    }
}

#[tokio::test]
async fn a_key_means_one_caller_one_tool_and_one_set_of_arguments() {
    for (_database, store) in each_store().await {
        let (joy, jim) = (caller("nurse.joy"), caller("nurse.jim"));
        let of_joy = call(&joy, "k");
        begin_fresh(&store, of_joy, at(0)).await;
        begin_fresh(&store, call(&jim, "k"), at(0)).await;
        begin_fresh(
            &store,
            KeyedCall {
                tool: "other",
                ..of_joy
            },
            at(0),
        )
        .await;
        begin_fresh(&store, call(&joy, "k2"), at(0)).await;
        let other = KeyedCall {
            arguments: Digest::compute(b"others"),
            ..of_joy
        };
        let begun = store.begin(other, at(0)).await.unwrap();
        assert!(
            matches!(begun, KeyedCallState::SameKeyOtherArguments),
            "{begun:?}"
        );
    }
}

#[tokio::test]
async fn a_result_released_under_other_terms_is_not_given_again() {
    for (_database, store) in each_store().await {
        let joy = caller("nurse.joy");
        let ticket = begin_fresh(&store, call(&joy, "k"), at(0)).await;
        store
            .finish(ticket, KeyedOutcome::Done(CANARY))
            .await
            .unwrap();
        let other_terms = KeyedCall {
            terms: Digest::compute(b"fewer rights"),
            ..call(&joy, "k")
        };
        let begun = store.begin(other_terms, at(1)).await.unwrap();
        assert!(
            matches!(begun, KeyedCallState::DoneUnderOtherTerms),
            "{begun:?}"
        );
    }
}

#[tokio::test]
async fn a_key_whose_caller_stopped_waiting_is_free_again() {
    let joy = caller("nurse.joy");
    for (_database, store) in each_store().await {
        // The caller is gone before the row is inserted.
        let gone = store.begin(call(&joy, "k"), at(0)).now_or_never();
        assert!(gone.is_none(), "{gone:?}");
        // While the row is there, the key counts as in use.
        until_true("the key is free", async || {
            let begun = store.begin(call(&joy, "k"), at(1)).await.unwrap();
            matches!(begun, KeyedCallState::Fresh(_))
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_never_ended_is_unknown_and_never_run_again() {
    for (_database, store) in each_store().await {
        let joy = caller("nurse.joy");
        // The call is never finished, as after a crash.
        drop(begin_fresh(&store, call(&joy, "crashed"), at(0)).await);
        for seconds in [30, 3_600, 86_399] {
            let begun = store
                .begin(call(&joy, "crashed"), at(seconds))
                .await
                .unwrap();
            assert!(
                matches!(begun, KeyedCallState::Unknown),
                "{begun:?} after {seconds} s"
            );
        }
        let ticket = begin_fresh(&store, call(&joy, "open"), at(0)).await;
        store.finish(ticket, KeyedOutcome::Open).await.unwrap();
        let begun = store.begin(call(&joy, "open"), at(1)).await.unwrap();
        assert!(matches!(begun, KeyedCallState::Unknown), "{begun:?}");
    }
}

#[tokio::test]
async fn a_key_is_free_again_when_nothing_ran_and_after_a_day() {
    for (_database, store) in each_store().await {
        let joy = caller("nurse.joy");
        let ticket = begin_fresh(&store, call(&joy, "k"), at(0)).await;
        store
            .finish(ticket, KeyedOutcome::NothingRan)
            .await
            .unwrap();
        let ticket = begin_fresh(&store, call(&joy, "k"), at(1)).await;
        store
            .finish(ticket, KeyedOutcome::Done(b"old"))
            .await
            .unwrap();
        let next_day = KeyedCall {
            deadline: at(86_500),
            ..call(&joy, "k")
        };
        begin_fresh(&store, next_day, at(86_401)).await;
        let begun = store.begin(next_day, at(86_402)).await.unwrap();
        assert!(
            matches!(begun, KeyedCallState::Running),
            "the old result is gone: {begun:?}"
        );
    }
}

#[tokio::test]
async fn of_many_at_once_on_two_replicas_one_runs() {
    for (database, store) in each_store().await {
        let (joy, other) = (caller("nurse.joy"), open(&database));
        for round in 0..10 {
            let key = format!("k{round}");
            let begun = [&store, &other]
                .into_iter()
                .cycle()
                .take(16)
                .map(|store| store.begin(call(&joy, &key), at(0)));
            let begun = join_all(begun).await;
            let fresh = |begun: &&_| matches!(begun, Ok(KeyedCallState::Fresh(_)));
            assert_eq!(begun.iter().filter(fresh).count(), 1);
            let running = |begun: &&_| matches!(begun, Ok(KeyedCallState::Running));
            assert_eq!(begun.iter().filter(running).count(), 15);
        }
    }
}

#[tokio::test]
async fn a_kept_result_is_given_whole_to_its_caller() {
    for (database, store) in each_store().await {
        let joy = caller("nurse.joy");
        let chunks = [CANARY.to_vec(), vec![0xff; 300_000], Vec::new()];
        let handle = store
            .store_result(&new_result(&joy, &chunks))
            .await
            .unwrap();
        assert_eq!(handle.len(), 32);
        // Another process reads the result.
        let store = open(&database);
        let stored = store
            .stored_result(&handle, &joy, at(1))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((stored.tool.as_str(), stored.chunks), ("read_it", 3));
        assert_eq!(stored.terms, CANARY);
        assert_eq!(stored.definition, Digest::compute(b"definition"));
        assert_eq!(stored.policy_hash, Digest::compute(b"policies"));
        for (position, chunk) in (0..).zip(&chunks) {
            let found = store.stored_chunk(&stored, position).await.unwrap();
            assert_eq!(found.as_ref(), Some(chunk));
        }
        assert_eq!(store.stored_chunk(&stored, 3).await.unwrap(), None);
    }
}

#[tokio::test]
async fn anothers_an_expired_and_an_unknown_handle_are_all_nothing() {
    for (_database, store) in each_store().await {
        let (joy, jim) = (caller("nurse.joy"), caller("nurse.jim"));
        let handle = store
            .store_result(&new_result(&joy, &[vec![1]]))
            .await
            .unwrap();
        for (handle, caller, now) in [
            (handle.as_str(), &jim, at(1)),
            (handle.as_str(), &joy, at(600)),
            ("0123456789abcdef0123456789abcdef", &joy, at(1)),
            ("' OR TRUE --", &joy, at(1)),
            ("a\0b", &joy, at(1)),
        ] {
            let stored = store.stored_result(handle, caller, now).await.unwrap();
            assert!(stored.is_none(), "{handle}");
        }
    }
}

#[tokio::test]
async fn without_room_the_oldest_results_go_first() {
    for (_database, mut store) in each_store().await {
        store.limits = StoredResultLimits {
            per_caller: 3_000,
            overall: 5_000,
        };
        let (joy, jim) = (caller("nurse.joy"), caller("nurse.jim"));
        let chunks = [vec![1; 900]];
        let mut handles = Vec::new();
        for owner in [&joy, &joy, &joy, &joy, &jim, &jim, &jim] {
            handles.push((
                owner,
                store
                    .store_result(&new_result(owner, &chunks))
                    .await
                    .unwrap(),
            ));
        }
        let mut held = Vec::new();
        for (owner, handle) in &handles {
            held.push(
                store
                    .stored_result(handle, owner, at(1))
                    .await
                    .unwrap()
                    .is_some(),
            );
        }
        // The first result was deleted because of its caller's limit, the second because of the overall limit.
        assert_eq!(held, [false, false, true, true, true, true, true]);

        let too_large = [vec![1; 3_000]];
        let error = store
            .store_result(&new_result(&joy, &too_large))
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::TooLarge), "{error}");
        let (_, newest) = &handles[6];
        assert!(
            store
                .stored_result(newest, &jim, at(1))
                .await
                .unwrap()
                .is_some()
        );
    }
}

#[tokio::test]
async fn nothing_a_tool_returned_is_stored_in_clear() {
    for (database, store) in each_store().await {
        let joy = caller("nurse.joy");
        let ticket = begin_fresh(&store, call(&joy, "canary-of-a-result"), at(0)).await;
        store
            .finish(ticket, KeyedOutcome::Done(CANARY))
            .await
            .unwrap();
        let chunks = [CANARY.to_vec()];
        store
            .store_result(&new_result(&joy, &chunks))
            .await
            .unwrap();
        if let TestDatabase::Sqlite { dir, .. } = &database {
            for file in std::fs::read_dir(dir.path()).unwrap() {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY));
            }
        } else {
            let clear = "SELECT count(*) FROM
                (SELECT result AS sealed FROM tool_runner.keyed_call
                 UNION ALL SELECT id FROM tool_runner.keyed_call
                 UNION ALL SELECT sealed FROM tool_runner.kept_chunk
                 UNION ALL SELECT terms FROM tool_runner.kept_result) AS stored
                WHERE position('canary-of-a-result'::bytea IN sealed) > 0";
            assert_eq!(database.number(clear).await, 0);
        }
    }
}

#[tokio::test]
async fn what_is_stored_cannot_be_put_in_the_place_of_something_else() {
    for (database, store) in each_store().await {
        let (joy, jim) = (caller("nurse.joy"), caller("nurse.jim"));
        let chunks = [b"first".to_vec(), b"second".to_vec()];
        let handle = store
            .store_result(&new_result(&joy, &chunks))
            .await
            .unwrap();
        let of_jim = store
            .store_result(&new_result(&jim, &chunks))
            .await
            .unwrap();
        let schema = if database.is_sqlite() {
            ""
        } else {
            "tool_runner."
        };
        // A chunk is moved to the place of another.
        database
            .execute(&format!(
                "UPDATE {schema}kept_chunk SET sealed =
                    (SELECT sealed FROM {schema}kept_chunk WHERE handle = '{handle}' AND position = 1)
                 WHERE handle = '{handle}' AND position = 0"
            ))
            .await;
        let stored = store
            .stored_result(&handle, &joy, at(1))
            .await
            .unwrap()
            .unwrap();
        let swapped = store.stored_chunk(&stored, 0).await;
        assert!(matches!(swapped, Err(StoreError::Sealed)), "{swapped:?}");
        // A result is assigned to another caller who also has a result.
        database
            .execute(&format!(
                "UPDATE {schema}kept_result SET caller =
                    (SELECT caller FROM {schema}kept_result WHERE handle = '{of_jim}')
                 WHERE handle = '{handle}'"
            ))
            .await;
        let taken = store.stored_result(&handle, &jim, at(1)).await;
        assert!(matches!(taken, Err(StoreError::Sealed)));
    }
}

#[tokio::test]
async fn what_expired_is_swept_a_bounded_number_at_once() {
    for (database, store) in each_store().await {
        let joy = caller("nurse.joy");
        for n in 0..SWEEP + 50 {
            begin_fresh(&store, call(&joy, &format!("k{n}")), at(0)).await;
        }
        let day = 86_400;
        begin_fresh(&store, call(&joy, "younger"), at(1)).await;
        store
            .store_result(&new_result(&joy, &[vec![1]]))
            .await
            .unwrap();
        assert!(store.sweep(at(day)).await.unwrap());
        assert!(!store.sweep(at(day)).await.unwrap());
        let schema = if database.is_sqlite() {
            ""
        } else {
            "tool_runner."
        };
        for (table, left) in [("keyed_call", 1), ("kept_result", 0), ("kept_chunk", 0)] {
            let count = format!("SELECT count(*) FROM {schema}{table}");
            assert_eq!(database.number(&count).await, left, "{table}");
        }
    }
}
