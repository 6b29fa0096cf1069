use wardgate_domain::{ConversationKey, HoldTarget};
use wardgate_rpc::client::ConversationSelector;

use wardgate_testkit::CapturedLog;

use super::*;

#[tokio::test]
async fn neither_logs_nor_errors_repeat_what_a_person_wrote() {
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.writer())
        .with_max_level(tracing::Level::TRACE)
        .finish();
    // A subscriber for the whole process, so that logs of the other tests are checked too.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut errors = String::new();
    for setup in Setup::each().await {
        let joy = joy();
        let memory = &setup.memory;
        let mine = setup.create_conversation(&joy, "canary id").await;
        let key = memory
            .get_or_create(on_behalf_of(&joy), Some(&mine))
            .await
            .unwrap()
            .0
            .key;
        let turn = turn_id("canary turn");
        let said = || {
            vec![
                with_id("canary message", person("canary text")),
                model("canary answer"),
            ]
        };
        let state = TurnState::Complete;
        setup
            .add_to_turn(&joy, &mine, turn.as_str(), state, said())
            .await
            .unwrap();
        let result = || vec![result_of("read", r#"{"a":"canary"}"#, "canary result")];
        setup.add(&joy, &mine, result()).await.unwrap();
        memory
            .search(on_behalf_of(&joy), "canary", None, 0)
            .await
            .unwrap();
        setup.context(&joy, &mine).await;

        let mut failed = |error: Option<CallError>| errors += &format!("{0} {0:?}", error.unwrap());
        failed(setup.add(&joy, &mine, said()).await.err());
        let open = TurnState::Open;
        failed(
            setup
                .add_to_turn(&joy, &mine, turn.as_str(), open, result())
                .await
                .err(),
        );
        failed(
            memory
                .clear(on_behalf_of(&joy), &id("canary unknown"))
                .await
                .err(),
        );
        let bad_token = memory
            .list_conversations(on_behalf_of(&joy), 0, "canary")
            .await;
        failed(bad_token.err());
        setup.policy.is_down(true);
        failed(setup.add(&joy, &mine, result()).await.err());
        setup.context(&joy, &mine).await;
        setup.policy.is_down(false);
        let unknown = HoldTarget::Conversation(ConversationKey::new(&Ambient::system()));
        failed(setup.operator.set_hold(&ada(), &unknown, true).await.err());
        // Damage that is detected when the message is read.
        setup
            .database
            .execute("UPDATE memory.message SET position = position + 7")
            .await;
        failed(
            memory
                .get_context(on_behalf_of(&joy), &mine, 0, 0)
                .await
                .err(),
        );
        failed(
            memory
                .read_conversation(on_behalf_of(&joy), ConversationSelector::Key(key), 0, 0)
                .await
                .err(),
        );
        memory.delete(on_behalf_of(&joy), &mine).await.unwrap();
        setup.database.execute("DROP TABLE memory.hold").await;
        failed(
            memory
                .get_or_create(on_behalf_of(&joy), Some(&id("canary broken")))
                .await
                .err(),
        );
    }
    let logged = log.text();
    assert!(
        logged.contains("a conversation was erased"),
        "the log is read"
    );
    assert!(logged.contains("is not available"), "failures are logged");
    for text in [logged, errors] {
        let found = text.lines().find(|line| line.contains("canary"));
        assert_eq!(found, None);
    }
}
