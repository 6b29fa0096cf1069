//! Tasks and unfinished requests: what the upstream calls them is for nobody to hold but who began them.

use serde_json::{Value, json};

use wardgate_proto::toolrunner::v1 as pb;

use super::{answer, call, carried, count, request, world};
use crate::fakes::Append;
use crate::fakes::relay::{Carry, governed, head, last_event};
use crate::world::{LEGACY, MODERN, Reply, World};

const TASK: &str = r#"{"resultType":"task","taskId":"t-1","status":"working"}"#;

/// Begins a task, and gives what the client holds of it.
async fn begin(world: &World) -> String {
    world
        .tool_runner
        .relays
        .next([Carry::Give(governed(200, &answer(TASK)))]);
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
    world.tool_runner.relays.next([Carry::Give(given)]);
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
    world.tool_runner.relays.next([Carry::Give(given)]);
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
    for (name, arguments) in [("read", r#"{"n":2}"#), ("write", r#"{"n":1.10}"#)] {
        assert_eq!(
            again(name, arguments).await.code(),
            -32602,
            "{name} {arguments}"
        );
    }
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn what_became_of_a_task_leaves_once_it_is_on_record_on_a_stream_too() {
    let world = world().await;
    let id = begin(&world).await;
    let done = r#"{"resultType":"complete","taskId":"t-1","result":{"secret":1}}"#;
    let asks = format!(r#""taskId":"{id}""#);
    for (appends, leaves) in [
        (vec![Append::Keep], true),
        (vec![Append::Fail, Append::Fail], false),
    ] {
        let parts = vec![
            head(200, pb::RelayContent::Events),
            last_event("1", &answer(done)),
        ];
        world.tool_runner.relays.next([Carry::Give(parts)]);
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
