use wardgate_rpc::client::ConversationSelector;

use super::*;

fn of_other_issuer(subject: &str) -> Caller {
    caller_of("https://other.example", "", subject)
}

#[tokio::test]
async fn what_is_said_comes_back_as_it_was_said_after_a_restart_too() {
    for setup in Setup::each().await {
        let joy = joy();
        let (conversation, created) = setup
            .memory
            .get_or_create(on_behalf_of(&joy), Some(&id("đau răng?")))
            .await
            .unwrap();
        assert!(created);
        let said = vec![
            with_id("m-1", person("My tooth\0 hurts 🦷")),
            NewMessage {
                calls: Bytes::from_static(
                    br#"[{"id":"call-1","name":"read","arguments":{"n":1.10}}]"#,
                ),
                ..model("Let me look.")
            },
            NewMessage {
                is_error: true,
                ..result_of("read", r#"{"n":1.10}"#, "no such patient")
            },
            model("I found nothing."),
        ];
        let added = setup
            .add(&joy, &conversation.id, said.clone())
            .await
            .unwrap();
        assert_eq!(added[0].id.as_str(), "m-1");
        let positions: Vec<_> = added.iter().map(|message| message.position).collect();
        assert_eq!(positions, [1, 2, 3, 4]);
        assert!(added.iter().all(|message| message.content.is_empty()));

        // Restarts the service.
        let config = Config::for_store(setup.database.url());
        let later = Setup::over(setup.database, config).await;
        let (same, created) = later
            .memory
            .get_or_create(on_behalf_of(&joy), Some(&conversation.id))
            .await
            .unwrap();
        assert!(!created && same.key == conversation.key && same.messages == 4);
        let context = later.context(&joy, &conversation.id).await;
        assert_eq!(context.messages.len(), said.len());
        for (said, message) in said.iter().zip(&context.messages) {
            assert_eq!(said.content, message.content);
            assert_eq!((said.role, said.source), (message.role, message.source));
            assert_eq!(said.calls, message.calls);
            assert_eq!(said.call, message.call);
            assert_eq!(said.is_error, message.is_error);
        }
        assert_eq!(context.messages[0].author, "nurse.joy");
        assert_eq!(context.messages[1].author, "llama");
        assert!(context.messages[2].policy_hash.is_some());
    }
}

#[tokio::test]
async fn anothers_conversation_is_as_unknown_as_none() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("secret")])
            .await;
        let own = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        let key = own.await.unwrap().conversation.key;
        for other in [
            caller("nurse.jim", ""),
            caller("nurse.joy", "north"),
            of_other_issuer("nurse.joy"),
        ] {
            let of = on_behalf_of(&other);
            let memory = &setup.memory;
            let unknown = ErrorReason::UnknownConversation;
            assert!(setup.context(&other, &mine).await.messages.is_empty());
            let message = vec![person("hello")];
            assert_eq!(reason(setup.add(&other, &mine, message).await), unknown);
            let t = turn_id("t");
            let turn = memory.get_turn(of, &mine, &t);
            assert_eq!(reason(turn.await), unknown);
            assert_eq!(reason(memory.clear(of, &mine).await), unknown);
            assert_eq!(reason(memory.delete(of, &mine).await), unknown);
            for which in [
                ConversationSelector::Own(&mine),
                ConversationSelector::Key(key),
            ] {
                let read = memory.read_conversation(of, which, 0, 0).await.unwrap_err();
                let id = id("no such conversation");
                let none = memory
                    .read_conversation(of, ConversationSelector::Own(&id), 0, 0)
                    .await;
                assert_eq!(read.reason(), unknown);
                assert_eq!(read.to_string(), none.unwrap_err().to_string());
            }
            let hits = memory.search(of, "secret", None, 0).await.unwrap();
            assert!(hits.is_empty());
            let (listed, _) = memory.list_conversations(of, 0, "").await.unwrap();
            assert!(listed.is_empty());
            // Another owner can use the same id.
            let (theirs, created) = memory.get_or_create(of, Some(&mine)).await.unwrap();
            assert!(created && theirs.key != key);
        }
        assert_eq!(
            texts(&setup.context(&joy, &mine).await.messages),
            ["secret"]
        );
    }
}

#[tokio::test]
async fn a_conversation_is_shared_only_where_the_policy_says_so_and_only_for_reading() {
    for setup in Setup::each().await {
        let (joy, jim) = (joy(), caller("nurse.jim", ""));
        let mine = setup.create_conversation(&joy, "chat").await;
        let said = vec![
            person("hello"),
            result_of("read", "{}", "a result"),
            model("bye"),
        ];
        setup
            .add_to_turn(&joy, &mine, "t", TurnState::Complete, said)
            .await
            .unwrap();
        let own = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        let own = own.await.unwrap();
        assert_eq!(own.recall, None);
        let key = own.conversation.key;
        let read = || {
            setup
                .memory
                .read_conversation(on_behalf_of(&jim), ConversationSelector::Key(key), 0, 0)
        };
        assert_eq!(reason(read().await), ErrorReason::UnknownConversation);

        setup.policy.share("nurse.jim", key);
        let shared = read().await.unwrap();
        assert!(shared.conversation.shared);
        let decision = shared.recall.unwrap();
        assert_eq!(decision.policy_hash, Digest::compute(b"policies"));
        assert_eq!(texts(&shared.messages), ["hello", "a result", "bye"]);
        // A conversation is not shared with another tenant, nor with a namesake of another issuer, whatever the policy
        // says.
        let elsewhere = caller("nurse.jim", "north");
        let namesake = of_other_issuer("nurse.joy");
        setup.policy.share("nurse.joy", key);
        for stranger in [&elsewhere, &namesake] {
            let read = setup.memory.read_conversation(
                on_behalf_of(stranger),
                ConversationSelector::Key(key),
                0,
                0,
            );
            assert_eq!(reason(read.await), ErrorReason::UnknownConversation);
        }
        // Shared messages are filtered by the rights of the reader.
        setup.policy.deny("nurse.jim", "read");
        assert_eq!(texts(&read().await.unwrap().messages), ["hello", "", ""]);
        let id = id(&key.to_string());
        let added = setup.add(&jim, &id, vec![person("x")]).await;
        assert_eq!(reason(added), ErrorReason::UnknownConversation);
        let deleted = setup.memory.delete(on_behalf_of(&jim), &id).await;
        assert_eq!(reason(deleted), ErrorReason::UnknownConversation);
    }
}

#[tokio::test]
async fn without_an_id_every_conversation_is_a_new_one() {
    for setup in Setup::each().await {
        let joy = joy();
        let (one, created) = setup
            .memory
            .get_or_create(on_behalf_of(&joy), None)
            .await
            .unwrap();
        let (other, _) = setup
            .memory
            .get_or_create(on_behalf_of(&joy), None)
            .await
            .unwrap();
        assert!(created && one.id != other.id);
        let (again, created) = setup
            .memory
            .get_or_create(on_behalf_of(&joy), Some(&one.id))
            .await
            .unwrap();
        assert!(!created && again.key == one.key);
    }
}

#[tokio::test]
async fn conversations_are_listed_newest_change_first_a_page_at_a_time() {
    for setup in Setup::each().await {
        let joy = joy();
        for n in 0..7 {
            setup.create_conversation(&joy, &format!("chat {n}")).await;
        }
        setup
            .add(&joy, &id("chat 3"), vec![person("hello")])
            .await
            .unwrap();
        let (mut listed, mut token) = (Vec::new(), Some(String::new()));
        while let Some(from) = token {
            let page = setup
                .memory
                .list_conversations(on_behalf_of(&joy), 3, &from);
            let (page, next) = page.await.unwrap();
            assert!(page.len() <= 3);
            listed.extend(page.into_iter().map(|one| one.id.as_str().to_owned()));
            token = next;
        }
        let order = [3, 6, 5, 4, 2, 1, 0].map(|n| format!("chat {n}"));
        assert_eq!(listed, order);
        let bad = setup
            .memory
            .list_conversations(on_behalf_of(&joy), 3, "' OR 1=1")
            .await;
        assert_eq!(reason(bad), ErrorReason::InvalidMessage);
    }
}

#[tokio::test]
async fn a_conversation_is_read_whole_page_by_page() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let said: Vec<_> = (1..=25).map(|n| format!("text {n}")).collect();
        let messages = said.iter().map(|text| person(text)).collect();
        setup.add(&joy, &mine, messages).await.unwrap();
        let (mut read, mut after) = (Vec::new(), 0);
        loop {
            let page = setup.memory.read_conversation(
                on_behalf_of(&joy),
                ConversationSelector::Own(&mine),
                after,
                10,
            );
            let page = page.await.unwrap();
            assert!(page.messages.len() <= 10);
            after = page.messages.last().unwrap().position;
            read.extend(page.messages.into_iter().map(|message| message.content));
            if !page.more {
                break;
            }
        }
        assert_eq!(read, said);
    }
}

#[tokio::test]
async fn large_messages_are_read_a_bounded_number_of_bytes_at_a_time() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let large = "x".repeat(1_000_000);
        for _ in 0..5 {
            let batch = (0..5).map(|_| person(&large)).collect();
            setup.add(&joy, &mine, batch).await.unwrap();
        }
        let page = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            500,
        );
        let page = page.await.unwrap();
        assert_eq!((page.messages.len(), page.more), (16, true));
        assert_eq!(setup.context(&joy, &mine).await.messages.len(), 16);
    }
}

#[tokio::test]
async fn what_is_too_much_is_refused_by_name_without_repeating_it() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let many = vec![person("canary"); 201];
        let large = vec![person(&"canary".repeat(200_000))];
        let heavy = vec![person(&"canary ".repeat(100_000)); 13];
        let twice = vec![
            with_id("canary", person("a")),
            with_id("canary", person("b")),
        ];
        let ahead = vec![summary("canary", 1)];
        for messages in [many, large, heavy, twice, ahead, Vec::new()] {
            let error = setup.add(&joy, &mine, messages).await.unwrap_err();
            assert_eq!(error.reason(), ErrorReason::InvalidMessage);
            assert!(!format!("{error} {error:?}").contains("canary"));
        }
        let query = "canary ".repeat(40);
        let words: Vec<_> = (0..40).map(|n| format!("canary{n}")).collect();
        setup
            .memory
            .search(on_behalf_of(&joy), &query, None, 0)
            .await
            .unwrap();
        for query in [words.join(" "), "canary".repeat(100)] {
            let refused = setup
                .memory
                .search(on_behalf_of(&joy), &query, None, 0)
                .await;
            assert_eq!(reason(refused), ErrorReason::InvalidMessage);
        }
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
    }
}

#[tokio::test]
async fn a_store_under_another_master_key_is_left_alone() {
    for setup in Setup::each().await {
        let other = MemoryHandler::start(
            Config::for_store(setup.database.url()),
            MasterKey::from_bytes(&[8; 32]),
            Policy::default(),
            setup.audit.client(),
            Ambient::system(),
        );
        let error = other.await.err().unwrap();
        assert!(matches!(error, crate::Error::OtherMasterKey), "{error}");
    }
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_left_alone() {
    for setup in Setup::each().await {
        let newer = if setup.database.is_sqlite() {
            "PRAGMA user_version = 9"
        } else {
            "UPDATE memory.schema_version SET version = 9"
        };
        setup.database.execute(newer).await;
        let start = MemoryHandler::start(
            Config::for_store(setup.database.url()),
            MasterKey::from_bytes(&[7; 32]),
            Policy::default(),
            setup.audit.client(),
            Ambient::system(),
        );
        let error = start.await.err().unwrap();
        assert!(matches!(
            error,
            crate::Error::Schema(wardgate_store::MigrationError::Newer { found: 9, .. })
        ));
    }
}

#[tokio::test]
async fn a_message_whose_columns_were_altered_cannot_be_read() {
    for setup in Setup::each().await {
        let joy = joy();
        let intact = setup.create_conversation(&joy, "intact").await;
        let mine = setup.create_conversation(&joy, "chat").await;
        setup
            .add(&joy, &intact, vec![person("intact")])
            .await
            .unwrap();
        let said = vec![person("tooth"), result_of("read", "{}", "x"), model("seen")];
        let said = setup.add_to_turn(&joy, &mine, "t", TurnState::Complete, said);
        said.await.unwrap();
        let covered = vec![summary("covered", 1)];
        setup.add(&joy, &mine, covered).await.unwrap();
        let page = async |after, limit| {
            let which = ConversationSelector::Own(&mine);
            let read = setup
                .memory
                .read_conversation(on_behalf_of(&joy), which, after, limit);
            read.await.map(|page| page.messages.len())
        };
        // Each column is set to another valid value.
        for (position, column, altered, back) in [
            (2, "rights", "policy_hash", "rights_before"),
            (3, "turn", "'other'", "'t'"),
            (3, "turn", "NULL", "'t'"),
            (3, "source", "1", "2"),
            (2, "role", "2", "3"),
            (3, "role", "1", "2"),
            (4, "covers_to", "2", "1"),
        ] {
            let case = format!("{column} of {position}");
            let alter = |value: &str| {
                format!(
                    "UPDATE memory.message SET {column} = {value} WHERE position = {position}
                     AND body IS NOT NULL AND conversation =
                        (SELECT number FROM memory.conversation WHERE id = 'chat')"
                )
            };
            assert_eq!(page(0, 0).await.unwrap(), 4, "{case}");
            if column == "rights" {
                let keep = "ALTER TABLE memory.message ADD COLUMN rights_before BYTES;
                    UPDATE memory.message SET rights_before = rights";
                let kind = if setup.database.is_sqlite() {
                    "BLOB"
                } else {
                    "bytea"
                };
                setup.database.execute(&keep.replace("BYTES", kind)).await;
            }
            setup.database.execute(&alter(altered)).await;
            assert_eq!(reason(page(0, 0).await), ErrorReason::Internal, "{case}");
            assert_eq!(
                page(0, 1).await.unwrap(),
                1,
                "{case}: what is before it is read"
            );
            let other = setup.context(&joy, &intact).await;
            assert_eq!(texts(&other.messages), ["intact"], "{case}");
            setup.database.execute(&alter(back)).await;
        }
        // A result without rights cannot be judged, so it is an error even if it is not part of the page.
        setup
            .database
            .execute("UPDATE memory.message SET rights = NULL")
            .await;
        assert_eq!(reason(page(2, 1).await), ErrorReason::Internal);
    }
}

#[tokio::test]
async fn an_owner_makes_no_more_conversations_than_the_limit() {
    let two = |store| Config {
        limits: serde_json::from_str(r#"{"conversations":2}"#).unwrap(),
        ..Config::for_store(store)
    };
    for setup in Setup::each_with(two).await {
        let joy = joy();
        let first = setup.create_conversation(&joy, "first").await;
        setup.create_conversation(&joy, "second").await;
        for id in [None, Some(&id("third"))] {
            let made = setup.memory.get_or_create(on_behalf_of(&joy), id).await;
            assert_eq!(reason(made), ErrorReason::Conflict);
        }
        setup.create_conversation(&joy, "first").await;
        setup
            .create_conversation(&caller("nurse.jim", ""), "third")
            .await;
        setup
            .memory
            .delete(on_behalf_of(&joy), &first)
            .await
            .unwrap();
        setup.create_conversation(&joy, "third").await;
    }
}

#[tokio::test]
async fn a_caller_is_whom_the_policy_service_says_the_token_is_of_and_nobody_else() {
    for setup in Setup::each().await {
        let joy = joy();
        let chat = setup.create_conversation(&joy, "chat").await;
        let nobody = joy.clone().with_token(BearerToken::new("invented"));
        let read = setup
            .memory
            .get_context(on_behalf_of(&nobody), &chat, 1, 0)
            .await;
        assert_eq!(reason(read), ErrorReason::TokenRefused);
        // A caller whose request came without a token is refused, even if the caller is known.
        let untold = Caller::from_verified(CallerClaims {
            issuer: joy.issuer().to_owned(),
            tenant: joy.tenant().to_owned(),
            ..claims(joy.subject(), &["Nurse"])
        });
        let read = setup
            .memory
            .get_context(on_behalf_of(&untold), &chat, 1, 0)
            .await;
        assert_eq!(reason(read), ErrorReason::InvalidMessage);
    }
}

#[tokio::test]
async fn a_token_is_verified_again_a_moment_later() {
    for setup in Setup::each().await {
        let joy = joy();
        let chat = setup.create_conversation(&joy, "chat").await;
        assert_eq!(setup.policy.take_identified_count(), 1);
        setup.context(&joy, &chat).await;
        assert_eq!(setup.policy.take_identified_count(), 0);
        setup.pass(Duration::from_secs(5));
        setup.policy.refuse_tokens();
        let read = setup
            .memory
            .get_context(on_behalf_of(&joy), &chat, 1, 0)
            .await;
        assert_eq!(reason(read), ErrorReason::TokenRefused);
    }
}
