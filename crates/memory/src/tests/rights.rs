use wardgate_rpc::client::ConversationSelector;

use super::*;

/// Adds a turn with two results.
async fn turn_with_results(setup: &Setup, joy: &Caller, id: &ConversationId) {
    let turn = vec![
        person("question"),
        model("let me look"),
        result_of("read", "{}", "a result"),
        model("I see a result"),
        result_of("weather", "{}", "rain"),
        NewMessage {
            calls: Bytes::from_static(b"[]"),
            ..model("and rain")
        },
        person("thanks"),
    ];
    let added = setup.add_to_turn(joy, id, "t", TurnState::Complete, turn);
    added.await.unwrap();
    setup
        .add(joy, id, vec![model("another turn")])
        .await
        .unwrap();
}

const ALL: [&str; 8] = [
    "question",
    "let me look",
    "a result",
    "I see a result",
    "rain",
    "and rain",
    "thanks",
    "another turn",
];

const WITHOUT_READ: [&str; 8] = ["question", "let me look", "", "", "rain", "", "thanks", ""];

#[tokio::test]
async fn what_one_may_no_longer_call_is_withheld_with_what_was_written_from_it() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        turn_with_results(&setup, &joy, &mine).await;
        setup.policy.deny("nurse.jim", "read");
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ALL);
        setup.policy.deny("nurse.joy", "read");
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), WITHOUT_READ);
    }
}

#[tokio::test]
async fn every_way_of_reading_asks_again() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        turn_with_results(&setup, &joy, &mine).await;
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ALL);
        setup.policy.narrow("read", "fewer rows");

        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), WITHOUT_READ);
        let withheld: Vec<_> = context.messages.iter().map(|one| one.withheld).collect();
        assert_eq!(withheld, WITHOUT_READ.map(str::is_empty));
        let result = context.messages[2].call.as_ref().unwrap();
        assert_eq!(
            (result.tool.name.as_str(), result.arguments.len()),
            ("read", 0)
        );
        assert!(context.messages[5].calls.is_empty());

        let read = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        assert_eq!(texts(&read.await.unwrap().messages), WITHOUT_READ);
        let turn = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn_id("t"))
            .await;
        assert_eq!(texts(&turn.unwrap().unwrap().messages), WITHOUT_READ[..7]);
        // What was written from the result is withheld even if the window begins after the result.
        for last in [2, 3, 4] {
            let window = setup
                .memory
                .get_context(on_behalf_of(&joy), &mine, last, 0)
                .await
                .unwrap();
            let last = WITHOUT_READ.len() - last as usize;
            // A window does not begin with a result of a call that it leaves out.
            let first = if last == 4 { 5 } else { last };
            assert_eq!(texts(&window.messages), WITHOUT_READ[first..]);
        }
        let page = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            3,
            1,
        );
        assert_eq!(texts(&page.await.unwrap().messages), [""]);
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "rain", None, 0)
            .await
            .unwrap();
        assert!(
            hits.is_empty(),
            "a hit would tell the words of what is withheld"
        );

        // If the rights are restored, everything is readable again.
        setup.policy.narrow("read", "");
        assert_eq!(texts(&setup.context(&joy, &mine).await.messages), ALL);
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "rain", None, 0)
            .await
            .unwrap();
        assert_eq!(hits.len(), 1, "results of tools are not searched");
    }
}

#[tokio::test]
async fn while_the_policy_cannot_be_asked_nothing_that_came_of_a_tool_is_shown() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        turn_with_results(&setup, &joy, &mine).await;
        setup.policy.is_down(true);
        let context = setup.context(&joy, &mine).await;
        let shown = ["question", "let me look", "", "", "", "", "thanks", ""];
        assert_eq!(texts(&context.messages), shown);
        let result = vec![result_of("read", "{}", "a result")];
        let added = setup.add(&joy, &mine, result).await;
        assert_eq!(reason(added), ErrorReason::Unavailable);
        setup.add(&joy, &mine, vec![person("still")]).await.unwrap();
        setup.policy.is_down(false);
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages)[..8], ALL);
    }
}

#[tokio::test]
async fn a_result_of_a_call_that_the_policy_denies_is_not_kept() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        setup.policy.deny("nurse.joy", "read");
        let batch = vec![person("question"), result_of("read", "{}", "a result")];
        let added = setup.add(&joy, &mine, batch).await;
        assert_eq!(reason(added), ErrorReason::Denied);
        assert!(setup.context(&joy, &mine).await.messages.is_empty());
    }
}

#[tokio::test]
async fn calls_are_judged_by_their_arguments_where_those_matter_and_once_where_not() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        let results = || {
            vec![
                result_of("read", r#"{"id":"open"}"#, "open"),
                result_of("read", r#"{"id":"secret"}"#, "closed"),
                result_of("read", r#"{"id":"open"}"#, "open again"),
            ]
        };
        setup.add(&joy, &mine, results()).await.unwrap();
        assert_eq!(setup.policy.questions(), 1);
        setup.context(&joy, &mine).await;
        assert_eq!(setup.policy.questions(), 1);
        setup.policy.judge_arguments("read");
        let context = setup.context(&joy, &mine).await;
        assert_eq!(texts(&context.messages), ["open", "", "open again"]);
        assert_eq!(setup.policy.questions(), 2);
    }
}

#[tokio::test]
async fn a_summary_is_withheld_when_a_result_it_covers_is() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("question")])
            .await;
        setup
            .add(&joy, &mine, vec![summary("a question", 1)])
            .await
            .unwrap();
        turn_with_results(&setup, &joy, &mine).await;
        let summary_of = async || {
            let window = setup
                .memory
                .get_context(on_behalf_of(&joy), &mine, 1, 0)
                .await
                .unwrap();
            window.summary.unwrap().content
        };
        assert_eq!(summary_of().await, "a question");
        setup
            .add(&joy, &mine, vec![summary("a result and rain", 9)])
            .await
            .unwrap();
        assert_eq!(summary_of().await, "a result and rain");
        setup.policy.narrow("read", "fewer rows");
        assert_eq!(summary_of().await, "");
        // The earlier summary is not based on a result.
        let read = setup.memory.read_conversation(
            on_behalf_of(&joy),
            ConversationSelector::Own(&mine),
            0,
            0,
        );
        let read = read.await.unwrap();
        let summaries: Vec<_> = read
            .messages
            .iter()
            .filter(|one| one.covers_to > 0)
            .collect();
        let shown: Vec<_> = summaries.iter().map(|one| one.content.as_str()).collect();
        assert_eq!(shown, ["a question", ""]);
    }
}

#[tokio::test]
async fn what_a_model_wrote_in_later_turns_is_withheld_with_the_result() {
    for setup in Setup::each().await {
        let (joy, jim) = (joy(), caller("nurse.jim", ""));
        let mine = setup.create_conversation(&joy, "chat").await;
        let before = vec![person("hello"), model("hello, about rain?")];
        setup.add(&joy, &mine, before).await.unwrap();
        turn_with_results(&setup, &joy, &mine).await;
        let later = vec![person("again?"), model("a result, as I said, and rain")];
        let later = setup.add_to_turn(&joy, &mine, "later", TurnState::Complete, later);
        later.await.unwrap();
        let key = setup
            .memory
            .get_or_create(on_behalf_of(&joy), Some(&mine))
            .await;
        let key = key.unwrap().0.key;
        setup.policy.share("nurse.jim", key);

        let read = async |reader: &Caller| {
            let memory = &setup.memory;
            // The page begins after the result and its turn.
            let page = memory.read_conversation(
                on_behalf_of(reader),
                ConversationSelector::Key(key),
                10,
                0,
            );
            let page = page.await.unwrap();
            texts(&page.messages).concat()
        };
        let found = async || {
            let hits = setup
                .memory
                .search(on_behalf_of(&joy), "rain", None, 0)
                .await;
            let hits = hits.unwrap().into_iter();
            hits.map(|hit| hit.message.content).collect::<Vec<_>>()
        };
        let said = "a result, as I said, and rain";
        assert_eq!(read(&joy).await, format!("again?{said}"));
        assert_eq!(read(&jim).await, format!("again?{said}"));
        assert_eq!(found().await, [said, "and rain", "hello, about rain?"]);

        setup.policy.deny("nurse.jim", "read");
        assert_eq!(read(&joy).await, format!("again?{said}"));
        assert_eq!(read(&jim).await, "again?");

        setup.policy.deny("nurse.joy", "read");
        assert_eq!(read(&joy).await, "again?");
        assert_eq!(found().await, ["hello, about rain?"]);
        let window = setup
            .memory
            .get_context(on_behalf_of(&joy), &mine, 2, 0)
            .await;
        assert_eq!(texts(&window.unwrap().messages), ["again?", ""]);
        let turn = turn_id("later");
        let turn = setup
            .memory
            .get_turn(on_behalf_of(&joy), &mine, &turn)
            .await;
        assert_eq!(texts(&turn.unwrap().unwrap().messages), ["again?", ""]);
    }
}

#[tokio::test]
async fn what_rests_on_more_kinds_of_results_than_can_be_judged_is_withheld() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup.create_conversation(&joy, "chat").await;
        setup.policy.judge_arguments("read");
        let results = |numbers: std::ops::Range<u32>| {
            let arguments = numbers.map(|number| format!(r#"{{"id":{number}}}"#).leak());
            let results = arguments.map(|arguments| result_of("read", arguments, "x"));
            results.collect::<Vec<_>>()
        };
        setup.add(&joy, &mine, results(0..200)).await.unwrap();
        setup.add(&joy, &mine, vec![model("of 200")]).await.unwrap();
        setup.add(&joy, &mine, results(200..201)).await.unwrap();
        setup.add(&joy, &mine, vec![model("of 201")]).await.unwrap();
        let context = setup.context(&joy, &mine).await;
        let shown = texts(&context.messages);
        assert_eq!(shown[199..], ["x", "of 200", "x", ""]);
    }
}
