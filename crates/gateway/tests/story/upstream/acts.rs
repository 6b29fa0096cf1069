//! Sources that act in their callers' name: their token comes along where it is needed, and what cannot be carried for a
//! caller the gateway answers itself.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{KINDS, UP, answer, call, carried, count, get, post, request, sessions, source};
use crate::fakes::relay::{RelayBehavior, ungoverned};
use crate::fakes::{RunBehavior, result, tool};
use crate::world::{LEGACY, MODERN, Reply, World, definition, until};

/// A gateway in front of `up`, whose credentials stand for the caller.
async fn world(needs_token: bool) -> World {
    let world = super::world().await;
    let mut content = world.tool_runner.content.lock().unwrap().clone();
    content.0[0] = pb::Source {
        acts_for_caller: true,
        needs_caller_token: needs_token,
        // So that it is seen that the gateway knows.
        tools: [("known".to_owned(), "reads".to_owned())]
            .into_iter()
            .chain(source("up", &KINDS).tools)
            .collect(),
        ..content.0[0].clone()
    };
    *world.tool_runner.content.lock().unwrap() = content;
    let tools = ["reads", "writes", "slow", "elsewhere"].map(|name| tool(name, &definition()));
    world.tool_runner.configure(tools.to_vec());
    until("the gateway knows the source", async || {
        Reply::to(call(&world, MODERN, "known")).await.code() == 0
    })
    .await;
    world
}

/// The tool-runner carries the next message for nobody.
fn refuses(world: &World, kind: &str) {
    let failure = pb::RelayFailure {
        text: "not carried".to_owned(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::ToolError.into(),
            error_kind: kind.to_owned(),
            ..pb::ResultFacts::default()
        }),
        uncarried: true,
    };
    let refused = RelayBehavior::Give(vec![Part::Failure(failure)]);
    world.tool_runner.relays.next([refused]);
}

#[tokio::test]
async fn only_a_source_that_exchanges_it_gets_the_callers_token() {
    for needs_token in [true, false] {
        let world = world(needs_token).await;
        let expected = if needs_token { &*world.token } else { "" };
        let session = sessions::begin(&world).await;
        assert_eq!(carried(&world).caller_token, expected);
        for (method, params) in [
            ("tools/list", ""),
            ("tools/call", r#""name":"read""#),
            ("prompts/get", r#""name":"p""#),
            ("resources/read", r#""uri":"a:b""#),
            (
                "completion/complete",
                r#""ref":{"type":"ref/prompt","name":"p"}"#,
            ),
            ("vendor/thing", ""),
        ] {
            let asked = request(&world, LEGACY, method, params);
            Reply::to(asked.header("mcp-session-id", &session)).await;
            assert_eq!(carried(&world).caller_token, expected, "{method}");
        }
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(Vec::new())]);
        let listening = get(&world).header("mcp-session-id", &session);
        listening.send().await.unwrap();
        assert_eq!(carried(&world).caller_token, expected);
        assert_eq!(carried(&world).method(), pb::RelayMethod::Get);
    }
    // What others have is theirs alone.
    let world = super::world().await;
    Reply::to(call(&world, MODERN, "read")).await;
    assert_eq!(carried(&world).caller_token, "");
}

#[tokio::test]
async fn what_the_caller_has_not_connected_the_gateway_answers_itself() {
    let world = world(false).await;
    let (before, ran) = (count(&world), world.tool_runner.asked.count());
    refuses(&world, "not_connected");
    let given = result("by the gateway", &Value::Null);
    world.tool_runner.next([RunBehavior::Give(Box::new(given))]);
    let called = Reply::to(call(&world, MODERN, "read")).await;
    assert_eq!(
        called.at("/result/content/0/text"),
        "by the gateway",
        "{called:?}"
    );
    assert_eq!(count(&world), before + 1);
    assert_eq!(world.tool_runner.asked.count(), ran + 1);
    // Both are on record, and what was not carried by its reason.
    let outcomes = world.audit.outcomes.all();
    let [.., left, given] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(
        (&*left.reason, &*left.call.requested_tool),
        ("not_connected", "read")
    );
    assert_eq!(called.at(super::CALL_ID), given.call.call_id.to_string());
    // Another failure is the answer.
    let failure = pb::RelayFailure {
        text: "It is away.".to_owned(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::ToolError.into(),
            error_kind: "source_unavailable".to_owned(),
            ..pb::ResultFacts::default()
        }),
        uncarried: false,
    };
    let away = RelayBehavior::Give(vec![Part::Failure(failure)]);
    world.tool_runner.relays.next([away]);
    let called = Reply::to(call(&world, MODERN, "read")).await;
    assert_eq!(called.code(), -32603, "{called:?}");
}

#[tokio::test]
async fn a_call_that_waits_goes_on_where_it_began() {
    let world = world(false).await;
    refuses(&world, "not_connected");
    let tool = world.tool_runner.live();
    let waits = pb::InputRequired {
        input_requests_json: r#"{"who":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}}"#.to_owned().into(),
        state: bytes::Bytes::from_static(b"s"),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            ..pb::ResultFacts::default()
        }),
        connect: None,
    };
    let waits = pb::call_tool_response::Event::InputRequired(waits);
    tool.unbounded_send(waits).unwrap();
    let calling = |more: &str| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"read","arguments":{{}}{more},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}}}}}}}}"#
        );
        request(&world, MODERN, "tools/call", r#""name":"read""#).body(message)
    };
    let asked = Reply::to(calling("")).await;
    assert_eq!(
        asked.at("/result/resultType"),
        "input_required",
        "{asked:?}"
    );
    let state = asked.at("/result/requestState");
    let before = count(&world);
    let more =
        format!(r#","requestState":{state},"inputResponses":{{"who":{{"action":"accept"}}}}"#);
    let went_on = Reply::to(calling(&more)).await;
    assert_eq!(went_on.at("/result/resultType"), "complete", "{went_on:?}");
    assert_eq!(count(&world), before, "it was carried");
    let resumed = world.tool_runner.asked.all().pop().unwrap();
    assert_eq!(resumed.interaction.unwrap().resumption.unwrap().state, "s");
    // It is good once, and a stranger is none.
    for more in [&*more, r#","requestState":"x""#] {
        let refused = Reply::to(calling(more)).await;
        assert_eq!(refused.code(), -32602, "{refused:?}");
    }
}

#[tokio::test]
async fn a_session_that_the_gateway_began_stays_with_it() {
    let world = world(true).await;
    refuses(&world, "other_era");
    let hello = json!({
        "jsonrpc": "2.0", "id": 7, "method": "initialize",
        "params": { "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
    });
    let begun = Reply::to(post(&world, UP, hello.to_string())).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_ne!(begun.text, answer("{}"), "the server's own");
    let session = begun.header("mcp-session-id").to_owned();
    assert!(!session.is_empty());
    let before = count(&world);
    let list = request(&world, LEGACY, "tools/list", "");
    let list = Reply::to(list.header("mcp-session-id", &session)).await;
    assert_eq!(list.at("/result/tools/0/name"), "known", "{list:?}");
    let ended = world
        .http
        .delete(world.url(UP))
        .bearer_auth(&world.token)
        .header("mcp-session-id", &session);
    assert!(Reply::to(ended).await.status < 300);
    assert_eq!(count(&world), before, "something was carried");
    let list = request(&world, LEGACY, "tools/list", "");
    let over = Reply::to(list.header("mcp-session-id", &session)).await;
    assert_eq!(over.status, 404, "{over:?}");
    // The next one is the server's, and is carried.
    let own = answer(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(ungoverned(200, &own))]);
    let begun = Reply::to(post(&world, UP, hello.to_string())).await;
    assert_eq!(begun.text, own);
}
