//! The parameters of the memory methods. An error for an invalid parameter names its field.

use serde_json::{Value, json};

use crate::memory::create_request;
use crate::world::{LEGACY, Reply, World};

/// Checks that each request is refused with an error that contains the name, before the memory service is asked.
async fn are_refused(cases: impl IntoIterator<Item = (&str, Value, &str)>) {
    let world = World::start().await;
    for (method, params, named) in cases {
        let reply = Reply::to(create_request(&world, LEGACY, method, &params)).await;
        assert_eq!(reply.code(), -32602, "{method} {params}: {reply:?}");
        let words = reply.at("/error/message");
        let words = words.as_str().unwrap();
        assert!(words.contains(named), "{method} {params}: {words}");
    }
    assert_eq!(world.memory.asked.count(), 0);
    assert_eq!(world.audit.accesses.count(), 0);
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_named() {
    are_refused([
        (
            "memory/get_or_create",
            json!({ "conversation_id": 7 }),
            "params.conversation_id",
        ),
        (
            "memory/get_or_create",
            json!({ "id": "c" }),
            "the supported fields are conversation_id",
        ),
        (
            "memory/get_context",
            json!({}),
            "params.conversation_id` is missing",
        ),
        (
            "memory/get_context",
            json!({ "conversation_id": "c", "max_messages": 0 }),
            "params.max_messages",
        ),
        (
            "memory/get_context",
            json!({ "conversation_id": "c", "max_tokens": "9" }),
            "params.max_tokens",
        ),
        (
            "memory/get_turn",
            json!({ "conversation_id": "c", "turn_id": "" }),
            "params.turn_id",
        ),
        (
            "memory/clear",
            json!({ "conversation_id": "a\u{7}b" }),
            "params.conversation_id",
        ),
        (
            "memory/delete",
            json!({ "conversation_id": ["c"] }),
            "params.conversation_id",
        ),
        (
            "memory/search",
            json!({ "query": "x", "limit": 1.5 }),
            "params.limit",
        ),
        (
            "resources/read",
            json!({ "uri": "file:///etc/passwd" }),
            "params.uri",
        ),
        ("resources/list", json!({ "cursor": 2 }), "params.cursor"),
    ])
    .await;
}

#[tokio::test]
async fn a_message_that_does_not_fit_is_named() {
    let cases = [
        (json!({ "content": null }), "params.content` is missing"),
        (
            json!({ "role": "boss" }),
            "params.role` must be one of user",
        ),
        (json!({ "source": "tool" }), "params.source"),
        (
            json!({ "covers_to": 3, "source": "model" }),
            "params.covers_to",
        ),
        (
            json!({ "tool_calls": [{ "id": "c1", "name": "reads" }] }),
            "params.tool_calls",
        ),
        (
            json!({ "role": "assistant", "tool_calls": [{ "id": "c1" }] }),
            "params.tool_calls[0].name",
        ),
        (json!({ "role": "tool" }), "params.tool"),
        (
            json!({ "role": "tool", "tool": { "call_id": "c1", "name": "reads", "arguments": [] } }),
            "params.tool.arguments",
        ),
        (
            json!({ "turn": { "id": "t", "state": "half" } }),
            "params.turn.state",
        ),
        (json!({ "tool_result": 1 }), "unknown field"),
    ];
    are_refused(cases.map(|(extra, named)| {
        let mut message = json!({ "conversation_id": "c", "role": "user", "content": "x" });
        let fields = message.as_object_mut().unwrap();
        fields.extend(extra.as_object().unwrap().clone());
        ("memory/add_message", message, named)
    }))
    .await;
}

#[tokio::test]
async fn of_several_messages_the_one_that_does_not_fit_is_named() {
    let cases = [
        (json!({ "messages": [] }), "params.messages"),
        (
            json!({ "messages": [{ "role": "user", "content": "x" }, { "role": "user", "content": 1 }] }),
            "params.messages[1].content",
        ),
        (
            json!({ "messages": [], "role": "user" }),
            "the supported fields are conversation_id, turn, messages",
        ),
        (
            json!({ "messages": { "role": "user" } }),
            "params.messages` must be a list",
        ),
    ];
    are_refused(cases.map(|(mut params, named)| {
        params["conversation_id"] = "c".into();
        ("memory/add_message", params, named)
    }))
    .await;
}
