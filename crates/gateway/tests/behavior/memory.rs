//! Remembered conversations, in every version and on both paths.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::{
    Ambient, BundleReference, DecisionId, Digest, MemoryAccess, MemoryMethod, ReadDecision, Status,
    SwitchScope,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::Readiness;

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World, definition};
use wardgate_testkit::{listed_tool, until_true};

/// Creates a request of `dr.lee`. `params` is an object.
pub(crate) fn create_request(
    world: &World,
    version: &str,
    method: &str,
    params: &Value,
) -> RequestBuilder {
    create_request_as(world, &world.token, version, method, params)
}

pub(crate) fn create_request_as(
    world: &World,
    token: &str,
    version: &str,
    method: &str,
    params: &Value,
) -> RequestBuilder {
    let params = params.to_string();
    let inner = params.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    world.message_of(token, version, method, inner)
}

pub(crate) async fn modern(world: &World, method: &str, params: Value) -> Reply {
    Reply::to(create_request(world, MODERN, method, &params)).await
}

pub(crate) async fn create(world: &World, id: &str) {
    let reply = modern(
        world,
        "memory/get_or_create",
        json!({ "conversation_id": id }),
    )
    .await;
    assert_eq!(reply.at("/result/created"), true, "{reply:?}");
}

pub(crate) async fn add(world: &World, id: &str, role: &str, content: &str) -> Reply {
    let params = json!({ "conversation_id": id, "role": role, "content": content });
    let reply = modern(world, "memory/add_message", params).await;
    assert_eq!(reply.at("/result/status"), "success", "{reply:?}");
    reply
}

pub(crate) fn last(world: &World) -> MemoryAccess {
    world.audit.accesses.entries().pop().unwrap()
}

#[tokio::test]
async fn a_conversation_is_remembered_whatever_the_version_and_the_path() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        let id = format!("chat of {version}");
        let with_id = json!({ "conversation_id": id });
        let reply = Reply::to(create_request(
            &world,
            version,
            "memory/get_or_create",
            &with_id,
        ))
        .await;
        assert_eq!(
            reply.at("/result/conversation_id"),
            id.as_str(),
            "{reply:?}"
        );
        let message = json!({ "conversation_id": id, "role": "user", "content": "xin chào" });
        let reply = Reply::to(create_request(
            &world,
            version,
            "memory/add_message",
            &message,
        ))
        .await;
        assert_eq!(reply.at("/result/status"), "success", "{reply:?}");
        assert_eq!(reply.at("/result/conversation_id"), id.as_str());
        assert_eq!(reply.at("/result/position"), 1);
        let reply = Reply::to(create_request(
            &world,
            version,
            "memory/get_context",
            &with_id,
        ))
        .await;
        let message = reply.at("/result/messages/0");
        assert_eq!(message["role"], "user", "{reply:?}");
        assert_eq!(message["content"], "xin chào");
        assert_eq!(message["trust"], "person");
        assert_eq!(reply.at("/result/uncovered"), 0);
        assert!(
            reply
                .at("/result/_meta/dev.wardgate~1receipt/leafHash")
                .is_string()
        );
        assert_eq!(last(&world).call.protocol, version);
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"memory/get_context","params":{"conversation_id":"chat of 2025-11-25"}}"#;
    let plain = world
        .http
        .post(world.url("/message"))
        .bearer_auth(&world.token);
    let plain = plain.header("content-type", "application/json").body(body);
    let reply = Reply::to(plain).await;
    assert_eq!(
        reply.at("/result/messages/0/content"),
        "xin chào",
        "{reply:?}"
    );
    assert_eq!(last(&world).call.protocol, "jsonrpc");
}

#[tokio::test]
async fn without_an_id_a_conversation_is_new_and_an_unknown_one_has_no_context() {
    let world = World::start().await;
    let first = modern(&world, "memory/get_or_create", json!({})).await;
    let second = modern(
        &world,
        "memory/get_or_create",
        json!({ "conversation_id": null }),
    )
    .await;
    let id = |reply: &Reply| reply.at("/result/conversation_id");
    assert!(id(&first).is_string() && id(&first) != id(&second));
    let reply = modern(
        &world,
        "memory/get_context",
        json!({ "conversation_id": "nobody's", "max_messages": 20 }),
    )
    .await;
    assert_eq!(reply.at("/result/messages"), json!([]));
}

#[tokio::test]
async fn without_a_memory_service_there_are_no_such_methods() {
    let settings = json!({ "direct_methods": true });
    let world = World::start_without_memory(settings).await;
    let methods = MemoryMethod::ALL.map(MemoryMethod::as_str);
    for method in methods.into_iter().chain(["resources/templates/list"]) {
        let reply = Reply::to(create_request(&world, LEGACY, method, &json!({}))).await;
        assert_eq!((reply.status, reply.code()), (200, -32601), "{method}");
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let plain = world
            .http
            .post(world.url("/message"))
            .bearer_auth(&world.token);
        let plain = plain.header("content-type", "application/json").body(body);
        assert_eq!(Reply::to(plain).await.code(), -32601, "{method}");
    }
    let reply = modern(&world, "server/discover", json!({})).await;
    assert_eq!(
        reply.at("/result/capabilities"),
        json!({ "logging": {}, "tools": { "listChanged": true } })
    );
}

#[tokio::test]
async fn a_conversation_of_somebody_else_is_none() {
    let world = World::start().await;
    create(&world, "mine").await;
    add(&world, "mine", "user", "secret").await;
    let other = world.issuer.token("mallory", &["Doctor"]);
    let (mine, none) = (json!("mine"), json!("no such"));
    for (method, extra) in [
        ("memory/clear", json!({})),
        ("memory/delete", json!({})),
        ("memory/get_turn", json!({ "turn_id": "t" })),
        (
            "memory/add_message",
            json!({ "role": "user", "content": "x" }),
        ),
        ("memory/get_context", json!({})),
    ] {
        let mut answers = Vec::new();
        for id in [&mine, &none] {
            let mut params = extra.clone();
            params["conversation_id"] = id.clone();
            let reply = Reply::to(create_request_as(&world, &other, LEGACY, method, &params)).await;
            answers.push((
                reply.status,
                reply.at("/error/code"),
                reply.at("/error/message"),
            ));
            if method == "memory/get_context" {
                assert_eq!(reply.at("/result/messages"), json!([]));
            } else {
                assert_eq!(
                    reply.at("/error/message"),
                    "Unknown conversation",
                    "{reply:?}"
                );
                assert_eq!(last(&world).reason, "unknown_conversation");
            }
        }
        assert_eq!(answers[0], answers[1], "{method}");
    }
    for (version, code) in [(MODERN, -32602), (LEGACY, -32002)] {
        let uri = "memory://conversation/mine";
        let request = create_request_as(
            &world,
            &other,
            version,
            "resources/read",
            &json!({ "uri": uri }),
        );
        let reply = Reply::to(request.header("mcp-name", uri)).await;
        assert_eq!(reply.code(), code, "{reply:?}");
    }
    let reply = Reply::to(create_request_as(
        &world,
        &other,
        LEGACY,
        "resources/list",
        &json!({}),
    ))
    .await;
    assert_eq!(reply.at("/result/resources"), json!([]));
    let search = json!({ "query": "secret" });
    let reply = Reply::to(create_request_as(
        &world,
        &other,
        LEGACY,
        "memory/search",
        &search,
    ))
    .await;
    assert_eq!(reply.at("/result/hits"), json!([]));
}

#[tokio::test]
async fn a_turn_is_added_whole_and_read_back() {
    let world = World::start().await;
    create(&world, "c").await;
    let messages = json!([
        { "role": "user", "content": "who?", "message_id": "q" },
        { "role": "assistant", "content": "", "author": "llama",
          "tool_calls": [{ "id": "c1", "name": "reads", "arguments": { "n": 1.50 } }] },
        { "role": "tool", "content": "a row",
          "tool": { "call_id": "c1", "name": "reads_alias", "arguments": { "n": 1.50 } } },
    ]);
    let turn = json!({ "id": "t1", "state": "open" });
    let params = json!({ "conversation_id": "c", "messages": messages, "turn": turn });
    let reply = modern(&world, "memory/add_message", params).await;
    assert_eq!(
        reply.at("/result/messages/0"),
        json!({ "message_id": "q", "position": 1 }),
        "{reply:?}"
    );
    let of_turn = json!({ "conversation_id": "c", "turn_id": "t1" });
    let reply = modern(&world, "memory/get_turn", of_turn.clone()).await;
    assert_eq!(reply.at("/result/state"), "open");
    assert_eq!(reply.at("/result/messages/1/tool_calls/0/id"), "c1");
    assert_eq!(reply.at("/result/messages/1/trust"), "model");
    let result = reply.at("/result/messages/2");
    assert_eq!(result["tool_name"], "reads", "{result}");
    assert_eq!(result["tool_call_id"], "c1");
    assert_eq!(result["is_error"], false);
    assert_eq!(result["trust"], "data");

    let end = json!({ "conversation_id": "c", "messages": [], "turn": { "id": "t1", "state": "complete" } });
    let reply = modern(&world, "memory/add_message", end).await;
    assert_eq!(reply.at("/result/messages"), json!([]), "{reply:?}");
    let reply = modern(&world, "memory/get_turn", of_turn).await;
    assert_eq!(reply.at("/result/state"), "complete");
    let none = json!({ "conversation_id": "c", "turn_id": "t9" });
    let reply = modern(&world, "memory/get_turn", none).await;
    assert_eq!(
        reply.at("/result"),
        json!({
            "resultType": "complete", "state": "none", "messages": [], "_meta": reply.at("/result/_meta"),
        })
    );
}

/// Returns the answer to `dr.lee` for the addition of a result of `tool`.
async fn result_of(world: &World, tool: &str) -> Reply {
    let params = json!({
        "conversation_id": "c", "role": "tool", "content": "a row",
        "tool": { "call_id": "c1", "name": tool },
    });
    modern(world, "memory/add_message", params).await
}

#[tokio::test]
async fn a_tools_result_carries_what_the_catalogue_says_of_the_tool() {
    let world = World::start().await;
    create(&world, "c").await;
    assert_eq!(
        result_of(&world, "reads_alias").await.at("/result/status"),
        "success"
    );
    let added = world.memory.added.entries().swap_remove(0);
    let message = &added.messages[0];
    assert_eq!(message.author, "reads");
    let call = message.tool_call.clone().unwrap();
    assert_eq!(call.tool, listed_tool("reads", &definition()).facts);
    assert_eq!(call.arguments_json, "{}");
}

#[tokio::test]
async fn a_result_of_a_tool_that_the_caller_may_not_see_is_that_of_an_unknown_one() {
    let world = World::start().await;
    create(&world, "c").await;
    world.policy.hide("writes");
    let mut off = listed_tool("slow", &definition());
    off.switches = vec![wardgate_proto::toolrunner::v1::ToolSwitch {
        scope: Some((&SwitchScope::Everyone).into()),
        enabled: false,
    }];
    world.tool_runner.configure(vec![
        listed_tool("reads", &definition()),
        listed_tool("writes", &definition()),
        off,
    ]);
    until_true("the switch is heard of", async || {
        result_of(&world, "slow").await.code() == -32602
    })
    .await;
    for (name, status, reason) in [
        ("nonesuch", Status::UnknownTool, "unknown_tool"),
        ("writes", Status::Denied, "hidden"),
        ("slow", Status::Denied, "disabled"),
    ] {
        let reply = result_of(&world, name).await;
        let words = format!("Unknown tool: {name}");
        assert_eq!(
            (reply.code(), reply.at("/error/message")),
            (-32602, json!(words))
        );
        let access = last(&world);
        assert_eq!((access.status, access.reason.as_str()), (status, reason));
    }
    let before = world.memory.added.count();
    result_of(&world, "writes").await;
    assert_eq!(world.memory.added.count(), before);
}

#[tokio::test]
async fn the_record_names_the_conversation_by_its_key_and_counts_the_messages() {
    let world = World::start().await;
    create(&world, "typed by a person").await;
    let key = world.memory.key("dr.lee", "typed by a person");
    let access = last(&world);
    assert_eq!(access.conversation.unwrap().to_string(), key);
    assert_eq!(access.method, MemoryMethod::GetOrCreate);
    add(&world, "typed by a person", "user", "also typed").await;
    let mut classified = listed_tool("reads", &definition());
    classified.facts.as_mut().unwrap().classes = vec!["phi.text".to_owned()];
    world.tool_runner.configure(vec![classified]);
    let result = json!({
        "conversation_id": "typed by a person", "role": "tool", "content": "a row",
        "tool": { "call_id": "c1", "name": "reads" },
    });
    until_true("the result carries its classes", async || {
        modern(&world, "memory/add_message", result.clone()).await;
        let added = world.memory.added.entries().pop().unwrap();
        let call = added.messages[0].tool_call.clone().unwrap();
        !call.tool.unwrap().classes.is_empty()
    })
    .await;
    let stored = last(&world);
    assert_eq!(
        (stored.messages, stored.phi, stored.status),
        (1, false, Status::Ok)
    );

    let of = json!({ "conversation_id": "typed by a person" });
    modern(&world, "memory/get_context", of.clone()).await;
    let shown = last(&world);
    assert!(shown.phi);
    assert_eq!(shown.withheld, 0);
    world.memory.withholds_tools();
    let reply = modern(&world, "memory/get_context", of).await;
    let messages = reply.at("/result/messages");
    let messages = messages.as_array().unwrap();
    let withheld = |message: &&Value| message["withheld"] == true && message["content"] == "";
    let count = messages.iter().filter(withheld).count();
    assert!(count > 0);
    let access = last(&world);
    assert_eq!(access.messages, messages.len() as u64);
    assert_eq!(access.withheld, count as u64);
    assert!(!access.phi);
    assert_eq!(access.conversation.unwrap().to_string(), key);
    for attempt in world.audit.attempts.entries() {
        let record = format!("{:?}", attempt.record);
        assert!(!record.contains("typed"), "{record}");
    }
}

#[tokio::test]
async fn the_record_of_a_read_of_another_callers_conversation_names_the_decision() {
    let world = World::start().await;
    create(&world, "chat").await;
    let read = async || {
        let uri = "memory://conversation/chat";
        let request = create_request(&world, MODERN, "resources/read", &json!({ "uri": uri }));
        let reply = Reply::to(request.header("mcp-name", uri)).await;
        assert!(reply.at("/result/contents").is_array(), "{reply:?}");
        last(&world).call
    };
    let own = read().await;
    assert_eq!((own.decision_id, own.policy_hash), (None, None));
    let bundle = BundleReference {
        version: 7,
        digest: Digest::compute(b"bundle"),
    };
    let decision = ReadDecision {
        id: DecisionId::new(&Ambient::system()),
        allowed: true,
        policy_hash: Digest::compute(b"policies"),
        bundle: Some(bundle),
    };
    world.memory.recalls_by(&decision);
    let recalled = read().await;
    assert_eq!(recalled.decision_id, Some(decision.id));
    assert_eq!(recalled.policy_hash, Some(decision.policy_hash));
    assert_eq!(recalled.bundle, Some(bundle));
}

#[tokio::test]
async fn what_is_not_on_record_is_not_released() {
    let world = World::start().await;
    create(&world, "c").await;
    add(&world, "c", "user", "secret").await;
    let of = json!({ "conversation_id": "c" });
    world.audit.fails_after(Duration::ZERO);
    let reply = modern(&world, "memory/get_context", of.clone()).await;
    assert_eq!((reply.status, reply.code()), (200, -32603), "{reply:?}");
    assert!(!reply.text.contains("secret"), "{reply:?}");
    world.audit.recovers();

    let asked = world.memory.asked.count();
    world
        .audit
        .readiness
        .send_replace(Readiness::NotReady("away".to_owned()));
    let reply = modern(&world, "memory/get_context", of).await;
    assert_eq!(reply.code(), -32603);
    assert_eq!(world.memory.asked.count(), asked, "not even asked");
}

#[tokio::test]
async fn what_the_memory_refuses_or_fails_at_is_told_and_recorded() {
    let world = World::start().await;
    create(&world, "c").await;
    for (fails, code, status, reason) in [
        (
            ErrorReason::UnknownConversation,
            -32602,
            Status::InvalidArguments,
            "unknown_conversation",
        ),
        (
            ErrorReason::InvalidMessage,
            -32602,
            Status::InvalidArguments,
            "invalid_params",
        ),
        (
            ErrorReason::Conflict,
            -32602,
            Status::InvalidArguments,
            "conflict",
        ),
        (ErrorReason::Held, -32602, Status::Error, "held"),
        (ErrorReason::Denied, -32602, Status::Denied, "denied"),
        (
            ErrorReason::DeadlineExceeded,
            -32603,
            Status::Timeout,
            "timeout",
        ),
        (
            ErrorReason::Unavailable,
            -32603,
            Status::Error,
            "memory_unavailable",
        ),
        (
            ErrorReason::Internal,
            -32603,
            Status::Error,
            "memory_unavailable",
        ),
    ] {
        world.memory.fails([fails]);
        let reply = modern(&world, "memory/delete", json!({ "conversation_id": "c" })).await;
        assert_eq!((reply.status, reply.code()), (200, code), "{reply:?}");
        reply.failed_call();
        let access = last(&world);
        assert_eq!((access.status, access.reason.as_str()), (status, reason));
        assert_eq!(access.method, MemoryMethod::Delete);
        assert_eq!(access.conversation, None);
    }
    let reply = modern(&world, "memory/delete", json!({ "conversation_id": "c" })).await;
    assert_eq!(reply.at("/result/status"), "success");
}
