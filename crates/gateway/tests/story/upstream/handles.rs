//! Tasks and unfinished requests: what the upstream calls them is for nobody to hold but who began them.

use serde_json::{Value, json};

use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;

use super::streams::hears;
use super::{UP, answer, call, carried, count, post, request, text, world};
use crate::fakes::AppendBehavior;
use crate::fakes::relay::{RelayBehavior, event, governed, head, last_event};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, MODERN, Reply, World};

const TASK: &str = r#"{"resultType":"task","taskId":"t-1","status":"working"}"#;

/// Begins a task, and gives what the client holds of it.
async fn begin(world: &World) -> String {
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(governed(200, &answer(TASK)))]);
    let reply = Reply::to(call(world, MODERN, "read")).await;
    let id = reply.at("/result/taskId").as_str().unwrap().to_owned();
    assert!(!reply.text.contains("t-1"), "{reply:?}");
    id
}

async fn get(world: &World, params: &str) -> Reply {
    Reply::to(request(world, MODERN, "tasks/get", params)).await
}

#[tokio::test]
async fn a_task_is_found_by_who_began_it() {
    let world = world().await;
    let id = begin(&world).await;
    let given = governed(200, &answer(TASK));
    world.tool_runner.relays.next([RelayBehavior::Give(given)]);
    let reply = get(&world, &format!(r#""x":1.10,"taskId":"{id}""#)).await;
    assert_eq!(reply.at("/result/taskId"), id, "it has one name");
    let asked: Value = serde_json::from_slice(&carried(&world).message).unwrap();
    assert_eq!(asked["params"]["taskId"], "t-1");
    assert!(String::from_utf8_lossy(&carried(&world).message).contains(r#""x":1.10,"#));

    // To another it is like one that never was.
    let other = world.issuer.token("dr.other", &["Doctor"]);
    let mut asks = request(&world, MODERN, "tasks/get", &format!(r#""taskId":"{id}""#))
        .build()
        .unwrap();
    let bearer = format!("Bearer {other}").parse().unwrap();
    asks.headers_mut().insert("authorization", bearer);
    world.http.execute(asks).await.unwrap();
    let of_other = carried(&world);
    get(&world, r#""taskId":"garbage""#).await;
    let of_nobody: Value = serde_json::from_slice(&carried(&world).message).unwrap();
    let of_other: Value = serde_json::from_slice(&of_other.message).unwrap();
    assert_eq!(of_other["params"]["taskId"], of_nobody["params"]["taskId"]);
    assert_ne!(of_other["params"]["taskId"], "t-1");
}

#[tokio::test]
async fn no_way_of_writing_a_request_gets_the_upstreams_own_handle_past_that() {
    let world = world().await;
    for (method, params) in [
        ("tasks/get", r#""taskId":"t-1""#),
        ("tasks/get", r#""task\u0049d":"t-1""#),
        ("tasks/get", r#""taskId":"\u0074-1""#),
        ("tasks/get", r#""taskId":"t-1","notifications":5"#),
        (
            "tasks/get",
            r#""taskId":"t-1","notifications":{"taskIds":7}"#,
        ),
        ("tasks/get", r#""taskId":"t-1","requestState":7"#),
        (
            "subscriptions/listen",
            r#""notifications":{"taskIds":["t-1"]}"#,
        ),
        (
            "subscriptions/listen",
            r#""notifications":{"task\u0049ds":["t-1"]}"#,
        ),
        (
            "subscriptions/listen",
            r#""notifications":{"taskIds":"t-1"}"#,
        ),
    ] {
        let before = count(&world);
        let reply = Reply::to(request(&world, MODERN, method, params)).await;
        if count(&world) == before {
            assert_eq!(reply.code(), -32602, "{params} {reply:?}");
        } else {
            let message: Value = serde_json::from_slice(&carried(&world).message).unwrap();
            assert!(!message.to_string().contains("t-1"), "{message}");
        }
    }
    let before = count(&world);
    for state in [r#""requestState":"own""#, r#""request\u0053tate":"own""#] {
        let params = format!(r#""name":"read","arguments":{{}},{state}"#);
        let reply = Reply::to(request(&world, MODERN, "tools/call", &params)).await;
        assert_eq!(reply.code(), -32602, "{state} {reply:?}");
    }
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn the_state_of_an_unfinished_request_belongs_to_that_request() {
    let world = world().await;
    let unfinished = r#"{"resultType":"input_required","requestState":"own","inputRequests":{}}"#;
    let given = governed(200, &answer(unfinished));
    world.tool_runner.relays.next([RelayBehavior::Give(given)]);
    let reply = Reply::to(call(&world, MODERN, "read")).await;
    let state = reply
        .at("/result/requestState")
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(state, "own");
    let again = |name: &str, arguments: &str| {
        let state = json!(state);
        let params = format!(r#""name":"{name}","arguments":{arguments},"requestState":{state}"#);
        Reply::to(request(&world, MODERN, "tools/call", &params))
    };
    assert_eq!(again("read", r#"{"n":1.10}"#).await.code(), 0);
    let asked: Value = serde_json::from_slice(&carried(&world).message).unwrap();
    assert_eq!(asked["params"]["requestState"], "own");
    let before = count(&world);
    for (name, arguments) in [
        ("read", r#"{"n":2}"#),
        ("write", r#"{"n":1.10}"#),
        // It was used.
        ("read", r#"{"n":1.10}"#),
    ] {
        let reply = again(name, arguments).await;
        assert_eq!(reply.code(), -32602, "{name} {arguments}");
        let words = reply.at("/error/message");
        assert_eq!(words, "unknown `requestState`", "{name} {arguments}");
    }
    assert_eq!(count(&world), before);
    let outcome = world.audit.outcomes.reaches(3).await.pop().unwrap();
    assert_eq!(
        (outcome.status, &*outcome.reason),
        (Status::InvalidArguments, "used_state")
    );
}

const OLD_TASK: &str = r#"{"task":{"taskId":"t-1","status":"working","ttl":60000}}"#;

/// Begins a task of 2025-11-25, and gives what the client holds of it.
async fn begin_old(world: &World) -> String {
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(governed(200, &answer(OLD_TASK)))]);
    let params = r#""task":{"ttl":60000},"name":"read","arguments":{"n":1.10}"#;
    let reply = Reply::to(request(world, LEGACY, "tools/call", params)).await;
    let id = reply.at("/result/task/taskId").as_str().unwrap().to_owned();
    assert!(!reply.text.contains("t-1"), "{reply:?}");
    assert_eq!(reply.at("/result/task/ttl"), 60_000);
    id
}

#[tokio::test]
async fn a_task_of_2025_11_25_is_found_by_who_began_it_and_decided_on_what_it_was_begun_with() {
    let world = world().await;
    let id = begin_old(&world).await;
    let status = r#"{"taskId":"t-1","status":"completed"}"#;
    let done =
        r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}"#;
    let related = "/result/_meta/io.modelcontextprotocol~1related-task/taskId";
    for (method, said, place) in [
        ("tasks/get", status, "/result/taskId"),
        ("tasks/result", done, related),
        ("tasks/cancel", status, "/result/taskId"),
    ] {
        let before = world.audit.outcomes.count();
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(governed(200, &answer(said)))]);
        let asks = || request(&world, LEGACY, method, &format!(r#""taskId":"{id}""#));
        let reply = Reply::to(asks()).await;
        assert_eq!(reply.at(place), id, "{method} {reply:?}");
        let asked: Value = serde_json::from_slice(&carried(&world).message).unwrap();
        assert_eq!(asked["params"]["taskId"], "t-1");
        let decided = world.policy.asked.all();
        assert!(
            decided
                .iter()
                .any(|it| it.arguments_json == r#"{"n":1.10}"#)
        );
        let outcome = world
            .audit
            .outcomes
            .reaches(before + 1)
            .await
            .pop()
            .unwrap();
        let tool = outcome.call.tool.unwrap();
        assert_eq!((&*outcome.call.method, tool.as_str()), (method, "reads"));

        // To another it is like one that never was.
        let other = world.issuer.token("dr.other", &["Doctor"]);
        let mut asks = asks().build().unwrap();
        let bearer = format!("Bearer {other}").parse().unwrap();
        asks.headers_mut().insert("authorization", bearer);
        world.http.execute(asks).await.unwrap();
        let asked: Value = serde_json::from_slice(&carried(&world).message).unwrap();
        assert_ne!(asked["params"]["taskId"], "t-1");
    }
    let before = count(&world);
    for (method, params) in [
        ("tasks/get", format!(r#""taskId":"{id}""#)),
        ("tools/call", r#""task":{},"name":"read""#.to_owned()),
    ] {
        let reply = Reply::to(request(&world, "2025-06-18", method, &params)).await;
        assert!([-32601, -32602].contains(&reply.code()), "{reply:?}");
    }
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn what_belongs_to_a_task_says_so_in_the_ids_of_whoever_hears_it() {
    let world = world().await;
    let id = begin_old(&world).await;
    let related = |id: &str| {
        format!(r#""_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"{id}"}}}}"#)
    };
    let asks = format!(
        r#"{{"jsonrpc":"2.0","id":"s-1","method":"elicitation/create","params":{{"message":"?",{}}}}}"#,
        related("t-1")
    );
    let stands = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"taskId":"{id}","status":"working"}}}}"#
        )
    };
    // Of a task of the client's own, which is none of the upstream's.
    let of_client =
        r#"{"jsonrpc":"2.0","id":"s-2","method":"tasks/get","params":{"taskId":"t-1"}}"#;
    let parts = vec![
        head(200, pb::RelayContent::Events),
        event("1", &stands("t-1")),
        event("2", &asks),
        event("3", of_client),
        event("4", &stands("t-2")),
        last_event("5", &answer(r#"{"content":[]}"#)),
    ];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let result = request(
        &world,
        LEGACY,
        "tasks/result",
        &format!(r#""taskId":"{id}""#),
    );
    let mut ear = EventStreamClient::on(result).await;
    let mut told = Vec::new();
    while let Some(message) = hears(&mut ear).await {
        told.push(message);
    }
    assert_eq!(told.len(), 4, "the other task's is withheld: {told:?}");
    assert_eq!(told[0]["params"]["taskId"], id);
    let place = "/params/_meta/io.modelcontextprotocol~1related-task/taskId";
    assert_eq!(told[1].pointer(place), Some(&json!(id)));
    assert_eq!(told[2]["params"]["taskId"], "t-1");

    let says = |id: &str| {
        let related = related(id);
        format!(
            r#"{{"jsonrpc":"2.0","id":"s-1","result":{{"action":"accept","n":1.10,{related}}}}}"#
        )
    };
    for (held, own) in [(&*id, "t-1"), ("mine", "mine")] {
        let reply = Reply::to(post(&world, UP, says(held))).await;
        assert_eq!(reply.status, 202);
        assert_eq!(carried(&world).message, says(own));
    }
}

#[tokio::test]
async fn a_server_that_lists_tasks_is_not_said_to() {
    let world = world().await;
    let capabilities = |tasks: &str| {
        answer(&format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tasks":{tasks},"x":1.10}}}}"#
        ))
    };
    for (said, told) in [
        (
            r#"{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}"#,
            r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#,
        ),
        (r#"{ "cancel":{} }"#, r#"{ "cancel":{} }"#),
        ("7", "7"),
    ] {
        let given = governed(200, &capabilities(said));
        world.tool_runner.relays.next([RelayBehavior::Give(given)]);
        let params = r#""protocolVersion":"2025-11-25","capabilities":{}"#;
        let reply = Reply::to(post(&world, UP, text("", "initialize", params))).await;
        assert_eq!(reply.text, capabilities(told));
    }
}

#[tokio::test]
async fn what_became_of_a_task_leaves_once_it_is_on_record_on_a_stream_too() {
    let world = world().await;
    let id = begin(&world).await;
    let done = r#"{"resultType":"complete","taskId":"t-1","result":{"secret":1}}"#;
    let asks = format!(r#""taskId":"{id}""#);
    for (appends, leaves) in [
        (vec![AppendBehavior::Keep], true),
        (vec![AppendBehavior::Fail, AppendBehavior::Fail], false),
    ] {
        let parts = vec![
            head(200, pb::RelayContent::Events),
            last_event("1", &answer(done)),
        ];
        world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
        world.audit.next(appends);
        let reply = get(&world, &asks).await;
        assert_eq!(reply.text.contains("secret"), leaves, "{reply:?}");
    }
    let outcome = world.audit.outcomes.reaches(2).await.swap_remove(1);
    let tool = outcome.call.tool.unwrap();
    let asked = (&*outcome.call.method, tool.as_str());
    assert_eq!(asked, ("tasks/get", "reads"));
}

#[tokio::test]
async fn nobody_lists_the_tasks_of_all() {
    let world = world().await;
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        let reply = Reply::to(request(&world, version, "tasks/list", "")).await;
        assert_eq!(reply.code(), -32601, "{reply:?}");
    }
    assert_eq!(count(&world), before);
}
