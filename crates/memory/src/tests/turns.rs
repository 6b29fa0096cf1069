use wardgate_rpc::client::ConversationSelector;

use super::*;

#[tokio::test]
async fn an_open_turn_is_seen_by_none_but_who_goes_on_with_it() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("before")])
            .await;
        let open = TurnState::Open;
        let turn = |state, messages| setup.add_to_turn(&joy, &mine, "t", state, messages);
        turn(open, vec![person("question")]).await.unwrap();
        turn(open, vec![model("thinking")]).await.unwrap();
        setup
            .add(&joy, &mine, vec![person("between")])
            .await
            .unwrap();

        assert_eq!(
            texts(&setup.context(&joy, &mine).await.messages),
            ["before", "between"]
        );
        let read = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        let read = read.await.unwrap();
        assert_eq!((read.messages.len(), read.conversation.messages), (2, 2));
        let found = setup
            .memory
            .search(on_behalf_of(&joy), "thinking", None, 0)
            .await
            .unwrap();
        assert!(found.is_empty());
        let so_far = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn_id("t"))
            .await;
        let so_far = so_far.unwrap().unwrap();
        assert_eq!(so_far.state, open);
        assert_eq!(texts(&so_far.messages), ["question", "thinking"]);

        turn(TurnState::Complete, vec![model("answer")])
            .await
            .unwrap();
        let said = ["before", "question", "thinking", "between", "answer"];
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), said);
        let read = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        assert_eq!(read.await.unwrap().conversation.messages, 5);
    }
}

#[tokio::test]
async fn a_turn_ends_once_and_for_ever() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let (open, complete, abandoned) =
            (TurnState::Open, TurnState::Complete, TurnState::Abandoned);
        for (name, end) in [("done", complete), ("given up", abandoned)] {
            let first = || vec![with_id(name, person("question"))];
            let turn = |state, messages| setup.add_to_turn(&joy, &mine, name, state, messages);
            turn(open, first()).await.unwrap();
            turn(end, Vec::new()).await.unwrap();
            // Retries change nothing, however late.
            turn(end, Vec::new()).await.unwrap();
            turn(open, first()).await.unwrap();
            turn(end, first()).await.unwrap();
            let other_end = if end == complete { abandoned } else { complete };
            for (state, messages) in [
                (open, vec![model("more")]),
                (end, vec![model("more")]),
                (other_end, Vec::new()),
                (open, Vec::new()),
            ] {
                assert_eq!(reason(turn(state, messages).await), ErrorReason::Conflict);
            }
            let found = setup
                .memory
                .get_turn(on_behalf_of(&joy), &mine, &turn_id(name))
                .await;
            let found = found.unwrap().unwrap();
            assert_eq!((found.state, found.messages.len()), (end, 1));
        }
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), ["question"]);
        let none = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn_id("none"))
            .await;
        assert!(none.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_message_sent_twice_is_stored_once() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let message = || with_id("m", result_of("read", "{}", "a result"));
        let first = setup.add(&joy, &mine, vec![message()]).await.unwrap();
        let again = setup
            .add(&joy, &mine, vec![message(), person("new")])
            .await
            .unwrap();
        assert_eq!(first[0].position, again[0].position);
        assert_eq!((first[0].time, again[1].position), (again[0].time, 2));

        let other_text = with_id("m", result_of("read", "{}", "another result"));
        let other_call = with_id("m", result_of("read", r#"{"a":1}"#, "a result"));
        for other in [other_text, other_call, with_id("m", person("a result"))] {
            // A batch is added atomically.
            let batch = vec![person("not stored"), other];
            assert_eq!(
                reason(setup.add(&joy, &mine, batch).await),
                ErrorReason::Conflict
            );
        }
        let in_a_turn = setup.add_to_turn(&joy, &mine, "t", TurnState::Open, vec![message()]);
        assert_eq!(reason(in_a_turn.await), ErrorReason::Conflict);
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), ["a result", "new"]);
    }
}

#[tokio::test]
async fn an_open_turn_that_nobody_goes_on_with_is_given_up_after_a_day() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let state = async |name: &str| {
            let turn = setup
                .memory
                .get_turn(on_behalf_of(&joy), &mine, &turn_id(name))
                .await;
            turn.unwrap().unwrap().state
        };
        for name in ["stale", "alive"] {
            let first = vec![person("question")];
            setup
                .add_to_turn(&joy, &mine, name, TurnState::Open, first)
                .await
                .unwrap();
        }
        setup.pass(Duration::from_hours(23));
        let more = vec![model("still here")];
        setup
            .add_to_turn(&joy, &mine, "alive", TurnState::Open, more)
            .await
            .unwrap();
        setup.maintenance.sweep().await;
        assert_eq!(state("stale").await, TurnState::Open);
        setup.pass(Duration::from_hours(2));
        setup.maintenance.sweep().await;
        assert_eq!(state("stale").await, TurnState::Abandoned);
        assert_eq!(state("alive").await, TurnState::Open);
    }
}

#[tokio::test]
async fn a_turn_is_bounded() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let turn = |messages| setup.add_to_turn(&joy, &mine, "t", TurnState::Open, messages);
        for _ in 0..5 {
            turn(vec![person("x"); 200]).await.unwrap();
        }
        assert_eq!(reason(turn(vec![person("x")]).await), ErrorReason::Conflict);
        let found = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn_id("t"))
            .await;
        assert_eq!(found.unwrap().unwrap().messages.len(), 1_000);
    }
}

#[tokio::test]
async fn a_window_holds_the_last_messages_that_fit_by_count_and_by_tokens() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let messages = (1..=30).map(|n| person(&format!("{n:08}"))).collect();
        setup.add(&joy, &mine, messages).await.unwrap();
        let window = async |messages, tokens| {
            let window = setup
                .memory
                .get_context(on_behalf_of(&joy), &mine, messages, tokens);
            let window = window.await.unwrap();
            (window.messages.len() as u64, window.uncovered)
        };
        assert_eq!(window(0, 0).await, (20, 10));
        assert_eq!(window(5, 0).await, (5, 25));
        assert_eq!(window(1_000, 0).await, (30, 0));
        // Eight characters count as two tokens.
        assert_eq!(window(0, 7).await, (3, 27));
        assert_eq!(window(0, 1).await, (0, 30));
        let window = setup
            .memory
            .get_context(on_behalf_of(&joy), &mine, 2, 0)
            .await
            .unwrap();
        assert_eq!(texts(&window.messages), ["00000029", "00000030"]);
    }
}

#[tokio::test]
async fn a_window_never_begins_with_results_of_calls_it_leaves_out() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let turn = vec![
            person("question"),
            model("calls"),
            result_of("read", "{}", "one"),
            result_of("read", "{}", "two"),
            model("answer"),
        ];
        setup
            .add_to_turn(&joy, &mine, "t", TurnState::Complete, turn)
            .await
            .unwrap();
        for (max, said) in [
            (3, &["answer"][..]),
            (4, &["calls", "one", "two", "answer"]),
            (5, &["question", "calls", "one", "two", "answer"]),
        ] {
            let window = setup
                .memory
                .get_context(on_behalf_of(&joy), &mine, max, 0)
                .await
                .unwrap();
            assert_eq!(texts(&window.messages), said);
            assert_eq!(window.uncovered, 5 - said.len() as u64);
        }
        // If all messages of a conversation are results, the last ones are returned all the same.
        let alone = setup.create_conversation(&joy, "alone").await;
        for _ in 0..3 {
            let result = vec![result_of("read", "{}", "result")];
            setup.add(&joy, &alone, result).await.unwrap();
        }
        let window = setup
            .memory
            .get_context(on_behalf_of(&joy), &alone, 2, 0)
            .await
            .unwrap();
        assert_eq!(texts(&window.messages), ["result", "result"]);
    }
}

#[tokio::test]
async fn a_summary_stands_for_what_the_window_leaves_out() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let messages = (1..=10).map(|n| person(&n.to_string())).collect();
        setup.add(&joy, &mine, messages).await.unwrap();
        let window = async |max| {
            let window = setup
                .memory
                .get_context(on_behalf_of(&joy), &mine, max, 0)
                .await
                .unwrap();
            let summary = window.summary.map(|summary| summary.content);
            (summary, window.messages.len(), window.uncovered)
        };
        assert_eq!(window(4).await, (None, 4, 6));
        setup
            .add(&joy, &mine, vec![summary("1 to 3", 3)])
            .await
            .unwrap();
        let first = Some("1 to 3".to_owned());
        assert_eq!(window(4).await, (first.clone(), 4, 3));
        assert_eq!(window(8).await, (first, 8, 0));
        // The summary covers nothing that is left out.
        assert_eq!(window(10).await, (None, 10, 0));
        setup
            .add(&joy, &mine, vec![summary("1 to 6", 6)])
            .await
            .unwrap();
        assert_eq!(window(4).await, (Some("1 to 6".to_owned()), 4, 0));
    }
}
