//! Tests of the move of a store from a former master key to another one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::path::Path;
use std::task::Poll;

use wardgate_domain::ConversationKey;
use wardgate_store::{DatabaseSettings, RekeyProgress};

use super::*;
use crate::store::{MemoryStore, RekeyBatch};
use crate::{RekeyEvent, RekeyOutcome, rekey};

const OLD: u8 = 7;
const NEW: u8 = 8;

fn keys(current: u8, former: &[u8]) -> MasterKeys {
    let key = |byte: &u8| MasterKey::from_bytes(&[*byte; 32]);
    MasterKeys::new(key(&current), former.iter().map(key).collect())
}

async fn service(setup: &Setup, keys: MasterKeys) -> Setup {
    let config = Config::for_store(setup.database.url());
    Setup::under(Arc::clone(&setup.database), config, keys).await
}

async fn refusal(setup: &Setup, keys: MasterKeys) -> Error {
    let start = MemoryHandler::start(
        Config::for_store(setup.database.url()),
        keys,
        Policy::default(),
        setup.audit.client(),
        Ambient::system(),
    );
    start.await.err().unwrap()
}

/// Creates conversations of several sizes: a long one of two batches and more, many short ones, a cleared and an erased one.
async fn fill(setup: &Setup) {
    let joy = joy();
    let long = setup.create_conversation(&joy, "long").await;
    for part in 0..7 {
        let texts = (0..20).map(|n| person(&format!("tooth {part} {n}")));
        setup.add(&joy, &long, texts.collect()).await.unwrap();
    }
    let results = vec![
        result_of("read", "{}", "a result"),
        model("a model's tooth"),
        result_of("read", "{}", "a result again"),
    ];
    setup.add(&joy, &long, results).await.unwrap();
    for n in 0..70 {
        let text = person(&format!("short tooth {n}"));
        setup
            .create_conversation_with(&joy, &format!("short-{n}"), vec![text])
            .await;
    }
    for name in ["cleared", "erased"] {
        setup
            .create_conversation_with(&joy, name, vec![person("gone tooth")])
            .await;
    }
    let client = &setup.memory;
    client
        .clear(on_behalf_of(&joy), &id("cleared"))
        .await
        .unwrap();
    client
        .delete(on_behalf_of(&joy), &id("erased"))
        .await
        .unwrap();
}

/// Checks that everything of [`fill`] can be read and found.
async fn is_whole(setup: &Setup) {
    is_whole_but(setup, 0).await;
}

/// Checks the same if so many messages were added to the long conversation.
async fn is_whole_but(setup: &Setup, added: usize) {
    let joy = joy();
    let long = setup.context(&joy, &id("long")).await;
    assert_eq!(long.messages.len(), 143 + added);
    assert!(long.messages.iter().all(|message| !message.withheld));
    let short = setup.context(&joy, &id("short-69")).await;
    assert_eq!(texts(&short.messages), ["short tooth 69"]);
    let search = async |query: &str| {
        let found = setup.memory.search(on_behalf_of(&joy), query, None, 200);
        found.await.unwrap().len()
    };
    assert_eq!(search("tooth 6 19").await, 1);
    assert_eq!(search("short tooth 0").await, 1);
    assert_eq!(search("model's tooth").await, 1);
    assert_eq!(search("gone").await, 0);
}

/// Does the next batch, and ends it as a killed process would after so many steps. Returns `None` if it was ended.
async fn batch_killed_after(setup: &Setup, steps: u32) -> Option<RekeyBatch> {
    let (url, settings) = (setup.database.url(), DatabaseSettings::default());
    let keys = keys(NEW, &[OLD]);
    let store = MemoryStore::open(&url, &settings, keys, Ambient::system()).unwrap();
    store.prepare().await.unwrap();
    store.begin_rekeying().await.unwrap();
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
        batch = store.rekey_batch() => Some(batch.unwrap()),
        () = killed => None,
    }
}

#[tokio::test]
async fn a_store_moves_to_a_new_master_key_however_often_that_is_interrupted() {
    for setup in Setup::each().await {
        fill(&setup).await;
        let both = service(&setup, keys(NEW, &[OLD])).await;
        is_whole(&both).await;
        let (mut steps, mut batches, mut killed) = (1, 0, 0);
        loop {
            match batch_killed_after(&setup, steps).await {
                None => {
                    killed += 1;
                    steps += 1 + steps / 4;
                }
                Some(batch) => {
                    assert_eq!((batch.unreadable, batch.unreadable_messages), (0, 0));
                    batches += 1;
                    is_whole(&both).await;
                    if batch.is_last {
                        break;
                    }
                    let error = refusal(&setup, keys(NEW, &[])).await;
                    assert!(matches!(error, Error::OtherMasterKey), "{error}");
                }
            }
        }
        assert!(batches > 3 && killed > 5, "{batches} {killed}");
        is_whole(&both).await;
        let error = refusal(&setup, keys(OLD, &[])).await;
        assert!(matches!(error, Error::OtherMasterKey), "{error}");
        is_whole(&service(&setup, keys(NEW, &[])).await).await;
    }
}

#[tokio::test]
async fn what_is_written_during_the_move_is_under_the_new_key() {
    for setup in Setup::each().await {
        fill(&setup).await;
        let joy = joy();
        let both = service(&setup, keys(NEW, &[OLD])).await;
        // Until the move begins, services that have only the former key read what the others write.
        both.create_conversation_with(&joy, "before", vec![person("early bird")])
            .await;
        assert_eq!(setup.context(&joy, &id("before")).await.messages.len(), 1);
        batch_killed_after(&setup, u32::MAX).await.unwrap();
        both.create_conversation_with(&joy, "during", vec![person("late bird")])
            .await;
        both.add(&joy, &id("long"), vec![person("long bird")])
            .await
            .unwrap();
        both.add(&joy, &id("short-69"), vec![person("short bird")])
            .await
            .unwrap();
        both.memory
            .clear(on_behalf_of(&joy), &id("short-68"))
            .await
            .unwrap();
        both.add(&joy, &id("short-68"), vec![person("clear bird")])
            .await
            .unwrap();
        let result = vec![result_of("read", "{}", "a result")];
        both.add(&joy, &id("long"), result).await.unwrap();
        let settings = DatabaseSettings::default();
        let url = setup.database.url();
        let mut told = 0;
        let ambient = Ambient::system();
        let outcome = rekey(&url, &settings, keys(NEW, &[OLD]), ambient.clone(), |_| {
            told += 1;
        });
        let outcome = outcome.await.unwrap();
        assert!(
            matches!(
                outcome,
                RekeyOutcome::Finished {
                    conversations: RekeyProgress { unreadable: 0, .. },
                    unreadable_messages: 0,
                }
            ),
            "{outcome:?}"
        );
        assert!(told > 1);
        let again = rekey(&url, &settings, keys(NEW, &[OLD]), ambient, |_| ());
        assert_eq!(
            again.await.unwrap(),
            RekeyOutcome::NotNeeded { unreadable: 0 }
        );
        let new = service(&setup, keys(NEW, &[])).await;
        let found = new.memory.search(on_behalf_of(&joy), "bird", None, 0).await;
        assert_eq!(found.unwrap().len(), 5);
        let search = new.memory.search(on_behalf_of(&joy), "tooth 68", None, 0);
        assert_eq!(search.await.unwrap().len(), 0, "it was cleared");
        // Results of the same kind have the same digest, whichever key they were written under.
        let kinds = setup
            .database
            .number("SELECT count(DISTINCT grounds) FROM memory.message");
        assert_eq!(kinds.await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_many_write_during_the_move_is_left_behind() {
    for setup in Setup::each().await {
        fill(&setup).await;
        let joy = joy();
        let both = service(&setup, keys(NEW, &[OLD])).await;
        let writers = (0..4).map(|writer| {
            let (both, joy) = (&both, &joy);
            async move {
                for n in 0..15 {
                    let message = |text: &str| {
                        let text = format!("{text} {writer}x{n}");
                        vec![with_id(&format!("m-{writer}-{n}"), person(&text))]
                    };
                    let own = both
                        .create_conversation(joy, &format!("own-{writer}-{n}"))
                        .await;
                    both.add(joy, &own, message("own")).await.unwrap();
                    let long = id("long");
                    both.add(joy, &long, message("long")).await.unwrap();
                }
            }
        });
        let (url, settings) = (setup.database.url(), DatabaseSettings::default());
        let moving = rekey(
            &url,
            &settings,
            keys(NEW, &[OLD]),
            Ambient::system(),
            |_| (),
        );
        let (moved, _) = futures::join!(moving, futures::future::join_all(writers));
        moved.unwrap();
        let new = service(&setup, keys(NEW, &[])).await;
        for (writer, n) in (0..4).flat_map(|writer| (0..15).map(move |n| (writer, n))) {
            let query = format!("{writer}x{n}");
            let found = new.memory.search(on_behalf_of(&joy), &query, None, 0);
            assert_eq!(found.await.unwrap().len(), 2, "{query}");
        }
        is_whole_but(&new, 60).await;
    }
}

#[tokio::test]
async fn a_service_without_the_key_in_force_is_not_ready_and_writes_nothing() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "mine", vec![person("old")])
            .await;
        batch_killed_after(&setup, u32::MAX).await.unwrap();
        let refused = setup.add(&joy, &mine, vec![person("new")]).await;
        assert_eq!(reason(refused), ErrorReason::Internal);
        let mut readiness = setup.maintenance.readiness();
        let not_ready = readiness.wait_for(|it| !it.is_ready());
        not_ready.await.unwrap();
    }
}

#[tokio::test]
async fn a_conversation_or_message_that_no_key_decrypts_stays_and_does_not_count_as_moved() {
    for setup in Setup::each().await {
        let joy = joy();
        setup
            .create_conversation_with(&joy, "damaged", vec![person("a")])
            .await;
        setup
            .create_conversation_with(&joy, "whole", vec![person("b")])
            .await;
        let messages = vec![person("c"), person("d")];
        setup
            .create_conversation_with(&joy, "partial", messages)
            .await;
        setup
            .create_conversation_with(&joy, "erased", vec![person("e")])
            .await;
        let erased = id("erased");
        let deleted = setup.memory.delete(on_behalf_of(&joy), &erased);
        deleted.await.unwrap();
        let damages = if setup.database.is_sqlite() {
            [
                "UPDATE conversation SET data_key = x'00' WHERE id = 'damaged'",
                "UPDATE message SET body = x'00' WHERE position = 2",
            ]
        } else {
            [
                "UPDATE memory.conversation SET data_key = '\\x00' WHERE id = 'damaged'",
                "UPDATE memory.message SET body = '\\x00' WHERE position = 2",
            ]
        };
        for damage in damages {
            setup.database.execute(damage).await;
        }
        let (url, settings) = (setup.database.url(), DatabaseSettings::default());
        let (named, messages) = (RefCell::new(Vec::new()), RefCell::new(0_u64));
        let run = || {
            let keys = keys(NEW, &[OLD]);
            rekey(
                &url,
                &settings,
                keys,
                Ambient::system(),
                |event| match event {
                    RekeyEvent::Unreadable(key) => named.borrow_mut().push(key.to_owned()),
                    RekeyEvent::UnreadableMessages(count) => *messages.borrow_mut() += count,
                    RekeyEvent::Moved(_) | RekeyEvent::Checked(_) => {}
                },
            )
        };
        let expected = RekeyOutcome::Finished {
            conversations: RekeyProgress {
                done: 3,
                total: 4,
                unreadable: 1,
            },
            unreadable_messages: 1,
        };
        assert_eq!(run().await.unwrap(), expected);
        let again = RekeyOutcome::NotNeeded { unreadable: 1 };
        assert_eq!(run().await.unwrap(), again);
        // Each run names the conversation. Only the run that found the message counts it.
        let named = named.into_inner();
        let [first, second] = &named[..] else {
            panic!("{named:?}");
        };
        assert_eq!(first, second);
        assert!(first.parse::<ConversationKey>().is_ok(), "{first}");
        assert_eq!(messages.into_inner(), 1);
        let new = service(&setup, keys(NEW, &[])).await;
        let whole = new.context(&joy, &id("whole")).await;
        assert_eq!(texts(&whole.messages), ["b"]);
    }
}

#[tokio::test]
async fn a_batch_ends_after_a_long_document() {
    for setup in Setup::each().await {
        let joy = joy();
        let documents = (0..3).map(|document| {
            let words = (0..10_000).map(|word| format!("w{document}x{word} "));
            person(&words.collect::<String>())
        });
        let documents = documents.collect();
        setup
            .create_conversation_with(&joy, "documents", documents)
            .await;
        let mut batches = 0;
        loop {
            let batch = batch_killed_after(&setup, u32::MAX).await.unwrap();
            batches += 1;
            if batch.is_last {
                break;
            }
        }
        assert_eq!(
            batches, 4,
            "one for each document, and one that finds no more"
        );
    }
}

#[tokio::test]
async fn a_move_to_a_key_that_is_also_a_former_one_is_refused_and_changes_nothing() {
    for setup in Setup::each().await {
        let joy = joy();
        setup
            .create_conversation_with(&joy, "mine", vec![person("a")])
            .await;
        let (url, settings) = (setup.database.url(), DatabaseSettings::default());
        for repeated in [keys(OLD, &[OLD]), keys(NEW, &[OLD, NEW])] {
            let moved = rekey(&url, &settings, repeated, Ambient::system(), |_| ());
            let refused = moved.await.unwrap_err();
            assert!(matches!(refused, Error::SameMasterKey), "{refused}");
        }
        let old = service(&setup, keys(OLD, &[])).await;
        let mine = old.context(&joy, &id("mine")).await;
        assert_eq!(texts(&mine.messages), ["a"]);
    }
}

#[tokio::test]
async fn a_file_that_does_not_exist_is_not_created() {
    let database = TestDatabase::sqlite("memory");
    let (url, settings) = (database.url(), DatabaseSettings::default());
    let moved = rekey(
        &url,
        &settings,
        keys(NEW, &[OLD]),
        Ambient::system(),
        |_| (),
    );
    let refused = moved.await.unwrap_err();
    assert!(matches!(refused, Error::Open { .. }), "{refused}");
    let path = url.strip_prefix("sqlite:").unwrap();
    assert!(!Path::new(path).exists());
}

#[tokio::test]
async fn a_store_that_no_service_has_used_is_refused_and_takes_no_key() {
    for database in TestDatabase::each_store("memory").await {
        let (url, settings) = (database.url(), DatabaseSettings::default());
        if let Some(path) = url.strip_prefix("sqlite:") {
            std::fs::write(path, "").unwrap();
        }
        for _ in 0..2 {
            let moved = rekey(
                &url,
                &settings,
                keys(NEW, &[OLD]),
                Ambient::system(),
                |_| (),
            );
            let refused = moved.await.unwrap_err();
            assert!(matches!(refused, Error::NoMasterKey), "{refused}");
        }
        // A service with only the former key starts.
        let config = Config::for_store(url);
        Setup::under(Arc::new(database), config, keys(OLD, &[])).await;
    }
}
