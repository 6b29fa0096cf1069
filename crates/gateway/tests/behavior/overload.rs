//! An overloaded gateway rejects excess requests before any of their work begins.

use serde_json::json;
use wardgate_domain::Status;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::content;
use crate::listen;
use crate::resumed::call;
use crate::sessions::{begin_with, within};
use crate::stream_messages::final_result;
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{EventStreamClient, PolicyAnswer, RunBehavior};

/// Starts a gateway that processes one request at a time.
async fn busy_at_once() -> World {
    let one = json!({ "min": 1, "max": 1, "initial": 1, "queue": 0 });
    World::start_with(json!({ "concurrency": one })).await
}

/// Starts a gateway that processes one request at a time, and is busy with one.
async fn busy() -> World {
    let world = busy_at_once().await;
    world.tool_runner.next([RunBehavior::Hang]);
    world.spawn_call(MODERN, "reads");
    world.tool_runner.asked.reaches(1).await;
    world
}

fn is_turned_away(reply: &Reply) -> bool {
    let waits: u64 = reply.header("retry-after").parse().unwrap_or_default();
    reply.status == 503
        && reply.code() == -32603
        && waits > 0
        && reply.at("/error/data/retryAfterSeconds") == waits
        && reply.at("/error/data/reason") == "overloaded"
}

#[tokio::test]
async fn a3_what_is_too_much_is_turned_away_before_anything_of_it_began() {
    let world = busy().await;
    let (decisions, intents) = (world.policy.asked.count(), world.audit.intents.count());
    for request in [
        world.tools_call(MODERN, "writes", "{}"),
        world.tools_call(LEGACY, "writes", "{}"),
        world.message(MODERN, "tools/list", ""),
        world.message(LEGACY, "prompts/list", ""),
        world.message(LEGACY, "memory/get_or_create", ""),
    ] {
        let reply = Reply::to(request).await;
        assert!(is_turned_away(&reply), "{reply:?}");
        assert_eq!(reply.at("/id"), 7, "whose answer it is");
    }
    assert_eq!(world.policy.asked.count(), decisions);
    assert_eq!(world.audit.intents.count(), intents);
    assert_eq!(world.tool_runner.asked.count(), 1);
    assert_eq!(world.memory.asked.count(), 0);
    // The number of rejected requests and their subject are recorded.
    let is_counted = |all: &[wardgate_domain::Refusals]| {
        let counts = all.iter().flat_map(|window| &window.counts);
        let shed = counts.filter(|it| it.reason == "overloaded" && it.subject == "dr.lee");
        shed.map(|it| it.count).sum::<u64>() == 5
    };
    world.audit.refusals.until(is_counted).await;
}

#[tokio::test]
async fn probes_sessions_streams_and_cancellations_always_pass() {
    let world = busy().await;
    for path in ["/health", "/ready", "/metrics"] {
        let reply = Reply::to(world.http.get(world.url(path))).await;
        assert_eq!(reply.status, 200, "{path}");
    }
    let session = begin_with(&world, LEGACY, &json!({})).await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"info"}}"#,
    ] {
        let request = within(world.message(LEGACY, "", "").body(body), &session);
        let reply = Reply::to(request).await;
        assert!(matches!(reply.status, 200 | 202), "{body}: {reply:?}");
    }
    let stream = within(listen::get(&world, "/mcp", Some(LEGACY)), &session);
    let _listens = EventStreamClient::open(stream).await;
}

#[tokio::test]
async fn a_batch_is_turned_away_message_by_message() {
    let world = busy().await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#;
    let reply = Reply::to(world.message(OLDEST, "ping", "").body(batch)).await;
    assert_eq!(reply.at("/0/result"), json!({}));
    assert_eq!(reply.at("/1/error/data/reason"), "overloaded");
}

#[tokio::test]
async fn another_caller_gets_in_while_one_takes_every_place() {
    let world = busy().await;
    let other = world.issuer.token("nurse.joy", &["Nurse"]);
    let reply = Reply::to(world.tools_call_of(&other, MODERN, "reads", "{}")).await;
    assert!(reply.is_released());
    world.tool_runner.next([RunBehavior::Hang]);
    let hangs = world.tools_call_of(&other, MODERN, "reads", "{}");
    tokio::spawn(Reply::to(hangs));
    world.tool_runner.asked.reaches(3).await;
    let third = world.issuer.token("dr.yenji", &["Doctor"]);
    let reply = Reply::to(world.tools_call_of(&third, MODERN, "reads", "{}")).await;
    assert!(is_turned_away(&reply), "{reply:?}");
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_takes_no_place() {
    let world = busy_at_once().await;
    let able = json!({ "elicitation": {} });
    let session = begin_with(&world, LEGACY, &able).await;
    let form = json!({ "f": { "method": "elicitation/create", "params": {
        "message": "Which?", "requestedSchema": { "type": "object", "properties": {} },
    } } });
    let asks = Event::InputRequired(pb::InputRequired {
        input_requests_json: form.to_string().into(),
        state: "the state".into(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            ..pb::ResultFacts::default()
        }),
        connect: None,
    });
    world.tool_runner.live().unbounded_send(asks).unwrap();
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    let asked = ear.next_message().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create");

    assert!(world.call("reads").await.is_released());
    // A call that has begun is not rejected, even if the gateway is busy meanwhile.
    world.tool_runner.next([RunBehavior::Hang]);
    world.spawn_call(MODERN, "reads");
    world.tool_runner.asked.reaches(3).await;
    world
        .tool_runner
        .live()
        .unbounded_send(final_result())
        .unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } });
    let answer = world.message(LEGACY, "", "").body(answer.to_string());
    assert_eq!(Reply::to(within(answer, &session)).await.status, 202);
    let answer = ear.next_message().await.unwrap();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

#[tokio::test]
async fn what_a_neighbour_turns_away_may_be_tried_again_and_is_on_record() {
    let world = World::start().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Overloaded));
    let reply = world.call("writes").await;
    assert!(is_turned_away(&reply), "{reply:?}");
    assert_eq!(world.audit.intents.count(), 0);
    world.policy.says(PolicyAnswer::Allow);
    // The call did not run, and the outcome says so.
    world
        .tool_runner
        .next([RunBehavior::Fail(ErrorReason::Overloaded)]);
    let reply = world.call("writes").await;
    assert!(is_turned_away(&reply), "{reply:?}");
    let outcomes = world.audit.outcomes.reaches(2).await;
    for outcome in outcomes {
        assert_eq!(outcome.status, Status::Error);
        assert_eq!(outcome.reason, "overloaded");
    }
}

#[tokio::test]
async fn a_list_that_nobody_has_time_to_decide_on_may_be_asked_for_again() {
    let world = content::world().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Overloaded));
    for version in [MODERN, LEGACY] {
        for list in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            let reply = Reply::to(world.message(version, list, "")).await;
            assert!(is_turned_away(&reply), "{list}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_caller_who_makes_more_requests_than_one_may_is_told_when_to_come_back() {
    let world = World::start_with(json!({ "limits": { "requests_per_minute": 2 } })).await;
    for _ in 0..2 {
        assert!(world.call("reads").await.is_released());
    }
    let (decisions, records) = (world.policy.asked.count(), world.audit.attempts.count());
    for request in [
        world.tools_call(MODERN, "reads", "{}"),
        world.tools_call(LEGACY, "writes", "{}"),
        world.message(MODERN, "tools/list", ""),
        world.message(LEGACY, "memory/get_or_create", ""),
    ] {
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.code()), (429, -32603), "{reply:?}");
        let wait: u64 = reply.header("retry-after").parse().unwrap();
        assert!((1..=30).contains(&wait), "{reply:?}");
        assert_eq!(reply.at("/error/data/retryAfterSeconds"), wait);
        assert_eq!(reply.at("/error/data/reason"), "rate_limited");
    }
    assert_eq!(world.policy.asked.count(), decisions);
    assert_eq!(world.audit.attempts.count(), records, "it fills no record");
    // Requests that need no slot are admitted, and other callers are not limited.
    let ping = Reply::to(world.message(LEGACY, "ping", "")).await;
    assert_eq!(ping.status, 200);
    let other = world.issuer.token("dr.kim", &["Doctor"]);
    let other = Reply::to(world.tools_call_of(&other, MODERN, "reads", "{}")).await;
    assert!(other.is_released(), "{other:?}");
    let is_counted = |all: &[wardgate_domain::Refusals]| {
        let counts = all.iter().flat_map(|window| &window.counts);
        let limited = counts.filter(|it| it.reason == "rate_limited" && it.subject == "dr.lee");
        limited.map(|it| it.count).sum::<u64>() == 4
    };
    world.audit.refusals.until(is_counted).await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_refuses_authorized_requests_by_its_name_and_they_are_on_record() {
    let quotas = json!([
        { "name": "reads-a-day", "rate": "2/d", "per": ["caller"], "tools": ["reads"] },
        { "name": "conversations", "rate": "1/h", "per": ["tenant"], "methods": ["memory/get_or_create"] },
    ]);
    let world = World::start_with(json!({ "limits": { "quotas": quotas } })).await;
    for _ in 0..2 {
        assert!(world.call("reads").await.is_released());
    }
    let started = world.message(LEGACY, "memory/get_or_create", "");
    assert_eq!(Reply::to(started).await.status, 200);
    for (request, quota) in [
        (world.tools_call(MODERN, "reads", "{}"), "reads-a-day"),
        (world.tools_call(LEGACY, "reads", "{}"), "reads-a-day"),
        (
            world.message(LEGACY, "memory/get_or_create", ""),
            "conversations",
        ),
    ] {
        let records = world.audit.attempts.count();
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.code()), (429, -32603), "{reply:?}");
        assert_eq!(reply.at("/error/data/reason"), "rate_limited");
        let message = reply.at("/error/message");
        assert!(message.as_str().unwrap().contains(quota), "{reply:?}");
        assert!(reply.header("retry-after").parse::<u64>().unwrap() > 60);
        assert_eq!(world.audit.attempts.count(), records + 1);
    }
    // Another tool and another person have separate quotas.
    assert!(world.call("writes").await.is_released());
    let other = world.issuer.token("dr.kim", &["Doctor"]);
    let other = Reply::to(world.tools_call_of(&other, MODERN, "reads", "{}")).await;
    assert!(other.is_released(), "{other:?}");
}

/// Returns the headers `RateLimit-Policy` and `RateLimit`.
fn limit_headers(reply: &Reply) -> (&str, &str) {
    (reply.header("ratelimit-policy"), reply.header("ratelimit"))
}

#[tokio::test]
async fn an_answer_says_which_limits_counted_its_request_and_what_is_left_of_them() {
    let quotas =
        json!([{ "name": "reads-a-day", "rate": "4/d", "per": ["caller"], "tools": ["reads"] }]);
    let limits = json!({ "requests_per_minute": 5, "quotas": quotas });
    let world = World::start_with(json!({ "limits": limits })).await;
    let each = r#""requests_per_minute";q=5;w=60"#;
    let both = format!(r#"{each}, "reads-a-day";q=4;w=86400"#);

    let called = world.call("reads").await;
    let left = r#""requests_per_minute";r=4;t=12, "reads-a-day";r=3;t=21600"#;
    assert_eq!(limit_headers(&called), (both.as_str(), left));
    let listed = Reply::to(world.message(LEGACY, "tools/list", "")).await;
    let left = r#""requests_per_minute";r=3;t=24"#;
    assert_eq!(limit_headers(&listed), (each, left));
    let ping = Reply::to(world.message(LEGACY, "ping", "")).await;
    assert_eq!(limit_headers(&ping), ("", ""), "nothing counts it");

    // A batch reports the smallest remaining quota of its messages.
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let batch = world.message(OLDEST, "ping", "");
    let batch = Reply::to(batch.body(format!("[{one},{one}]"))).await;
    let left = r#""requests_per_minute";r=1;t=48"#;
    assert_eq!(limit_headers(&batch), (each, left));

    Reply::to(world.message(LEGACY, "tools/list", "")).await;
    let refused = world.call("reads").await;
    assert_eq!(refused.status, 429);
    let wait = refused.header("retry-after");
    let left = format!(r#""requests_per_minute";r=0;t={wait}"#);
    assert_eq!(limit_headers(&refused), (each, left.as_str()));
}

#[tokio::test]
async fn a_refusal_names_the_quota_that_is_used_up() {
    let quotas = json!([
        { "name": "a-day", "rate": "9/d" },
        { "name": "writes", "rate": "1/d", "tools": ["writes"] },
    ]);
    let world = World::start_with(json!({ "limits": { "quotas": quotas } })).await;
    let called = world.call("writes").await;
    let policies = r#""a-day";q=9;w=86400, "writes";q=1;w=86400"#;
    assert_eq!(called.header("ratelimit-policy"), policies);
    let refused = world.call("writes").await;
    let left = format!(r#""writes";r=0;t={}"#, refused.header("retry-after"));
    let policy = r#""writes";q=1;w=86400"#;
    assert_eq!(limit_headers(&refused), (policy, left.as_str()));
    // The plain endpoint sends the same headers, and the refused request used nothing of the other quota.
    let request = world
        .http
        .post(world.url("/message"))
        .bearer_auth(&world.token);
    let request = request.header("content-type", "application/json").body(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"reads","arguments":{}}}"#,
    );
    let left = (r#""a-day";q=9;w=86400"#, r#""a-day";r=7;t=19200"#);
    assert_eq!(limit_headers(&Reply::to(request).await), left);
}

#[tokio::test]
async fn a_gateway_without_configured_limits_sends_no_header_of_limits() {
    let world = World::start().await;
    for request in [
        world.tools_call(MODERN, "reads", "{}"),
        world.message(LEGACY, "tools/list", ""),
        world.message(LEGACY, "memory/get_or_create", ""),
    ] {
        let reply = Reply::to(request).await;
        assert_eq!(reply.status, 200);
        assert_eq!(limit_headers(&reply), ("", ""));
    }
}
