//! Remembered conversations as resources.

use serde_json::{Value, json};

use crate::memory::{add, create, create_request, last, modern};
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};

#[tokio::test]
async fn conversations_are_resources_in_every_version() {
    let world = World::start().await;
    for id in ["chat_123456", "a/b c", "x"] {
        create(&world, id).await;
    }
    for version in [MODERN, LEGACY, OLDEST] {
        let mut listed = Vec::new();
        let mut params = json!({});
        loop {
            let reply = Reply::to(create_request(&world, version, "resources/list", &params)).await;
            listed.extend(reply.at("/result/resources").as_array().unwrap().clone());
            if version == MODERN {
                assert_eq!(reply.at("/result/ttlMs"), 0);
                assert_eq!(reply.at("/result/cacheScope"), "private");
            }
            let next = reply.at("/result/nextCursor");
            if next.is_null() {
                break;
            }
            params = json!({ "cursor": next });
        }
        assert_eq!(listed.len(), 3);
        assert_eq!(
            listed[1],
            json!({
                "uri": "memory://conversation/chat_123456",
                "name": "Conversation chat_123",
                "description": "Conversation history for chat_123456",
                "mimeType": "application/json",
            })
        );
        assert_eq!(listed[0]["uri"], "memory://conversation/a%2Fb%20c");
        let reply = Reply::to(create_request(
            &world,
            version,
            "resources/templates/list",
            &json!({}),
        ))
        .await;
        assert_eq!(
            reply.at("/result/resourceTemplates/0/uriTemplate"),
            "memory://conversation/{id}"
        );
    }
    let wrong = Reply::to(create_request(
        &world,
        LEGACY,
        "resources/list",
        &json!({ "cursor": "?" }),
    ))
    .await;
    assert_eq!(wrong.code(), -32602);
    let initialized = world.message(LEGACY, "initialize", r#""protocolVersion":"2025-11-25""#);
    let capabilities = Reply::to(initialized).await.at("/result/capabilities");
    assert_eq!(
        capabilities,
        json!({
            "logging": {},
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
        })
    );
}

#[tokio::test]
async fn a_conversation_is_read_and_exported_a_page_at_a_time() {
    let world = World::start().await;
    create(&world, "a/b c").await;
    for word in ["one", "two", "three", "four", "five"] {
        add(&world, "a/b c", "user", word).await;
    }
    let mut uri = "memory://conversation/a%2Fb%20c".to_owned();
    let mut contents = Vec::new();
    loop {
        let request = create_request(&world, MODERN, "resources/read", &json!({ "uri": uri }));
        let reply = Reply::to(request.header("mcp-name", &uri)).await;
        let resource = reply.at("/result/contents/0");
        assert_eq!(resource["uri"], uri.as_str(), "{reply:?}");
        assert_eq!(resource["mimeType"], "application/json");
        let text: Value = serde_json::from_str(resource["text"].as_str().unwrap()).unwrap();
        assert_eq!(text["conversation_id"], "a/b c");
        for message in text["messages"].as_array().unwrap() {
            contents.push(message["content"].as_str().unwrap().to_owned());
        }
        assert_eq!(
            last(&world).messages,
            text["messages"].as_array().unwrap().len() as u64
        );
        match text["next"].as_str() {
            Some(next) => next.clone_into(&mut uri),
            None => break,
        }
    }
    assert_eq!(contents, ["one", "two", "three", "four", "five"]);
    let reply = modern(&world, "memory/search", json!({ "query": "four" })).await;
    assert_eq!(reply.at("/result/hits/0/conversation_id"), "a/b c");
    assert_eq!(reply.at("/result/hits/0/message/content"), "four");
}
