use wardgate_domain::{ConversationKey, HoldTarget};
use wardgate_rpc::client::{ConversationSelector, ConversationSubscriber};

use super::*;
use crate::config::Retention;

const CANARY: &str = "canarytext";

async fn key_of(setup: &Setup, caller: &Caller, id: &ConversationId) -> ConversationKey {
    let made = setup
        .memory
        .get_or_create(on_behalf_of(caller), Some(id))
        .await;
    made.unwrap().0.key
}

/// Returns whether the database stores `text` anywhere.
async fn is_stored(setup: &Setup, text: &str) -> bool {
    if setup.database.is_sqlite() {
        let files = setup.database.files();
        return files
            .windows(text.len())
            .any(|part| part == text.as_bytes());
    }
    let count = format!(
        "SELECT (SELECT count(*) FROM memory.message m WHERE m::text LIKE '%{text}%'
                OR position('{text}'::bytea IN coalesce(m.body, '') || coalesce(m.call, '')) > 0)
            + (SELECT count(*) FROM memory.message_words w WHERE w::text LIKE '%{text}%')
            + (SELECT count(*) FROM memory.conversation c WHERE c::text LIKE '%{text}%')
            + (SELECT count(*) FROM memory.subscription s WHERE s::text LIKE '%{text}%')"
    );
    setup.database.number(&count).await > 0
}

/// Returns the index terms for the words of `text`.
fn index_words(caller: &Caller, text: &str) -> Vec<String> {
    let owner = crate::owner::Owner::from(caller);
    let key = MasterKey::from_bytes(&[7; 32]).word_key(&owner);
    crate::words::blind(text, &key).into_iter().collect()
}

#[tokio::test]
async fn after_a_deletion_nothing_of_it_is_left_and_everything_else_is() {
    for setup in Setup::each().await {
        let joy = joy();
        let (doomed, other) = (
            setup.create_conversation(&joy, "canary-id").await,
            setup.create_conversation(&joy, "other").await,
        );
        let key = key_of(&setup, &joy, &doomed).await;
        for n in 0..30 {
            let text = format!("{CANARY} gone{n}");
            let said = vec![with_id(&format!("canary-m-{n}"), person(&text))];
            let turn = format!("canary-t-{n}");
            let added = setup.add_to_turn(&joy, &doomed, &turn, TurnState::Complete, said);
            added.await.unwrap();
            setup
                .add(&joy, &other, vec![person(&format!("kept{n}"))])
                .await
                .unwrap();
        }
        let result = vec![result_of("read", r#"{"q":"canaryargument"}"#, CANARY)];
        setup.add(&joy, &doomed, result).await.unwrap();
        let words: Vec<_> = (0..30)
            .flat_map(|n| index_words(&joy, &format!("{CANARY} gone{n}")))
            .collect();
        assert!(!is_stored(&setup, CANARY).await, "texts are sealed");
        assert!(
            !is_stored(&setup, "canaryargument").await,
            "arguments are sealed"
        );
        assert!(is_stored(&setup, "canary-id").await && is_stored(&setup, &words[0]).await);

        let session = ConversationSubscriber {
            caller: &joy,
            session: None,
        };
        setup.memory.subscribe(session, &doomed).await.unwrap();
        setup
            .memory
            .delete(on_behalf_of(&joy), &doomed)
            .await
            .unwrap();

        for gone in ["canary-id", "canary-m-7", "canary-t-7"] {
            assert!(!is_stored(&setup, gone).await, "{gone}");
        }
        for word in &words {
            assert!(!is_stored(&setup, word).await, "{word}");
        }
        let keys = "SELECT count(*) FROM memory.conversation WHERE data_key IS NOT NULL";
        assert_eq!(setup.database.number(keys).await, 1);
        let bodies = "SELECT count(*) FROM memory.message WHERE body IS NOT NULL";
        assert_eq!(setup.database.number(bodies).await, 30);
        let context = setup.context(&joy, &other).await;
        assert_eq!(context.messages.len(), 30);
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "kept7", None, 0)
            .await
            .unwrap();
        assert_eq!(hits.len(), 1);

        // A skeleton remains, and the erasure is recorded.
        let (skeletons, _) = setup
            .operator
            .survey(&ada(), "", "nurse.joy", 0, "")
            .await
            .unwrap();
        let skeleton = skeletons.iter().find(|one| one.key == key).unwrap();
        assert!(skeleton.erased_at.is_some() && skeleton.messages == 31);
        let rows = "SELECT count(*) FROM memory.message WHERE id IS NULL AND role > 0 AND at > 0";
        assert_eq!(setup.database.number(rows).await, 31);
        let [change] = &setup.changes()[..] else {
            panic!("{:?}", setup.changes());
        };
        assert_eq!((change.actor.as_str(), change.failed), ("nurse.joy", false));
        assert_eq!(change.action, "conversation.erase");
        assert_eq!(change.target, key.to_string());
        assert_eq!(change.detail_digest, Some(Digest::compute(b"canary-id")));

        // The id can be used for a new conversation.
        let deleted = setup.memory.delete(on_behalf_of(&joy), &doomed).await;
        assert_eq!(reason(deleted), ErrorReason::UnknownConversation);
        assert_ne!(key_of(&setup, &joy, &doomed).await, key);
        assert!(setup.context(&joy, &doomed).await.messages.is_empty());
    }
}

#[tokio::test]
async fn clearing_erases_every_message_and_leaves_the_conversation() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let key = key_of(&setup, &joy, &mine).await;
        let said = || vec![with_id("canary-m", person(CANARY)), person("more")];
        setup.add(&joy, &mine, said()).await.unwrap();
        setup.memory.clear(on_behalf_of(&joy), &mine).await.unwrap();
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
        for word in index_words(&joy, CANARY) {
            assert!(!is_stored(&setup, &word).await);
        }
        assert!(!is_stored(&setup, "canary-m").await);
        assert_eq!(
            setup
                .database
                .number("SELECT count(*) FROM memory.message")
                .await,
            0
        );
        // Positions continue, and ids can be used again.
        let again = setup.add(&joy, &mine, said()).await.unwrap();
        assert_eq!([again[0].position, again[1].position], [3, 4]);
        assert_eq!(key_of(&setup, &joy, &mine).await, key);
        let read = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        assert_eq!(read.await.unwrap().conversation.messages, 2);
    }
}

#[tokio::test]
async fn a_long_conversation_is_gone_at_once_and_its_rows_soon() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        for _ in 0..6 {
            let batch = vec![person("tooth"); 200];
            setup.add(&joy, &mine, batch).await.unwrap();
        }
        setup
            .memory
            .delete(on_behalf_of(&joy), &mine)
            .await
            .unwrap();
        let bodies = "SELECT count(*) FROM memory.message WHERE body IS NOT NULL";
        assert_eq!(setup.database.number(bodies).await, 0);
        let to_empty = "SELECT count(*) FROM memory.conversation WHERE emptied_to < cleared_to";
        assert_eq!(setup.database.number(to_empty).await, 0);
    }
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_erased() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("hello")])
            .await;
        let key = key_of(&setup, &joy, &mine).await;
        setup.audit.fails();
        let refused = ErrorReason::NotDurable;
        assert_eq!(
            reason(setup.memory.delete(on_behalf_of(&joy), &mine).await),
            refused
        );
        assert_eq!(reason(setup.operator.erase(&ada(), key).await), refused);
        let target = HoldTarget::Conversation(key);
        let held = setup.operator.set_hold(&ada(), &target, true).await;
        assert_eq!(reason(held), refused);
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ["hello"]);
        assert_eq!(reason(setup.operator.list_holds(&ada()).await), refused);
        setup.audit.recovers();
        assert!(setup.operator.list_holds(&ada()).await.unwrap().is_empty());
        setup.operator.erase(&ada(), key).await.unwrap();
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
        assert_eq!(setup.changes()[0].actor, "ada");
    }
}

#[tokio::test]
async fn what_is_held_is_neither_erased_nor_cleared_nor_ended_by_retention() {
    let keep_a_day = |store| Config {
        retention: vec![Retention {
            tenant: None,
            days: 1.try_into().unwrap(),
        }],
        ..Config::for_store(store)
    };
    for setup in Setup::each_with(keep_a_day).await {
        let joy = caller("nurse.joy", "north");
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("hello")])
            .await;
        let key = key_of(&setup, &joy, &mine).await;
        setup.pass(Duration::from_hours(48));
        for target in [
            HoldTarget::Conversation(key),
            HoldTarget::Person {
                tenant: "north".to_owned(),
                subject: "nurse.joy".to_owned(),
            },
            HoldTarget::Tenant("north".to_owned()),
        ] {
            setup
                .operator
                .set_hold(&ada(), &target, true)
                .await
                .unwrap();
            let holds = setup.operator.list_holds(&ada()).await.unwrap();
            assert_eq!((holds.len(), &holds[0].target), (1, &target));
            let held = ErrorReason::Held;
            assert_eq!(
                reason(setup.memory.delete(on_behalf_of(&joy), &mine).await),
                held
            );
            assert_eq!(
                reason(setup.memory.clear(on_behalf_of(&joy), &mine).await),
                held
            );
            assert_eq!(reason(setup.operator.erase(&ada(), key).await), held);
            setup.maintenance.sweep().await;
            assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ["hello"]);
            let (skeletons, _) = setup
                .operator
                .survey(&ada(), "north", "", 0, "")
                .await
                .unwrap();
            assert!(skeletons[0].held);
            setup
                .operator
                .set_hold(&ada(), &target, false)
                .await
                .unwrap();
        }
        let other = HoldTarget::Tenant("south".to_owned());
        setup.operator.set_hold(&ada(), &other, true).await.unwrap();
        setup.maintenance.sweep().await;
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
        let actions: Vec<_> = setup.changes().into_iter().map(|one| one.action).collect();
        let pair = ["hold.set", "hold.lift"];
        let expected = [&pair[..], &pair, &pair, &["hold.set", "conversation.erase"]].concat();
        assert_eq!(actions, expected);
        assert_eq!(setup.changes().last().unwrap().actor, "(retention)");
        let unknown = HoldTarget::Conversation(ConversationKey::new(&Ambient::system()));
        let held = setup.operator.set_hold(&ada(), &unknown, true).await;
        assert_eq!(reason(held), ErrorReason::UnknownConversation);
    }
}

#[tokio::test]
async fn conversations_are_kept_as_long_as_the_rule_of_their_tenant_says() {
    let rules = |store| Config {
        retention: serde_json::from_str(r#"[{"tenant":"north","days":1},{"tenant":"","days":3}]"#)
            .unwrap(),
        ..Config::for_store(store)
    };
    for setup in Setup::each_with(rules).await {
        let callers = ["north", "", "south"].map(|tenant| caller("nurse.joy", tenant));
        for caller in &callers {
            setup.create_conversation(caller, "chat").await;
        }
        for (days, kept) in [(0, 3), (2, 2), (2, 1), (9_000, 1)] {
            setup.pass(Duration::from_hours(24) * days);
            setup.maintenance.sweep().await;
            let (skeletons, _) = setup.operator.survey(&ada(), "", "", 0, "").await.unwrap();
            let alive = skeletons.iter().filter(|one| one.erased_at.is_none());
            assert_eq!(alive.count(), kept, "{days} days later");
        }
    }
}

#[tokio::test]
async fn what_is_used_while_it_is_about_to_expire_is_kept() {
    const USE: &str = "UPDATE memory.conversation SET updated_at = 1900000000000000";
    let keep_a_day = |store| Config {
        retention: serde_json::from_str(r#"[{"days":1}]"#).unwrap(),
        ..Config::for_store(store)
    };
    for setup in Setup::each_with(keep_a_day).await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("hello")])
            .await;
        setup.pass(Duration::from_hours(48));
        setup.after_next_change(USE);
        setup.maintenance.sweep().await;
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ["hello"]);
        let failed = setup.changes().into_iter().map(|one| one.failed);
        assert_eq!(failed.collect::<Vec<_>>(), [false, true]);
        // The owner can delete the conversation however new it is.
        setup
            .memory
            .delete(on_behalf_of(&joy), &mine)
            .await
            .unwrap();
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
    }
}

#[tokio::test]
async fn operators_survey_skeletons_a_page_at_a_time() {
    for setup in Setup::each().await {
        for n in 0..5 {
            setup
                .create_conversation(&caller("nurse.joy", "north"), &format!("{n}"))
                .await;
            setup
                .create_conversation(&caller("nurse.jim", "south"), &format!("{n}"))
                .await;
        }
        for (tenant, subject, count) in [
            ("", "", 10),
            ("north", "", 5),
            ("", "nurse.jim", 5),
            ("north", "nurse.jim", 0),
        ] {
            let (mut keys, mut token) = (Vec::new(), Some(String::new()));
            while let Some(from) = token {
                let page = setup
                    .operator
                    .survey(&ada(), tenant, subject, 3, &from)
                    .await;
                let (page, next) = page.unwrap();
                keys.extend(page.into_iter().map(|one| one.key));
                token = next;
            }
            assert_eq!(keys.len(), count, "{tenant} {subject}");
            assert!(keys.is_sorted_by(|one, other| one > other));
        }
    }
}

#[tokio::test]
async fn what_was_recorded_and_then_not_done_is_recorded_as_failed() {
    const HOLD: &str = "INSERT INTO memory.hold VALUES ('tenant', '', '', 'quicker', 0)";
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("hello")])
            .await;
        setup.after_next_change(HOLD);
        let deleted = setup.memory.delete(on_behalf_of(&joy), &mine).await;
        assert_eq!(reason(deleted), ErrorReason::Held);
        let changes = setup.changes();
        let failed: Vec<_> = changes.iter().map(|change| change.failed).collect();
        assert_eq!(failed, [false, true]);
        assert_eq!(changes[0].target, changes[1].target);
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), ["hello"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clearing_and_adding_at_once_leave_no_gap_and_no_rest() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let clears = async {
            for _ in 0..10 {
                setup.memory.clear(on_behalf_of(&joy), &mine).await.unwrap();
            }
        };
        let adds = async {
            let mut last = 0;
            for n in 0..40 {
                // The same few ids are sent repeatedly, as by a client that retries.
                let message = with_id(&format!("m-{}", n % 3), person("same"));
                let added = setup.add(&joy, &mine, vec![message, model("new")]).await;
                let position = added.unwrap()[1].position;
                assert!(position == last + 1 || position == last + 2);
                last = position;
            }
        };
        tokio::join!(clears, adds);
        setup.memory.clear(on_behalf_of(&joy), &mine).await.unwrap();
        let rows = setup
            .database
            .number("SELECT count(*) FROM memory.message")
            .await;
        let words = setup
            .database
            .number("SELECT count(*) FROM memory.message_words")
            .await;
        assert_eq!((rows, words), (0, 0));
    }
}

#[tokio::test]
async fn what_is_cleared_and_not_yet_removed_is_as_good_as_gone() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let first = || {
            vec![
                with_id("m-1", person("tooth")),
                with_id("m-2", model("ache")),
            ]
        };
        setup
            .add_to_turn(&joy, &mine, "t", TurnState::Open, first())
            .await
            .unwrap();
        setup
            .add(&joy, &mine, vec![with_id("m-3", person("tooth"))])
            .await
            .unwrap();
        // The state after a crash right after a clear.
        let clear = "UPDATE memory.conversation SET cleared_to = positions, messages = 0";
        setup.database.execute(clear).await;

        assert!(setup.context(&joy, &mine).await.messages.is_empty());
        let turn = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn_id("t"))
            .await;
        assert!(turn.unwrap().is_none());
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "tooth", None, 0)
            .await;
        assert!(hits.unwrap().is_empty());
        let again = vec![with_id("m-1", person("other"))];
        let complete = TurnState::Complete;
        let added = setup
            .add_to_turn(&joy, &mine, "t", complete, again)
            .await
            .unwrap();
        assert_eq!(added[0].position, 4);
        for _ in 0..2 {
            let read = setup.memory.read_conversation(
                on_behalf_of(&joy),
                ConversationSelector::Own(&mine),
                0,
                0,
            );
            let read = read.await.unwrap();
            assert_eq!(texts(&read.messages), ["other"]);
            assert_eq!(read.conversation.messages, 1);
            setup.maintenance.sweep().await;
        }
        assert_eq!(
            setup
                .database
                .number("SELECT count(*) FROM memory.message")
                .await,
            1
        );
    }
}

#[tokio::test]
async fn whom_no_policy_lets_manage_conversations_changes_and_lists_nothing_and_that_is_on_record()
{
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("hello")])
            .await;
        let key = key_of(&setup, &joy, &mine).await;
        let target = HoldTarget::Conversation(key);
        // A caller whom the policy denies, and an allowed one who belongs to a tenant.
        for (subject, tenant) in [("mallory", ""), (MANAGER, "north")] {
            let token = token_of(&caller(subject, tenant));
            let refused = [
                reason(setup.operator.erase(&token, key).await),
                reason(setup.operator.set_hold(&token, &target, true).await),
                reason(setup.operator.survey(&token, "", "", 0, "").await),
                reason(setup.operator.list_holds(&token).await),
            ];
            assert_eq!(refused, [ErrorReason::Denied; 4], "{subject} {tenant}");
            let tried = setup.audit.changes.entries();
            let tried: Vec<_> = tried.iter().rev().take(4).rev().collect();
            let actions = tried.iter().map(|one| one.action.as_str());
            let expected = [
                "conversation.erase",
                "hold.set",
                "conversation.list",
                "hold.list",
            ];
            assert_eq!(actions.collect::<Vec<_>>(), expected);
            assert!(tried.iter().all(|one| one.actor == subject));
            assert!(tried.iter().all(|one| !one.is_allowed()));
        }
        let no_token = BearerToken::new("");
        let refused = setup.operator.erase(&no_token, key).await;
        assert_eq!(reason(refused), ErrorReason::TokenRefused);
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ["hello"]);
        assert!(setup.operator.list_holds(&ada()).await.unwrap().is_empty());
        let listed = setup.audit.changes.entries();
        let listed = listed.last().unwrap();
        assert_eq!(
            (listed.action.as_str(), listed.failed),
            ("hold.list", false)
        );
        assert_eq!(listed.actor, MANAGER);
    }
}
