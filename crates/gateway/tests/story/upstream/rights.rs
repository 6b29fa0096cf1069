//! Who may use what: refusals tell nobody what there is.

use serde_json::{Value, json};
use wardgate_domain::{OfferKind, Status};
use wardgate_proto::common::v1::ErrorReason;

use super::{answer, call, carried, count, post, request, request_to, world};
use crate::fakes::PolicyAnswer;
use crate::fakes::relay::{RelayBehavior, governed};
use crate::world::{LEGACY, MODERN, Reply};

#[tokio::test]
async fn a_route_that_is_not_for_the_caller_is_like_one_that_there_is_not() {
    let world = world().await;
    world.policy.bar(OfferKind::Connect, "other");
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        for (method, params) in [
            ("ping", ""),
            ("tools/list", ""),
            ("tools/call", r#""name":"read""#),
            ("resources/read", r#""uri":"memo://one""#),
        ] {
            let mut told = Vec::new();
            for path in ["none", "plain", "off", "other"] {
                let path = format!("/mcp/upstream/{path}");
                let request = request_to(&world, &path, version, method, params);
                let reply = Reply::to(request).await;
                let (status, code) = (reply.status, reply.code());
                assert_eq!((status, code), (404, -32600), "{path} {method} {reply:?}");
                told.push(reply.json());
            }
            assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
        }
    }
    // Nor does what is wrong with a message.
    for body in [
        "{",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"[{"jsonrpc":"2.0","id":1}]"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#,
    ] {
        let mut told = Vec::new();
        for path in ["none", "plain", "off", "other"] {
            let reply = Reply::to(post(&world, &format!("/mcp/upstream/{path}"), body)).await;
            told.push((reply.status, reply.json()));
        }
        assert!(told.iter().all(|refusal| *refusal == told[0]), "{told:?}");
    }
    for path in ["none", "plain", "off", "other"] {
        let listens = world
            .http
            .get(world.url(&format!("/mcp/upstream/{path}")))
            .bearer_auth(&world.token)
            .header("accept", "text/event-stream");
        assert_eq!(Reply::to(listens).await.status, 404);
    }
    assert_eq!(count(&world), before);
    assert_eq!(world.audit.attempts.count(), 0);
    let mut stranger = request(&world, LEGACY, "ping", "").build().unwrap();
    stranger.headers_mut().remove("authorization");
    assert_eq!(world.http.execute(stranger).await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_tool_that_the_caller_may_not_see_is_like_one_that_there_is_not() {
    let world = world().await;
    world.policy.bar(OfferKind::Tool, "writes");
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        // By its canonical name a tool is not known here either.
        for name in ["write", "never", "reads", "elsewhere"] {
            let reply = Reply::to(call(&world, version, name)).await;
            assert_eq!((reply.status, reply.code()), (200, -32602), "{name}");
            assert_eq!(reply.at("/error/message"), format!("Unknown tool: {name}"));
            assert_eq!(reply.at("/error/data/reason"), "unknown_tool");
            assert!(!reply.failed_call().is_empty());
        }
    }
    assert_eq!(count(&world), before);
    let outcomes = world.audit.outcomes.reaches(8).await;
    let of = |status| {
        outcomes
            .iter()
            .filter(move |it| it.status == status)
            .count()
    };
    assert_eq!((of(Status::Denied), of(Status::UnknownTool)), (2, 6));
    assert_eq!(world.audit.intents.count(), 0);
}

#[tokio::test]
async fn a_call_that_its_arguments_forbid_is_answered_with_the_decision() {
    let world = world().await;
    world.policy.forbid(r#""n":1.10"#);
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        let reply = Reply::to(call(&world, version, "read")).await;
        assert_eq!((reply.status, reply.at("/id")), (200, json!(7)));
        assert_eq!(reply.at("/result/isError"), true);
        let decision = reply.at("/result/_meta/dev.wardgate~1decisionId");
        let words = reply.at("/result/content/0/text");
        assert!(words.as_str().unwrap().contains(decision.as_str().unwrap()));
        let is_modern = version == MODERN;
        assert_eq!(reply.at("/result/resultType") == "complete", is_modern);
        assert!(
            reply
                .at("/result/_meta/dev.wardgate~1receipt/leafHash")
                .is_string()
        );
    }
    assert_eq!(count(&world), before);
    let outcomes = world.audit.outcomes.reaches(2).await;
    assert!(
        outcomes
            .iter()
            .all(|it| it.status == Status::Denied && it.reason == "forbidden")
    );
}

#[tokio::test]
async fn resources_and_prompts_that_are_not_for_the_caller_are_unknown() {
    let world = world().await;
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.forbid("secret");
    let before = count(&world);
    let completes = |of: Value| {
        let params = json!({ "ref": of, "argument": { "name": "a", "value": "b" } });
        params
            .to_string()
            .trim_matches(['{'])
            .strip_suffix('}')
            .unwrap()
            .to_owned()
    };
    let resource = completes(json!({ "type": "ref/resource", "uri": "memo://secret" }));
    let prompt = completes(json!({ "type": "ref/prompt", "name": "secret" }));
    let uri = r#""uri":"memo://secret""#;
    for (version, code) in [(MODERN, -32602), (LEGACY, -32002)] {
        let mut cases = vec![
            ("resources/read", uri, code, "unknown_resource"),
            ("completion/complete", &resource, code, "unknown_resource"),
            (
                "prompts/get",
                r#""name":"secret""#,
                -32602,
                "invalid_params",
            ),
            ("completion/complete", &prompt, -32602, "invalid_params"),
        ];
        if version == LEGACY {
            cases.push(("resources/subscribe", uri, code, "unknown_resource"));
            cases.push(("resources/unsubscribe", uri, code, "unknown_resource"));
        }
        for (method, params, code, reason) in cases {
            let reply = Reply::to(request(&world, version, method, params)).await;
            assert_eq!(
                (reply.status, reply.code()),
                (200, code),
                "{method} {params}"
            );
            assert_eq!(reply.at("/error/data/reason"), reason);
            let outcome = world.audit.outcomes.all().pop().unwrap();
            assert_eq!(outcome.status, Status::Denied);
            assert_eq!(outcome.call.call_id.to_string(), reply.failed_call());
        }
    }
    assert_eq!(count(&world), before);
    // Removed with 2026-07-28.
    let reply = Reply::to(request(&world, MODERN, "resources/subscribe", uri)).await;
    assert_eq!((reply.status, reply.code()), (404, -32601));
}

#[tokio::test]
async fn nobody_listens_to_changes_of_what_they_may_not_read() {
    let world = world().await;
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.forbid("secret");
    let before = count(&world);
    let listen = |uris: &str| {
        let wanted = format!(r#""notifications":{{"resourceSubscriptions":{uris}}}"#);
        Reply::to(request(&world, MODERN, "subscriptions/listen", &wanted))
    };
    let reply = listen(r#"["memo://one","memo://secret"]"#).await;
    assert_eq!(
        (reply.code(), reply.at("/error/message")),
        (-32602, json!("Resource not found"))
    );
    let many: Vec<_> = (0..101).map(|n| format!("memo://{n}")).collect();
    for bad in [json!(many).to_string(), "[7]".to_owned(), "{}".to_owned()] {
        let reply = listen(&bad).await;
        assert_eq!(reply.code(), -32602, "{bad}");
        assert!(reply.text.contains("resourceSubscriptions"), "{reply:?}");
    }
    assert_eq!(count(&world), before);
    assert_eq!(listen(r#"["memo://one"]"#).await.code(), 0);
    assert_eq!(count(&world), before + 1);
}

#[tokio::test]
async fn what_the_policy_service_does_not_decide_is_not_carried() {
    let world = world().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Unavailable));
    world.policy.stop_announcing();
    let before = count(&world);
    crate::world::until("no permit is kept", async || {
        Reply::to(request(&world, LEGACY, "ping", "")).await.code() == -32603
    })
    .await;
    let carried = count(&world);
    for version in [MODERN, LEGACY] {
        let reply = Reply::to(call(&world, version, "read")).await;
        assert_eq!((reply.status, reply.code()), (200, -32603));
        assert!(reply.text.contains("Try again later"), "{reply:?}");
    }
    assert_eq!(count(&world), carried);
    assert!(carried >= before);
}

#[tokio::test]
async fn while_the_policy_is_away_a_source_is_like_one_that_there_is_not() {
    let world = world().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Unavailable));
    for version in [MODERN, LEGACY] {
        let mut told = Vec::new();
        for path in ["none", "plain", "off", "other"] {
            let path = format!("/mcp/upstream/{path}");
            let reply = Reply::to(request_to(&world, &path, version, "ping", "")).await;
            told.push((reply.status, reply.json()));
        }
        assert_eq!(told[0].1["error"]["code"], -32603, "{told:?}");
        assert!(told.iter().all(|answer| *answer == told[0]), "{told:?}");
    }
}

#[tokio::test]
async fn a_permit_that_the_tool_runner_no_longer_takes_is_asked_for_anew_once() {
    let world = world().await;
    assert_eq!(Reply::to(call(&world, MODERN, "read")).await.code(), 0);
    let decided = world.policy.asked.count();
    let given = governed(200, &answer(r#"{"content":[]}"#));
    let refuses = || RelayBehavior::Fail(ErrorReason::PermitRefused);
    world
        .tool_runner
        .relays
        .next([refuses(), RelayBehavior::Give(given)]);
    let before = count(&world);
    assert_eq!(Reply::to(call(&world, MODERN, "read")).await.code(), 0);
    assert_eq!(world.policy.asked.count(), decided + 1);
    assert_eq!(count(&world), before + 2);
    let outcome = world.audit.outcomes.reaches(2).await.pop().unwrap();
    let permit = world.tool_runner.relays.asked.all().pop().unwrap().permit;
    assert!(permit.is_some());
    assert_eq!(outcome.call.call_id.to_string(), carried(&world).call_id);
    world.tool_runner.relays.next([refuses(), refuses()]);
    let reply = Reply::to(call(&world, MODERN, "read")).await;
    assert_eq!(reply.code(), -32603);
    assert_eq!(count(&world), before + 4);
}
