use super::*;

#[tokio::test]
async fn messages_are_found_by_all_of_their_words_newest_first() {
    for setup in Setup::each().await {
        let joy = joy();
        let (one, other) = (
            setup.create_conversation(&joy, "one").await,
            setup.create_conversation(&joy, "other").await,
        );
        for (id, text) in [
            (&one, "Tôi bị đau răng"),
            (&other, "My TOOTH hurts, doctor!"),
            (&one, "a tooth for a tooth"),
            (&one, "12345678 1e5"),
        ] {
            setup.add(&joy, id, vec![person(text)]).await.unwrap();
        }
        let result = vec![result_of("read", "{}", "tooth")];
        setup.add(&joy, &one, result).await.unwrap();
        let search = async |query: &str, within: Option<&ConversationId>, limit| {
            let hits = setup
                .memory
                .search(on_behalf_of(&joy), query, within, limit)
                .await
                .unwrap();
            let hits = hits.into_iter();
            hits.map(|hit| {
                (
                    hit.conversation_id.as_str().to_owned(),
                    hit.message.position,
                )
            })
            .collect::<Vec<_>>()
        };
        let hit = |id: &str, position| (id.to_owned(), position);
        assert_eq!(
            search("tooth", None, 0).await,
            [hit("one", 2), hit("other", 1)]
        );
        assert_eq!(search("tooth", None, 1).await, [hit("one", 2)]);
        assert_eq!(search("tooth", Some(&other), 0).await, [hit("other", 1)]);
        assert_eq!(search("hurts tooth", None, 0).await, [hit("other", 1)]);
        assert_eq!(search("DAU rang", None, 0).await, [hit("one", 1)]);
        assert_eq!(search("1e5", None, 0).await, [hit("one", 3)]);
        for nothing in [
            "teeth",
            "",
            " !? ",
            "tooth nowhere",
            "\" OR *",
            "'; DROP TABLE",
        ] {
            assert!(search(nothing, None, 0).await.is_empty(), "{nothing}");
        }
    }
}

#[tokio::test]
async fn what_was_cleared_is_not_found() {
    for setup in Setup::each().await {
        let joy = joy();
        let mine = setup
            .create_conversation_with(&joy, "chat", vec![person("tooth")])
            .await;
        setup.memory.clear(on_behalf_of(&joy), &mine).await.unwrap();
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "tooth", None, 0)
            .await
            .unwrap();
        assert!(hits.is_empty());
        setup
            .add(&joy, &mine, vec![person("tooth again")])
            .await
            .unwrap();
        let hits = setup
            .memory
            .search(on_behalf_of(&joy), "tooth", None, 0)
            .await
            .unwrap();
        assert_eq!(hits.len(), 1);
    }
}
